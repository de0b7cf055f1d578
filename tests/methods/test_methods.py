"""What a method adds to its client's training, by hand; without it, it is local training or FedAvg
bit for bit."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contracts import covering
from federations import SmallNet, different, trained, weights
from methods.quadratic import Linear
from torch import Tensor
from torch.autograd.functional import hvp
from torch.nn import functional

from fedlit import APFL, MLP, MOON, Ditto, FedProx, IFedAvg, PerFedAvg
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.methods import per_fedavg
from fedlit.methods.bases import by_name
from fedlit.spec import ClientSpec
from fedlit.train.personal import FineTune, Then


def build(classes: tuple[int, ...] = (0, 1, 2), **options: object) -> IFedAvg:
    spec = ClientSpec("ash", ("a", "b", "c"), classes, {}, (), (5,) * len(classes))
    return IFedAvg(spec, partial(MLP, hidden=[4]), **options)  # type: ignore[arg-type]


def test_ifedavgs_learning_rate_is_a_multiple_without_decay() -> None:
    client = build(lr_factor=5.0)
    client.optimizer_factory = partial(torch.optim.SGD, lr=0.1, weight_decay=0.5)
    client.scheduler_factory = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.1)
    configured = client.configure_optimizers()
    optimizer = configured["optimizer"]
    schedule = configured["lr_scheduler"]["scheduler"]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    before = {name: value.clone() for name, value in client.named_parameters()}
    loss = client.training_step(Batch(torch.randn(8, 3), torch.arange(8) % 3), 0)
    loss.backward()
    for value in client.parameters():
        value.grad.zero_()
    optimizer.step()
    after = dict(client.named_parameters())
    assert torch.equal(after["affine_in.weight"], before["affine_in.weight"])
    assert torch.allclose(after["head.weight"], 0.95 * before["head.weight"])
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.01, 0.05])


def test_inputs_and_outputs_go_through_ifedavgs_corrections() -> None:
    """From the identity; a client whose labels are flipped, and whose network stays, turns its
    output round."""
    torch.manual_seed(8)
    client = build((0, 1), outputs="both", lr_factor=10.0)
    x = torch.randn(200, 3)
    network = lambda x: client.head(client.core(client.encoder(x)))  # noqa: E731
    assert torch.equal(client(x), network(x))
    parts = {name: own for name, own in client.named_parameters() if name.startswith("affine")}
    y = (network(x)[:, 0] < network(x)[:, 0].median()).long()
    optimizer = torch.optim.SGD(parts.values(), lr=1.0)
    for _ in range(300):
        optimizer.zero_grad()
        client.training_step(Batch(x, y), 0).backward()
        optimizer.step()
    own = {name: value.detach() for name, value in parts.items()}
    corrected = network(own["affine_in.weight"] * (x + own["affine_in.bias"]))  # Section 2.1
    torch.testing.assert_close(
        client(x), own["affine_out.weight"] * (corrected + own["affine_out.bias"])
    )
    found = client.corrections
    assert found["output scale"]["1"] < 0 and list(found["input scale"]) == ["a", "b", "c"]
    assert list(found["input shift"].values()) == own["affine_in.bias"].tolist()


def test_ifedavgs_scalar_multiplies_all_outputs_by_one_number() -> None:
    """Roschewitz et al. 2021, A.4: φ_out(z) = w z, whose derivative is that of the cross-entropy,
    (p − y) · z."""
    torch.manual_seed(8)
    client = build(outputs="scalar")
    x = torch.randn(60, 3)
    y = torch.arange(60) % 3
    logits = client.head(client.core(client.encoder(x))).detach()
    weight = client.affine_out.weight
    assert weight is not None and weight.shape == (1,) and client.affine_out.bias is None
    with torch.no_grad():
        weight.fill_(-0.7)
    torch.testing.assert_close(client(x), -0.7 * logits)
    client.training_step(Batch(x, y), 0).backward()
    wrong = torch.softmax(-0.7 * logits, dim=1) - functional.one_hot(y, 3)
    torch.testing.assert_close(weight.grad, (wrong * logits).sum(dim=1).mean().reshape(1))
    assert client.corrections["output scale"] == {"all": pytest.approx(-0.7)}
    assert "output shift" not in client.corrections
    # one output, which has a name
    assert list(build((0, 1), outputs="scalar").corrections["output scale"]) == ["1"]


SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of logistic regression, whose derivatives are known."""
    return functional.binary_cross_entropy_with_logits(x @ w[0], y)


@pytest.mark.parametrize("hessian", ["none", "finite_difference"])
def test_per_fedavgs_meta_gradient_is_the_papers(hessian: Any) -> None:
    client: Any = PerFedAvg(SPEC, Linear, alpha=0.5, hessian=hessian, delta=0.01)
    start = torch.tensor([[0.5, -1.0]])
    with torch.no_grad():
        client.core.weight.copy_(start)
    x = torch.randn(24, 2, generator=torch.Generator().manual_seed(1))
    y = (torch.arange(24) % 3 == 0).long()
    _, found = client.meta_gradient(Batch(x, y))
    assert torch.equal(client.core.weight, start)

    w = start.double()
    parts = [
        (a.double(), b.double())
        for a, b in zip(x.chunk(client.parts), y.chunk(client.parts), strict=True)
    ]

    def gradient(at: Tensor, rows: tuple[Tensor, Tensor]) -> Tensor:
        at = at.clone().requires_grad_()
        return torch.autograd.grad(loss(at, *rows), at)[0]

    inner = gradient(w - 0.5 * gradient(w, parts[0]), parts[1])
    expected = inner
    if hessian != "none":  # (I − α ∇²f(w; D'')) ∇f(w̃; D'), with the exact Hessian
        expected = inner - 0.5 * hvp(lambda v: loss(v, *parts[2]), w, inner)[1]
        assert (expected - inner).abs().max() > 0.01
    assert found[0].double() == pytest.approx(expected, abs=2e-5)


