"""Per-FedAvg: its meta-gradients against exact ones, and the model by which a client predicts."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, trained
from methods.quadratic import Linear
from torch import Tensor
from torch.autograd.functional import hvp
from torch.nn import functional

from fedlit import PerFedAvg
from fedlit.data.loader import Batch
from fedlit.methods import per_fedavg
from fedlit.spec import ClientSpec
from fedlit.train.tuning import FineTune, Then

SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of logistic regression, whose derivatives are known."""
    return functional.binary_cross_entropy_with_logits(x @ w[0], y)


@pytest.mark.parametrize("hessian", ["none", "finite_difference"])
def test_the_meta_gradient_is_the_papers(hessian: Any) -> None:
    client = PerFedAvg(SPEC, Linear, alpha=0.5, hessian=hessian, delta=0.01)
    start = torch.tensor([[0.5, -1.0]])
    with torch.no_grad():
        client.core.weight.copy_(start)
    x, y = torch.randn(24, 2, generator=torch.Generator().manual_seed(1)), (torch.arange(24) % 3 == 0).long()
    _, found = client.meta_gradient(Batch(x, y))
    assert torch.equal(client.core.weight, start)  # type: ignore[arg-type]

    w = start.double()
    parts = [(a.double(), b.double()) for a, b in zip(x.chunk(client.parts), y.chunk(client.parts), strict=True)]

    def gradient(at: Tensor, rows: tuple[Tensor, Tensor]) -> Tensor:
        at = at.clone().requires_grad_()
        return torch.autograd.grad(loss(at, *rows), at)[0]

    inner = gradient(w - 0.5 * gradient(w, parts[0]), parts[1])
    expected = inner
    if hessian != "none":  # (I − α ∇²f(w; D'')) ∇f(w̃; D'), with the exact Hessian
        expected = inner - 0.5 * hvp(lambda v: loss(v, *parts[2]), w, inner)[1]
        assert (expected - inner).abs().max() > 0.01
    assert found[0].double() == pytest.approx(expected, abs=2e-5)


def test_it_predicts_by_the_received_model_after_a_step_on_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_fedavg, "CHUNK", 10)  # several passes make one gradient
    client = partial(PerFedAvg, network=SmallNet, alpha=0.3)
    run = trained(tmp_path, loop={"client": client}, exchange={"federated": ["*"], "buffers": "average"}, align="both")
    for name, own in run.loop.federation.items():
        own.eval()
        rows, names = run.data.train_loaders[name].rows, [n for n, _ in own.personal.named_parameters()]
        w = dict(own.named_parameters())
        value = own.loss(own.head(own.core(own.encoder(rows.x))), rows.y)
        gradients = torch.autograd.grad(value, [w[n] for n in names])
        for key, gradient in zip(names, gradients, strict=True):
            torch.testing.assert_close(w[f"personal.{key}"], w[key] - 0.3 * gradient, atol=1e-6, rtol=1e-4)
        adapted = own.loss(own(rows.x), rows.y)
        assert adapted < value


def test_the_adapted_model_trains_on_in_the_private_last_phase(tmp_path: Path) -> None:
    then = Then(FineTune(epochs=2, patience=9, lr=0.003))
    run = trained(
        tmp_path, loop={"client": partial(PerFedAvg, network=SmallNet), "then": then}, exchange={"federated": ["core"]}
    )
    kept = {name: value for epoch in run.loop.history for name, value in epoch.items() if name.endswith("kept/epoch")}
    late = [name.split("/")[0] for name, epoch in kept.items() if epoch > 3]
    assert late  # somebody was better for it
    for name in late:
        state = run.loop.federation[name].state_dict()
        both = {key: f"personal.{key}" for key in state if f"personal.{key}" in state}
        assert all(torch.equal(state[key], state[copy]) for key, copy in both.items())
