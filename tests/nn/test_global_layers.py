"""Global Layers: the paper's parameter counts, a forward pass written out, gradients, the frozen
mode."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, dropout, linear, scaled_dot_product_attention, selu

from fedlit import GlobalLayers
from fedlit.sharing import named_tensors, resolve

# client: columns, logits, the paper's count of parameters under Global Layers and Local
COVERTYPE = {
    "comanche": (11, 6, 915_954),
    "neota": (11, 3, 915_423),
    "poudre": (11, 4, 915_600),
    "rawah": (11, 4, 915_600),
}
HEART = {"cleveland": (13, 1, 448_339), "sa": (9, 1, 415_211), "faisalabad": (12, 1, 440_057)}
HEART_FORM: dict[str, Any] = {"global_features": 8, "input_norm": False, "gated": False}
CORE = {"covertype": 717_640, "heart": 298_688}
FEDAVG = {"covertype": (11, 7, 916_131), "heart": (31, 1, 597_415)}

SMALL: dict[str, Any] = {"global_features": 3, "width": 4, "blocks": 2, "heads": 2}


def federated_parameters(network: GlobalLayers, patterns: list[str]) -> int:
    tensors = named_tensors(network)
    return sum(
        tensors[name].numel() for name in resolve({"client": network}, patterns).names["client"]
    )


@pytest.mark.parametrize("method", ["global layers", "local", "fedavg"])
@pytest.mark.parametrize("client", [*COVERTYPE, *HEART])
def test_parameter_counts_of_the_paper(client: str, method: str) -> None:
    data = "covertype" if client in COVERTYPE else "heart"
    columns, logits, parameters = (
        FEDAVG[data] if method == "fedavg" else (COVERTYPE | HEART)[client]
    )
    patterns = {"global layers": ["core"], "local": [], "fedavg": ["*"]}[method]
    network = GlobalLayers(columns, logits, **({} if data == "covertype" else HEART_FORM))
    assert sum(p.numel() for p in network.parameters()) == parameters
    expected = {"global layers": CORE[data], "local": 0, "fedavg": parameters}[method]
    assert federated_parameters(network, patterns) == expected


def written_out(
    tensors: dict[str, Tensor], x: Tensor, blocks: int, heads: int, drop: float = 0.0
) -> Tensor:
    """The network in training mode, from its named tensors alone, in the order of the design's
    description."""

    def norm(x: Tensor, name: str) -> Tensor:
        return batch_norm(
            x, None, None, tensors[f"{name}.weight"], tensors[f"{name}.bias"], training=True
        )

    def fc(x: Tensor, name: str) -> Tensor:
        made = linear(
            norm(x, f"{name}.norm"),
            tensors[f"{name}.linear.weight"],
            tensors[f"{name}.linear.bias"],
        )
        return dropout(selu(made), drop)

    def feed_forward(x: Tensor, name: str, drop: float = 0.0) -> Tensor:
        n = norm(x, f"{name}.norm")
        hidden = selu(
            linear(dropout(n, drop), tensors[f"{name}.w1.weight"], tensors.get(f"{name}.w1.bias"))
        )
        if f"{name}.w3.weight" in tensors:
            hidden = hidden * linear(n, tensors[f"{name}.w3.weight"])
        return linear(hidden, tensors[f"{name}.w2.weight"], tensors.get(f"{name}.w2.bias"))

    def attention(x: Tensor, name: str) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in linear(x, tensors[f"{name}.qkv.weight"]).chunk(3, dim=-1)
        )
        mixed = scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return linear(mixed, tensors[f"{name}.out.weight"])

    if "encoder.norm.weight" in tensors:
        x = norm(x, "encoder.norm")
    x = x.unsqueeze(-1) * tensors["encoder.embedding.weight"] + tensors["encoder.embedding.bias"]
    x = norm(x, "encoder.token_norm")
    for block in (f"encoder.blocks.{number}" for number in range(blocks)):
        x = x + attention(norm(x, f"{block}.norm"), f"{block}.attention")
        x = x + selu(feed_forward(x, f"{block}.feed_forward"))
    x = fc(x.flatten(1), "encoder.fc")
    x = x + feed_forward(x, "core.wide.inner", drop)
    x = fc(x, "core.fc")
    x = x + feed_forward(x, "core.narrow.inner", drop)
    x = fc(x, "head.fc")
    return linear(norm(x, "head.norm"), tensors["head.linear.weight"], tensors["head.linear.bias"])


@pytest.mark.parametrize("form", [{}, {"input_norm": False, "gated": False}])
@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_forward_equals_the_description(drop: float, form: dict[str, Any]) -> None:
    torch.manual_seed(1)
    network = GlobalLayers(5, 3, **SMALL, **form, dropout=drop).double()
    parameters: dict[str, Tensor] = dict(network.named_parameters())
    with torch.no_grad():
        for parameter in parameters.values():  # norms start at 1 and 0, which would hide a mistake
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = 3 + 2 * torch.randn(12, 5, dtype=torch.float64)
    torch.manual_seed(2)
    found = network(x)
    torch.manual_seed(2)  # the same numbers fall
    expected = written_out(parameters, x, blocks=2, heads=2, drop=drop)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_frozen_mode_in_training_equals_evaluation() -> None:
    torch.manual_seed(3)
    frozen = GlobalLayers(5, 3, **SMALL, norm="frozen")
    x = 3 + 2 * torch.randn(10, 5)
    trained = frozen.train()(x)
    assert torch.equal(trained, frozen.eval()(x))  # nor has training changed its statistics
    # an ordinary network of the same weights, not yet trained, evaluates alike, and trains
    # differently
    ordinary = GlobalLayers(5, 3, **SMALL)
    ordinary.load_state_dict(frozen.state_dict())
    assert torch.equal(trained, ordinary.eval()(x))
    assert not torch.allclose(trained, ordinary.train()(x), atol=1e-3)