def test_per_fedavg_predicts_after_a_step_on_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(per_fedavg, "CHUNK", 10)  # several passes make one gradient
    client = partial(PerFedAvg, network=SmallNet, alpha=0.3)
    run = trained(
        tmp_path,
        loop={"client": client},
        exchange={"federated": ["*"], "buffers": "average"},
        align="both",
    )
    for name, own in run.loop.federation.items():
        own.eval()
        rows = run.data.train_loaders[name].rows
        names = [n for n, _ in own.personal.named_parameters()]
        w = dict(own.named_parameters())
        value = own.loss(own.head(own.core(own.encoder(rows.x))), rows.y)
        gradients = torch.autograd.grad(value, [w[n] for n in names])
        for key, gradient in zip(names, gradients, strict=True):
            torch.testing.assert_close(
                w[f"personal.{key}"], w[key] - 0.3 * gradient, atol=1e-6, rtol=1e-4
            )
        adapted = own.loss(own(rows.x), rows.y)
        assert adapted < value


def test_per_fedavgs_adapted_model_trains_on_in_the_last_phase(tmp_path: Path) -> None:
    then = Then(FineTune(epochs=2, patience=9, lr=0.003))
    run = trained(
        tmp_path,
        loop={"client": partial(PerFedAvg, network=SmallNet), "then": then},
        exchange={"federated": ["core"]},
    )
    kept = {
        name: value
        for epoch in run.loop.history
        for name, value in epoch.items()
        if name.endswith("kept/epoch")
    }
    late = [name.split("/")[0] for name, epoch in kept.items() if epoch > 3]
    assert late  # somebody was better for it
    for name in late:
        state = run.loop.federation[name].state_dict()
        both = {key: f"personal.{key}" for key in state if f"personal.{key}" in state}
        assert all(torch.equal(state[key], state[copy]) for key, copy in both.items())


def test_moons_term_by_hand() -> None:
    """Eq. 3, row by row."""
    client = MOON(SPEC, MLP, temperature=0.3)
    drawn = np.random.default_rng(0).normal(size=(3, 4, 3))
    z, received, previous = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    near, far = (np.exp((z * other).sum(1) / 0.3) for other in (received, previous))
    assert float(client.contrast(*map(torch.tensor, drawn))) == pytest.approx(
        -np.log(near / (near + far)).mean()
    )


def test_moons_loss_is_a_sum_and_extra_passes_leave_no_trace() -> None:
    client: Any = MOON(SPEC, SmallNet, mu=0.7).train()
    client.on_receive({})
    x = torch.randn(20, 2)
    y = torch.arange(20) % 2
    torch.manual_seed(0)
    plain = FederatedClient.objective(client, x, y)
    torch.manual_seed(0)
    first = client.objective(x, y)  # as received: both similarities are 1
    assert float(first.detach()) == pytest.approx(float(plain.detach()) + 0.7 * np.log(2), abs=1e-5)
    first.backward()
    with_term = [None if p.grad is None else p.grad.clone() for p in client.parameters()]
    client.zero_grad()
    torch.manual_seed(0)
    FederatedClient.objective(client, x, y).backward()
    for own, parameter in zip(with_term, client.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad, atol=1e-6, rtol=1e-4)
    batches = int(client.encoder[1].num_batches_tracked)
    running = client.core[1].running_mean.clone()
    client.representation(x, by_name(client.received))
    assert int(client.encoder[1].num_batches_tracked) == batches == 3
    assert torch.equal(client.core[1].running_mean, running)


Train = Callable[..., dict[str, Tensor]]
REDUCED: dict[str, tuple[Any, float | None, tuple[str, ...]]] = {
    # a client, the bound of its gradients (each copy's own), and which of its copies is compared
    "fedprox": (partial(FedProx, mu=0.0), None, ("fedavg",)),
    "moon": (partial(MOON, mu=0.0), None, ("fedavg",)),
    "ditto": (partial(Ditto, strength=0.0), 0.5, ("fedavg", "local")),
    "apfl, all local": (partial(APFL, alpha=1.0), 0.5, ("local",)),
    "apfl, all global": (partial(APFL, alpha=0.0), None, ("fedavg",)),
    "ifedavg": (partial(IFedAvg, inputs="none"), None, ("fedavg",)),
}
BESIDE = (".personal.", ".received.", ".previous.", "affine", "alpha")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    @cache
    def made(engine: str, client: Any, federated: str, clip: float | None) -> dict[str, Tensor]:
        loop = {
            "engine": engine,
            "client": partial(client, network=SmallNet),
            "gradient_clip_val": clip,
        }
        exchange = {"federated": [federated] if federated else []}
        run = trained(tmp_path_factory.mktemp("run"), loop=loop, exchange=exchange, align="both")
        return weights(run)

    return made


@pytest.mark.parametrize(("method", "engine"), covering(list(REDUCED), ["plain", "auto"]))
def test_without_what_it_adds(method: str, engine: str, train: Train) -> None:
    client, clip, copies = REDUCED[method]
    found = train(engine, client, "*", clip)
    if "fedavg" in copies:
        shared = {
            name: value for name, value in found.items() if not any(part in name for part in BESIDE)
        }
        assert (
            len(shared) > 30 and different(train(engine, FederatedClient, "*", clip), shared) == []
        )
    if "local" in copies:
        own = {
            name.replace("personal.", ""): value
            for name, value in found.items()
            if ".personal." in name
        }
        assert different(train(engine, FederatedClient, "", clip), own) == []
