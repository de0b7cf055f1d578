"""TabM beside the authors' own modules, and what clients with other columns and classes start from."""

import warnings
from functools import partial
from typing import Any

import rtdl_num_embeddings
import tabm
import torch
from torch import Tensor, nn

from fedlit import TabM
from fedlit.client.build import build_client
from fedlit.client.client import FederatedClient
from fedlit.inputs import Input
from fedlit.nn.dropout import ByteDropout
from fedlit.spec import ClientSpec

EDGES = ((-2.0, -0.5, 0.0, 0.25, 3.0), (-1.0, 1.5), (-0.1, 0.0, 0.1))
INPUTS = tuple(Input(f"x{place}", f"x{place}", edges=own) for place, own in enumerate(EDGES))


def theirs() -> rtdl_num_embeddings.PiecewiseLinearEmbeddings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one bin
        bins = list(map(torch.tensor, EDGES))
        return rtdl_num_embeddings.PiecewiseLinearEmbeddings(bins, 5, activation=False, version="A")


def rows() -> Tensor:
    """Within the bins, at their edges, and up to three widths outside."""
    torch.manual_seed(8)
    low = torch.tensor([own[0] - 3 * (own[1] - own[0]) for own in EDGES])
    high = torch.tensor([own[-1] + 3 * (own[-1] - own[-2]) for own in EDGES])
    edges = torch.tensor([[own[place % len(own)] for own in EDGES] for place in range(5)])
    return torch.cat([low + (high - low) * torch.rand(200, 3), edges])


def test_outputs_are_those_of_the_authors_modules() -> None:
    network = TabM(3, 2, k=4, width=7, layers=3, dropout=0.0, embedding=5, num_bins=4)
    network.meet(INPUTS, ["no", "yes"])
    embeddings, encoder = theirs(), network.encoder
    backbone = tabm.make_tabm_backbone(
        d_in=15, n_blocks=3, d_block=7, dropout=0.0, k=4,
        start_scaling_init="random-signs", start_scaling_init_chunks=[5] * 3,
    )  # fmt: skip
    output = tabm.LinearEnsemble(7, 2, k=4)
    with torch.no_grad():
        for value in network.parameters():
            value.copy_(torch.randn_like(value))
        embeddings.linear.weight.zero_()
        for column, edges in enumerate(EDGES):
            own = encoder.numbers.weight[column, : len(edges) - 1]
            embeddings.linear.weight[column, embeddings.impl.mask[column]] = own
        embeddings.linear.bias.copy_(encoder.numbers.offset)
        first: Any = encoder.first
        for layer, (theirs_, *_) in zip([first, *network.core], backbone.blocks, strict=True):
            theirs_.weight.copy_(layer.weight.flatten(0, 1).T if layer is first else layer.weight)
            for name, other in (("r", "input_scale"), ("s", "scale"), ("bias", "bias")):
                getattr(theirs_, name).copy_(getattr(layer, other).flatten(1))
        output.weight.copy_(network.head.weight)
        output.bias.copy_(network.head.bias)
        embedded = embeddings(rows()).flatten(1) * first.gain
        expected = output(backbone(tabm.ensemble_view(embedded, 4, training=False)))
        torch.testing.assert_close(network.eval()(rows()), expected, rtol=1e-5, atol=1e-4)


def client(name: str, columns: dict[str, tuple[str, ...]], classes: tuple[Any, ...]) -> FederatedClient:
    inputs = tuple(Input(own, own, values, () if values else (-1.0, 0.0, 2.0)) for own, values in columns.items())
    spec = ClientSpec(name, tuple(columns), classes, {}, (), inputs=inputs)
    network = partial(TabM, k=2, width=6, embedding=3, num_bins=4)
    return build_client(lambda spec: FederatedClient(spec, network), spec, seed=8)


def test_what_has_one_name_starts_equal_whatever_else_a_client_has() -> None:
    first = client("a", {"age": (), "soil": ("clay", "sand"), "bmi": ()}, ("low", "mid", "high"))
    second = client("b", {"soil": ("loam", "sand"), "age": ()}, ("high", "none", "low"))
    compared = set()
    for name, part in first.named_modules():
        for tensor, (axis, labels) in getattr(part, "axes", {}).items():
            other = second.get_submodule(name)
            theirs_ = other.axes[tensor][1]
            for label in set(labels) & set(theirs_):
                one = getattr(part, tensor).select(axis, labels.index(label))
                assert torch.equal(one, getattr(other, tensor).select(axis, theirs_.index(label))), (name, label)
                compared.add(label)
    assert compared == {"age", "soil=", "soil=sand", "low", "high"}
    theirs_ = second.state_dict()
    assert all(torch.equal(own, theirs_[name]) for name, own in first.state_dict().items() if name.startswith("core"))


def test_weights_alone_decay() -> None:
    own = client("a", {"age": (), "soil": ("clay", "sand")}, ("low", "mid", "high"))
    own.optimizer_factory = lambda groups: torch.optim.AdamW(groups, weight_decay=0.5)
    decayed, free = own.configure_optimizers().param_groups
    names = {id(value): name for name, value in own.named_parameters()}
    assert decayed["weight_decay"] == 0.5 and free["weight_decay"] == 0
    assert {names[id(value)] for value in decayed["params"]} == {
        "encoder.numbers.weight", "encoder.first.weight", "core.0.weight", "head.weight"
    }  # fmt: skip
    assert len(decayed["params"]) + len(free["params"]) == len(names)


def test_dropout_by_bytes() -> None:
    torch.manual_seed(8)
    x = torch.randn(1000, 203, requires_grad=True)
    drop: nn.Module = ByteDropout(0.1)
    out = drop(x)
    kept = out != 0
    assert torch.allclose(out[kept], x[kept] * 256 / 230) and abs(float((~kept).float().mean()) - 26 / 256) < 0.003
    out.sum().backward()
    assert x.grad is not None and torch.equal(x.grad != 0, kept)
    torch.manual_seed(8)
    torch.randn(1000, 203)
    assert torch.equal(drop(x), out) and not torch.equal(drop(x), out)
