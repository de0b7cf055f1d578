"""The federated part of a client as a function."""

import pytest
import torch
from torch import nn

from fedlit import CNN, MLP, GlobalLayers
from fedlit.errors import ConfigError
from fedlit.exchange.function import function_of
from fedlit.nn.mlp import MLP as Net


@pytest.mark.parametrize(
    ("network", "patterns", "shape"),
    [
        (MLP(6, 3), ("encoder.", "core.", "head."), (6,)),
        (MLP(6, 3), ("core.",), (64,)),
        (GlobalLayers(6, 3, global_features=2, blocks=1, heads=2), ("core.",), (128,)),
        (CNN(16, 3, white=2.0), ("core.", "head."), (8, 4, 4)),
    ],
)
def test_the_function_is_the_federated_part_of_the_client(
    network: nn.Module, patterns: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    federated = [name for name, _ in network.named_parameters() if name.startswith(patterns)]
    function = function_of(network, {(6,): 6, (64,): 6, (128,): 6}.get(shape, 16), federated)
    assert function.shape == shape and function.parameters == tuple(federated)
    x = torch.rand(9, *shape)
    state = {name: value.detach() + 0.1 * torch.randn_like(value) for name, value in network.named_parameters()}
    network.load_state_dict({**network.state_dict(), **state})
    network.train()  # batch normalisation by the batch's own statistics; no dropout here
    expected = x
    for name in ("encoder", "core", "head"):
        expected = getattr(network, name)(expected) if name + "." in patterns else expected
    torch.testing.assert_close(function(state, x), expected)
    stacked = function.stacked({name: torch.stack([state[name]] * 2) for name in federated}, torch.stack([x, x]))
    torch.testing.assert_close(stacked, torch.stack([expected, expected]), rtol=1e-4, atol=1e-5)


def test_the_function_holds_no_trained_private_value_and_elsewhere_is_refused() -> None:
    fresh = Net(6, 3)
    function = function_of(fresh, 6, ["core.0.weight"])  # its bias is private
    trained = {"core.0.weight": torch.ones(64, 64)}
    expected = fresh.core[2](fresh.core[1](torch.ones(1, 64) @ torch.ones(64, 64) + fresh.core[0].bias))  # type: ignore[index]
    torch.testing.assert_close(function(trained, torch.ones(1, 64)), fresh.core[3](expected))  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"within encoder, core and head, found common\.x\.weight"):
        function_of(fresh, 6, ["common.x.weight"])
