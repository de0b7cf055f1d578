"""What an exchange takes and gives; the bit-level contracts are in ``tests/contract``."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import make_run, trained
from torch import nn

from fedlit import IFCA, FedAvgM, Mean, Network, Round
from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, RunError
from fedlit.sharing import State


class Before(Mean):
    """Keeps what it was given."""

    def __call__(self, round: Round) -> Any:
        self.given = {
            name: {key: value.clone() for key, value in update.state.items()} for name, update in round.updates.items()
        }
        self.rows = {name: update.rows for name, update in round.updates.items()}
        return super().__call__(round)


class Publishes(FederatedClient):
    def publish(self) -> State:
        return {"rows": torch.ones(2, 3, dtype=torch.float64)}


@pytest.mark.parametrize("weights", ["uniform", "rows"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_written_back_is_the_share_of_the_aggregate(weights: Any, rate: float, tmp_path: Path) -> None:
    rule = Before(weights)
    exchange = {"federated": ["core"], "rule": rule, "rate": rate, "buffers": "average"}
    run = make_run(tmp_path, client=Publishes, epochs=1, exchange=exchange)
    planned = sum(own["bytes_per_exchange"] for own in run.describe().clients.values())
    run.fit(quiet=True)
    assert run.exchange.bytes == 2 * planned - 3 * 6 * 8  # all that was sent, and as much received, but what was told
    assert rule.rows == {"ash": 50, "birch": 39, "cedar": 67}
    for key in ("core.0.weight", "core.0.bias", "core.1.running_var"):
        given = {name: state[key].double().numpy() for name, state in rule.given.items()}
        mean = np.average([*given.values()], 0, [*rule.rows.values()] if weights == "rows" else None)
        for name, client in run.loop.federation.items():
            expected = (1 - rate) * given[name] + rate * mean
            np.testing.assert_allclose(client.state_dict()[key].numpy(), expected, rtol=2e-6, atol=1e-7)


class Tied(Network):
    def __init__(self, num_features: int, num_outputs: int) -> None:
        first = nn.Linear(4, 4)
        super().__init__(
            nn.Sequential(nn.Linear(num_features, 4), first), nn.Sequential(first), nn.Linear(4, num_outputs)
        )


def test_a_tensor_that_two_modules_share_is_mixed_once(tmp_path: Path) -> None:
    rule = Before()
    options = {"federated": ["core", "encoder.1"], "rule": rule, "rate": 0.5}
    run = trained(tmp_path, epochs=1, exchange=options, loop={"client": partial(FederatedClient, network=Tied)})
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


NOTE = torch.zeros(2, 3)


class Changes(FederatedClient):
    """Publishes something else than it did for the plan, once it trains."""

    other: ClassVar[State] = {}

    def publish(self) -> State:
        return self.other if self.spec.name == "birch" and self.steps_taken else {"note": NOTE}


@pytest.mark.parametrize("other", [{}, {"note": NOTE, "more": NOTE}, {"note": NOTE.T}, {"note": NOTE.double()}])
def test_publishing_something_else_than_planned_is_refused_before_it_leaves(other: State, tmp_path: Path) -> None:
    run = make_run(tmp_path, client=type("Changes", (Changes,), {"other": other}), exchange={"federated": ["core"]})
    assert run.describe().clients["birch"]["published"] == {"note": ("float32", (2, 3))}
    with pytest.raises(RunError, match="client 'birch'"):
        run.fit(quiet=True)
    assert run.exchange.rounds == 0
