"""What an exchange takes and gives; the bit-level contracts are in ``tests/contract``."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import SmallNet, make_run
from torch import Tensor, nn

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.rules import IFCA, FedAvgM, Mean, Round
from fedlit.nn import Network
from fedlit.sharing import State, relative_distance


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": 1.5}, r"share in \(0, 1\], found 1.5"),
        ({"minimum": 0}, "at least 1 client"),
    ],
)
def test_values_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Exchange(["core"], **arguments)


class Before(Mean):
    """Keeps what it was given."""

    def __call__(self, round: Round) -> Any:
        self.given = {
            name: {key: value.clone() for key, value in update.state.items()} for name, update in round.updates.items()
        }
        self.rows = {name: update.rows for name, update in round.updates.items()}
        return super().__call__(round)


@pytest.mark.parametrize("weights", ["uniform", "rows"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_written_back_is_the_share_of_the_aggregate(weights: Any, rate: float, tmp_path: Path) -> None:
    rule = Before(weights)
    run = make_run(
        tmp_path, epochs=1, exchange={"federated": ["core"], "rule": rule, "rate": rate, "buffers": "average"}
    )
    run.fit(quiet=True)
    assert rule.rows == {"ash": 50, "birch": 39, "cedar": 67}
    share = np.array([50, 39, 67]) if weights == "rows" else np.ones(3)
    for key in ("core.0.weight", "core.0.bias", "core.1.running_var"):
        given = {name: state[key].double().numpy() for name, state in rule.given.items()}
        mean = np.tensordot(share / share.sum(), np.stack([given[name] for name in ("ash", "birch", "cedar")]), 1)
        for name, client in run.loop.federation.items():
            expected = (1 - rate) * given[name] + rate * mean
            np.testing.assert_allclose(client.state_dict()[key].numpy(), expected, rtol=2e-6, atol=1e-7)


def test_optimizer_state_is_averaged_or_kept(tmp_path: Path) -> None:
    def moments(policy: str) -> list[Tensor]:
        run = make_run(tmp_path, exchange={"federated": ["core"], "optimizer_state": policy})
        run.fit(quiet=True)
        clients = run.loop.federation.values()
        return [c._optimizers[0].state[c.core[0].weight]["exp_avg_sq"] for c in clients]  # type: ignore[index, union-attr]

    first, second, third = moments("average")
    assert torch.equal(first, second) and torch.equal(first, third)
    first, second, third = moments("keep")
    assert not torch.equal(first, second) and not torch.equal(first, third)


def test_averaged_optimizer_state_is_in_the_plan(tmp_path: Path) -> None:
    for optimizer, factor in ((partial(torch.optim.AdamW, lr=0.01), 3), (partial(torch.optim.SGD, lr=0.1), 1)):
        exchange = {"federated": ["core"], "optimizer_state": "average"}
        run = make_run(tmp_path, loop={"optimizer": optimizer}, exchange=exchange)
        plan = run.describe()
        # weight, bias, and the scale and shift of the normalisation
        assert plan.clients["ash"]["bytes_per_exchange"] == 4 * factor * (64 + 8 + 8 + 8)
        run.fit(quiet=True)
        sent = sum(
            value.numel()
            for value in run.exchange.collect(run.loop.federation, run.loop.federation["ash"]).state.values()
        )
        assert sent * 4 == plan.clients["ash"]["bytes_per_exchange"]


class Publishes(FederatedClient):
    def publish(self) -> State:
        return {"rows": torch.tensor([float(self.spec.rows["train"])])}

    def on_receive(self, received: State) -> None:
        self.state["times"] = self.state.get("times", 0) + 1
        self.state["received"] = {name: value.clone() for name, value in received.items()}


class SumsPublished(Mean):
    def __call__(self, round: Round) -> Any:
        published = (float(update.published["rows"]) for update in round.updates.values())
        self.total = getattr(self, "total", 0.0) + sum(published)
        return super().__call__(round)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def test_clients_publish_and_receive_and_both_sides_remember_over_a_resume(tmp_path: Path) -> None:
    options: dict[str, Any] = {"client": Publishes}
    run = make_run(tmp_path, epochs=2, exchange={"federated": ["core"], "rule": SumsPublished()}, **options)
    run.fit(quiet=True)
    ash = run.loop.federation["ash"]
    assert ash.state["times"] == 3  # the start, and two exchanges
    assert torch.equal(ash.state["received"]["core.0.weight"], ash.state_dict()["core.0.weight"])
    assert run.exchange.rule.total == 2 * (50 + 39 + 67)  # type: ignore[attr-defined]

    more = make_run(tmp_path, epochs=3, exchange={"federated": ["core"], "rule": SumsPublished()}, **options)
    more.fit("last", quiet=True)
    assert more.loop.federation["ash"].state["times"] == 4
    assert more.exchange.rule.total == 3 * (50 + 39 + 67)  # type: ignore[attr-defined]


def test_drift_is_the_relative_distance_just_before_the_exchange(tmp_path: Path) -> None:
    rule = Before()
    run = make_run(tmp_path, epochs=1, exchange={"federated": ["core"], "rule": rule})
    run.fit(quiet=True)
    flat = {
        name: np.concatenate([state[key].double().numpy().ravel() for key in sorted(state)])
        for name, state in rule.given.items()
    }
    mean = sum(flat.values()) / 3
    assert run.trainer is not None
    for name, vector in flat.items():
        expected = np.linalg.norm(vector - mean) / np.linalg.norm(mean)
        assert float(run.trainer.callback_metrics[f"{name}/train/drift"]) == pytest.approx(expected, rel=1e-5)
    assert relative_distance({}, {}) is None


def test_fedper_lg_fedavg_and_fedbn_are_patterns(tmp_path: Path) -> None:
    def names(patterns: list[str]) -> set[str]:
        run = make_run(tmp_path, align="both", exchange={"federated": patterns})
        run.describe()
        return set(run.exchange.plan(run.loop.federation).all_names)

    everything = names(["*"])
    assert names(["encoder", "core"]) == {name for name in everything if not name.startswith("head")}  # FedPer
    assert names(["core", "head"]) == {name for name in everything if not name.startswith("encoder")}  # LG-FedAvg
    assert names(["*", "!*.1"]) == {name for name in everything if name.split(".")[1] != "1"}  # FedBN


def test_exchange_needs_no_trainer_of_ours(tmp_path: Path) -> None:
    """The objects work with a plain Lightning Trainer, as in a notebook."""
    from federations import Made
    from lightning.pytorch import Trainer

    from fedlit.data.module import FederatedData
    from fedlit.train.loop import FederatedLoop

    loop = FederatedLoop(partial(FederatedClient, network=SmallNet))
    trainer = Trainer(
        max_epochs=1,
        callbacks=[Exchange(["core"])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(loop, datamodule=FederatedData(Made(), batches=4))
    first, second, third = (client.state_dict()["core.0.weight"] for client in loop.federation.values())
    assert torch.equal(first, second) and torch.equal(first, third)
    assert loop.results["validation"].scores.keys() == {"ash", "birch", "cedar"}


class Tied(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        first = nn.Linear(4, 4)
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 4), first), nn.Sequential(first), nn.Linear(4, num_outputs)
        )


def test_a_tensor_that_two_modules_share_is_mixed_once(tmp_path: Path) -> None:
    rule = Before()
    options = {"federated": ["core", "encoder.1"], "rule": rule, "rate": 0.5}
    run = make_run(tmp_path, epochs=1, exchange=options, loop={"client": partial(FederatedClient, network=Tied)})
    run.fit(quiet=True)
    given = [rule.given[name]["encoder.1.weight"] for name in ("ash", "birch", "cedar")]
    expected = 0.5 * given[0] + 0.5 * sum(given) / 3
    torch.testing.assert_close(run.loop.federation["ash"].state_dict()["core.0.weight"], expected)


def drifts(run: Any) -> dict[str, list[float]]:
    """What was logged as drift, per client, in order."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for name in ("ash", "birch", "cedar"):
        board = EventAccumulator(str(run.folder / name)).Reload()
        found[name] = (
            [event.value for event in board.Scalars("train/drift")] if "train/drift" in board.Tags()["scalars"] else []
        )
    return found


