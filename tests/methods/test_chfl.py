"""CHFL: each step is the paper's, by hand; what is federated never feels what is the client's
own."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import one_in
from federations import different, trained, weights
from torch import Tensor

from fedlit import CHFL
from fedlit.data.loader import Batch
from fedlit.run.run import Run
from fedlit.seeding import initialise
from fedlit.spec import ClientSpec

HEADS_APART = {"federated": ["common", "!common.*.head"]}
SPEC = ClientSpec("ash", ("a", "b", "c", "d"), (0, 1, 2), {}, (), common={"shared": ("b", "d")})


def fitted(
    folder: Path, engine: str = "plain", common: Any = "all", data: Any = None, **options: Any
) -> Run:
    loop = {
        "engine": engine,
        "client": partial(CHFL, **{"hidden": [8, 6], **options}),
        "gradient_clip_val": 0.5,
    }
    return trained(folder, loop=loop, exchange=HEADS_APART, data={"common": common, **(data or {})})


def part(run: Run, name: str) -> dict[str, Tensor]:
    return {key: value for key, value in weights(run).items() if f".{name}." in key}


# the paper's symbols, with three layers, the output layer included (Section IV-B) → names of
# parameters
LAYERS = ("layers.0", "layers.1", "head")
SYMBOLS = {
    f"{kind}_{letter}{i}": f"{part}.{layer}.{name}"
    for letter, part in (("c", "common.shared"), ("u", "unique"))
    for kind, name in (("W", "weight"), ("b", "bias"))
    for i, layer in enumerate(LAYERS, 1)
} | {"U2": "lateral.shared.0.weight", "U3": "lateral.shared.1.weight"}


def paper(p: Mapping[str, Tensor], x: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """Logits of θ_c, and of the prediction, after Equations 6 and 7 (the output layers without the
    activation)."""
    z_c1 = torch.relu(x[:, [1, 3]] @ p["W_c1"].T + p["b_c1"])
    z_c2 = torch.relu(z_c1 @ p["W_c2"].T + p["b_c2"])
    z_c3 = z_c2 @ p["W_c3"].T + p["b_c3"]
    z_u1 = torch.relu(x[:, [0, 2]] @ p["W_u1"].T + p["b_u1"])
    z_u2 = torch.relu(z_u1 @ p["W_u2"].T + p["b_u2"] + mu * z_c1 @ p["U2"].T)
    z_u3 = z_u2 @ p["W_u3"].T + p["b_u3"] + mu * z_c2 @ p["U3"].T
    return z_c3, z_c3 + z_u3


def entropy(logits: Tensor, y: Tensor) -> Tensor:
    return -torch.softmax(logits, 1)[torch.arange(len(y)), y].log().mean()


def rows() -> Batch:
    generator = torch.Generator().manual_seed(3)
    return Batch(
        torch.randn(12, 4, generator=generator), torch.randint(0, 3, (12,), generator=generator)
    )


# without laterals the own part is a network beside the common one
@pytest.mark.parametrize("mu", [0.3, 0.0])
def test_two_batches_are_algorithm_2_by_hand(mu: float) -> None:
    client = CHFL(SPEC, hidden=[5, 4], mu=mu)
    batch = rows()
    lr = 0.2
    initialise(client, seed=8)
    client.optimizer_factory = partial(torch.optim.SGD, lr=lr)
    client._optimizers = list(client.configure_optimizers())
    p = {
        symbol: client.get_parameter(name).detach().double().requires_grad_()
        for symbol, name in SYMBOLS.items()
    }
    x = batch.x.double()
    for _ in range(2):
        client.training_step(batch, 0)
        # lines 14; 15 and 16
        for which, letters in ((0, ("W_c", "b_c")), (1, ("W_u", "b_u", "U"))):
            moved = [symbol for symbol in p if symbol.startswith(letters)]
            gradients = torch.autograd.grad(
                entropy(paper(p, x, mu)[which], batch.y), [p[symbol] for symbol in moved]
            )
            for symbol, gradient in zip(moved, gradients, strict=True):
                p[symbol] = (p[symbol] - lr * gradient).detach().requires_grad_()
    for symbol, name in SYMBOLS.items():
        torch.testing.assert_close(
            client.get_parameter(name).double(), p[symbol], msg=symbol, rtol=1e-4, atol=1e-6
        )
    torch.testing.assert_close(client(batch.x).double(), paper(p, x, mu)[1], rtol=1e-4, atol=1e-6)


VARIANTS: dict[str, dict[str, Any]] = {
    "mu 1": {"mu": 1.0},
    "mu 0": {"mu": 0.0},
    "concatenation": {"unique": "concatenation"},
    "no own part": {"unique": "none"},
    "no own columns": {"data": {"columns": ["x0", "x1", "x2", "x3"]}},
}


@pytest.mark.parametrize("engine", one_in(2, ["plain", "auto"]))
def test_own_columns_change_no_bit_of_what_is_federated(engine: str, tmp_path: Path) -> None:
    first = part(fitted(tmp_path / "first", engine), "common")
    assert len(first) == 3 * 6
    for name, options in VARIANTS.items():
        assert different(first, part(fitted(tmp_path / name, engine, **options), "common")) == [], (
            name
        )


TWO = ClientSpec(
    "ash", ("a", "b", "c", "d"), (0, 1, 2), {}, (), common={"one": ("a", "b"), "two": ("b",)}
)


def test_two_groups_and_own_columns_by_hand() -> None:
    client = CHFL(TWO, hidden=[5], mu=0.3)
    initialise(client, seed=8)
    own = dict(client.named_parameters())
    x = rows().x
    one = torch.relu(
        x[:, [0, 1]] @ own["common.one.layers.0.weight"].T + own["common.one.layers.0.bias"]
    )
    two = torch.relu(
        x[:, [1]] @ own["common.two.layers.0.weight"].T + own["common.two.layers.0.bias"]
    )
    z = torch.relu(x[:, [2, 3]] @ own["unique.layers.0.weight"].T + own["unique.layers.0.bias"])
    heads = {"common.one": one, "common.two": two, "unique": z}
    last = {
        name: value @ own[f"{name}.head.weight"].T + own[f"{name}.head.bias"]
        for name, value in heads.items()
    }
    side = one @ own["lateral.one.0.weight"].T + two @ own["lateral.two.0.weight"].T
    expected = last["unique"] + 0.3 * side + (last["common.one"] + last["common.two"]) / 2
    torch.testing.assert_close(client(x), expected)
