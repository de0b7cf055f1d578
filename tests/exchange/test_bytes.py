"""What leaves a client is what the plan lists, to the byte."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from federations import make_run

from fedlit.client.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.questions import bytes_of
from fedlit.exchange.transport import InProcess
from fedlit.sharing import State


class Publishes(FederatedClient):
    def publish(self) -> State:
        return {"mean": self.federated["core.0.weight"].mean(0), "rows": torch.ones(2, 3, dtype=torch.float64)}


class Weighs(InProcess):
    """Weighs what travels, by client."""

    def __init__(self) -> None:
        self.up: dict[str, int] = {}
        self.down = 0

    def exchange(self, server: Any, number: int, updates: Any, answer: Any, *, measure: bool) -> Any:
        outcome = super().exchange(server, number, updates, answer, measure=measure)
        if number >= 0:
            assert not self.up, "expected one exchange"
            self.up = {name: bytes_of(own.state) + bytes_of(own.published) for name, own in updates.items()}
            self.down = sum(map(bytes_of, outcome.received.values()))
        return outcome


def test_the_plan_says_what_travels_to_the_byte(tmp_path: Path) -> None:
    """Up, of all methods: contract/test_contract.py."""
    weighs = Weighs()
    run = make_run(tmp_path, epochs=1, transport=weighs, client=Publishes, exchange={"federated": ["core"]})
    planned = {name: own["bytes_per_exchange"] for name, own in run.describe().clients.items()}
    run.fit(quiet=True)
    assert run.exchange.rounds == 1
    assert weighs.up == planned
    assert run.exchange.bytes == sum(planned.values()) + weighs.down and weighs.down > 0


class Changes(FederatedClient):
    """Publishes something else than it did for the plan, once it trains."""

    other: ClassVar[State] = {}

    def publish(self) -> State:
        return self.other if self.spec.name == "birch" and self.steps_taken else {"note": torch.zeros(2, 3)}


@pytest.mark.parametrize(
    "other", [{}, {"note": torch.zeros(2, 3), "more": torch.zeros(1)}, {"note": torch.zeros(3, 2)},
              {"note": torch.zeros(2, 3, dtype=torch.float64)}],
)  # fmt: skip
def test_publishing_something_else_than_planned_is_refused_before_it_leaves(other: State, tmp_path: Path) -> None:
    run = make_run(tmp_path, client=type("Changes", (Changes,), {"other": other}), exchange={"federated": ["core"]})
    assert run.describe().clients["birch"]["published"] == {"note": ("float32", (2, 3))}
    with pytest.raises(RunError, match="client 'birch'"):
        run.fit(quiet=True)
    assert run.exchange.rounds == 0
