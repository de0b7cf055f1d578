"""APFL: its ends are FedAvg and Local bit for bit; each step is the paper's, by hand."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SmallNet, different, make_run, weights
from torch import Tensor, nn

from fedlit.data.loader import Batch
from fedlit.errors import ConfigError
from fedlit.methods import APFL
from fedlit.nn import MLP, Network
from fedlit.run.run import Run
from fedlit.spec import ClientSpec

SPEC = ClientSpec("ash", ("a", "b"), (0, 1), {}, ())


def trained(folder: Path, engine: str = "plain", client: Any = None, **exchange: Any) -> Run:
    loop = {"engine": engine, **({"client": client} if client is not None else {})}
    run = make_run(folder, loop=loop, exchange=exchange or None, align="both")
    run.fit(quiet=True)
    return run


def mixing(alpha: Any, **options: Any) -> Any:
    return partial(APFL, network=SmallNet, alpha=alpha, **options)


def own(run: Run) -> dict[str, Tensor]:
    """The local copies, under the names of the clients' networks."""
    return {name.replace("personal.", ""): value for name, value in weights(run).items() if ".personal." in name}


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_alpha_1_is_local_bit_for_bit(engine: str, tmp_path: Path) -> None:
    local = trained(tmp_path / "a", engine)
    apfl = trained(tmp_path / "b", engine, mixing(1.0), federated=["*"])
    assert different(weights(local), own(apfl)) == []
    found, expected = apfl.loop.results["validation"].scores, local.loop.results["validation"].scores
    assert {name: own["auroc"] for name, own in found.items()} == {n: own["auroc"] for n, own in expected.items()}


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_alpha_0_is_fedavg_bit_for_bit(engine: str, tmp_path: Path) -> None:
    fedavg = trained(tmp_path / "a", engine, federated=["*"])
    apfl = trained(tmp_path / "b", engine, mixing(0.0), federated=["*"])
    federated = {n: v for n, v in weights(apfl).items() if ".personal." not in n and not n.endswith("alpha")}
    assert different(weights(fedavg), federated) == []
    found, expected = apfl.loop.results["validation"].scores, fedavg.loop.results["validation"].scores
    assert {name: scores["auroc"] for name, scores in found.items()} == pytest.approx(
        {name: scores["auroc"] for name, scores in expected.items()}, abs=0.02
    )  # the mixture's statistics of normalisation are the client's own, FedAvg's are private too


class Linear(Network):
    """Logistic regression, whose gradient is known."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Identity(), nn.Identity(), nn.Linear(num_features, num_outputs, bias=False))


def test_a_step_is_algorithm_1() -> None:
    client = APFL(SPEC, Linear, alpha=0.3, learn_alpha=True)
    w, v = torch.tensor([[0.5, -1.0]]), torch.tensor([[2.0, 0.25]])
    with torch.no_grad():
        client.head.weight.copy_(w)
        client.personal.head.weight.copy_(v)  # type: ignore[operator]
    x, y = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]]), torch.tensor([1, 0, 1])
    client.training_step(Batch(x, y), 0).backward()

    def gradient(parameters: Tensor) -> Tensor:
        """Of the mean cross-entropy of logistic regression, by hand: mean of (sigmoid(x·w) − y) x."""
        return ((torch.sigmoid(x @ parameters[0]) - y)[:, None] * x).mean(0, keepdim=True)

    mixture = 0.3 * v + 0.7 * w
    assert torch.allclose(client.head.weight.grad, gradient(w))  # line 5: w by its own loss
    assert torch.allclose(client.personal.head.weight.grad, 0.3 * gradient(mixture))  # type: ignore  # line 6
    assert torch.allclose(client.alpha.grad, ((v - w) * gradient(mixture)).sum())  # type: ignore  # Eq. 10
    assert torch.allclose(client(x)[:, 0], x @ mixture[0])


def test_both_copies_start_equal_and_only_one_is_federated(tmp_path: Path) -> None:
    run = make_run(tmp_path, client=APFL, exchange={"federated": ["*"]}, align="both")
    plan = run.describe()
    for client in run.loop.federation.values():
        state = client.state_dict()
        pairs = [(name, f"personal.{name}") for name in state if f"personal.{name}" in state]
        assert len(pairs) > 8 and all(torch.equal(state[first], state[second]) for first, second in pairs)
    assert not [name for name in plan.exchange["federated"] if "personal" in name or "alpha" in name]


def test_alpha_by_client_and_what_is_refused() -> None:
    def made(name: str, alpha: Any) -> APFL:
        return APFL(ClientSpec(name, ("a", "b"), (0, 1), {}, ()), MLP, alpha=alpha)

    chosen = {"ash": 0.9, "b*": 0.1, "*": 0.5}
    assert [round(float(made(name, chosen).alpha), 1) for name in ("ash", "birch", "oak")] == [0.9, 0.1, 0.5]
    with pytest.raises(ConfigError, match=r"alpha: expected a share in \[0, 1\], found 1.5"):
        made("ash", 1.5)
    with pytest.raises(ConfigError, match=r"alpha: expected a value for client 'oak', found .*; add '\*': 0.5"):
        made("oak", {"ash": 0.9})


def test_a_learnt_alpha_moves_and_stays_a_share(tmp_path: Path) -> None:
    run = trained(tmp_path, "plain", mixing(0.5, learn_alpha=True), federated=["*"])
    shares = {name: float(client.alpha.detach()) for name, client in run.loop.federation.items()}  # type: ignore[arg-type]
    assert all(0 <= share <= 1 and share != 0.5 for share in shares.values())
    assert len(set(shares.values())) == 3
    client = APFL(SPEC, Linear, alpha=0.99, learn_alpha=True)
    with torch.no_grad():
        client.alpha.fill_(1.7)
    client.on_train_batch_end(None, None, 0)
    assert client.alpha.item() == 1.0


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_clipping_does_not_tie_the_copies_together(engine: str, tmp_path: Path) -> None:
    def fit(name: str, client: Any, **exchange: Any) -> Run:
        loop = {"engine": engine, "gradient_clip_val": 0.2, **({"client": client} if client is not None else {})}
        run = make_run(tmp_path / name, loop=loop, exchange=exchange or None, align="both")
        run.fit(quiet=True)
        return run

    local, apfl = fit("a", None), fit("b", mixing(1.0), federated=["*"])
    assert different(weights(local), own(apfl)) == []