@pytest.mark.parametrize(("every", "points"), [("step", 3), ("epoch", 3), ({"steps": 3}, 3), ({"steps": 6}, 2)])
def test_every_epoch_with_an_exchange_has_its_drift(every: Any, points: int, tmp_path: Path) -> None:
    run = make_run(tmp_path, exchange={"federated": ["core"], "every": every})
    run.fit(quiet=True)
    assert {len(values) for values in drifts(run).values()} == {points}


def test_drift_is_of_parameters_whatever_happens_to_buffers(tmp_path: Path) -> None:
    one, other = (
        make_run(tmp_path / buffers, epochs=1, exchange={"federated": ["core"], "buffers": buffers})
        for buffers in ("private", "average")
    )
    one.fit(quiet=True)
    other.fit(quiet=True)
    assert drifts(one) == drifts(other)


def test_what_is_published_is_planned(tmp_path: Path) -> None:
    run = make_run(tmp_path, epochs=1, client=Publishes, exchange={"federated": ["core"]})
    plan = run.describe().clients["ash"]
    assert plan["published"] == {"rows": ("float32", (1,))} and plan["bytes_per_exchange"] == 4 * (64 + 8 + 8 + 8 + 1)


class Scaled(Network):
    """A parameter that no ``reset_parameters`` reaches."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(nn.Linear(num_features, 4), nn.Linear(4, 4), Scale(num_outputs))


class Scale(nn.Module):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(4, outputs), nn.Parameter(torch.full((outputs,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x) * self.scale
        return out


class ExplodesOnce(FederatedClient):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * float("nan") if self.spec.name == "birch" and self.trainer.global_step == 2 else loss


def test_a_client_that_was_lost_comes_back_whole(tmp_path: Path) -> None:
    client = partial(ExplodesOnce, network=Scaled)
    run = make_run(tmp_path, exchange={"federated": ["core"]}, loop={"client": client})
    results = run.fit(quiet=True)
    assert run.exchange.not_finite == {"birch": 1}
    assert all(torch.isfinite(value).all() for value in run.loop.federation["birch"].state_dict().values())
    assert np.isfinite(results.summary["mean"]["loss"])


def test_a_rule_that_changes_what_clients_start_from_is_refused_behind_another_run(tmp_path: Path) -> None:
    for rule, refused in ((IFCA(2), True), (FedAvgM(), False)):
        run = make_run(tmp_path, align="both", exchange={"federated": ["*"], "rule": rule})
        run.describe()
        run.exchange.started = True  # as model.start has it
        with pytest.raises(ConfigError, match=r"model.start: .*found IFCA") if refused else nullcontext():
            run.fit(quiet=True)
