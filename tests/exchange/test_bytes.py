"""What leaves a client is what the plan lists, to the byte: of all methods, contract/test_contract.py."""

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from federations import make_run

from fedlit.client.client import FederatedClient
from fedlit.errors import RunError
from fedlit.sharing import State

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
