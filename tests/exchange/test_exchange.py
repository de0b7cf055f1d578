"""What an exchange takes and gives; the bit-level contracts are in ``tests/contract``."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import make_run
from torch import nn

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.rules import IFCA, FedAvgM, Mean, Round
from fedlit.nn import Network
from fedlit.sharing import State


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


def test_a_rule_that_changes_what_clients_start_from_is_refused_behind_another_run(tmp_path: Path) -> None:
    for rule, refused in ((IFCA(2), True), (FedAvgM(), False)):
        run = make_run(tmp_path, align="both", exchange={"federated": ["*"], "rule": rule})
        run.describe()
        run.exchange.started = True  # as model.start has it
        with pytest.raises(ConfigError, match=r"model.start: .*found IFCA") if refused else nullcontext():
            run.fit(quiet=True)
