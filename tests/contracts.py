"""Which method keeps which contract on which engine: a table, and its part that ``make test`` runs.

All cases of a contract are the product of its axes. ``make test`` runs one for each of its methods, so chosen that
every combination of the other axes comes, as far as there are methods enough; the others are marked ``full``. A new
axis (a transport, say) is one entry in :data:`AXES` and what it means in :meth:`Case.options`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import pytest
from federations import ALIKE, ASKING, CLUSTERED, FAULTY, FEDERATED, METHODS, dry

ALL = {**METHODS, **CLUSTERED, **ASKING, **FAULTY}
# threads run networks without dropout only; stacks need clients that are alike
ENGINES = ("plain", "threads", "stacked")
PACES: dict[str, dict[str, Any]] = {
    "batches": {},
    "a batch size": {"batches": None, "batch_size": 8},
    "steps": {"batches": 4, "steps": {"ash": 9, "*": 3}},
}
AT_ONCE = [name for name in FEDERATED if METHODS[name]["exchange"].get("rate", 1) == 1]
ALONE = ["local", "two optimizers", "fedprox", "apfl", "ifedavg", "chfl"]
AXES: dict[str, dict[str, Any]] = {
    "1": {"method": list(ALL), "engine": ENGINES},
    # what ends with its best epochs cannot be trained further
    "3, after an epoch": {
        "method": [name for name in ALL if "then" not in ALL[name].get("loop", {})],
        "engine": ENGINES,
    },
    "3, in an epoch": {"method": list(ALL), "engine": ENGINES, "step": (3, 4, 6)},
    # a stack agrees with its clients on their own to float32 tolerance only
    "2": {"method": ALONE, "engine": ("plain", "threads"), "pace": tuple(PACES)},
    "4": {"method": AT_ONCE, "engine": ENGINES},
    "6": {"method": FEDERATED, "engine": ENGINES},
}


@dataclass(frozen=True)
class Case:
    """One line of the table.

    Attributes:
        contract: its number.
        values: axis → value.
        full: whether ``make test-all`` alone runs it.
    """

    contract: str
    values: dict[str, Any] = field(hash=False)
    full: bool = False

    def options(self) -> dict[str, Any]:
        """What :func:`federations.make_run` is given."""
        method, engine = ALL[self.values["method"]], self.values["engine"]
        own = {"clients": ALIKE if engine == "stacked" else ALIKE[:3], **method}
        if engine == "threads":
            return own | dry(method, "threads", 2)
        return own | {"loop": {**method.get("loop", {}), "engine": "plain" if engine == "plain" else "auto"}}


@cache
def table() -> tuple[Case, ...]:
    """All cases of all contracts, methods after one another."""
    whole = []
    for place, (contract, axes) in enumerate(AXES.items()):
        methods, others = axes["method"], [axis for axis in axes if axis != "method"]
        # the engine changes fastest, so that neighbours in the list of methods have different ones
        values = [combination[::-1] for combination in product(*(axes[axis] for axis in others[::-1]))]
        for number, method in ((list(ALL).index(own), own) for own in methods):
            for turn, combination in enumerate(values):
                full = turn != (number + place) % len(values)
                whole.append(Case(contract, {"method": method, **dict(zip(others, combination, strict=True))}, full))
    return tuple(whole)


def cases(contract: str) -> list[Any]:
    """Parameters of a contract's test."""
    own = [case for case in table() if case.contract == contract]
    return [
        pytest.param(case, id="-".join(map(str, case.values.values())), marks=[pytest.mark.full] if case.full else [])
        for case in own
    ]


def covering(*axes: Sequence[Any]) -> list[Any]:
    """Parameters of a test of its own: the product of axes, marked ``full`` but for one in as many as the shortest
    axis has values; those have every value of each.
    """
    least = min(map(len, axes))
    return [
        pytest.param(*values, marks=[pytest.mark.full] if sum(places) % least else [])
        for places, values in zip(product(*(range(len(own)) for own in axes)), product(*axes), strict=True)
    ]


def one_in(number: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test whose values are much alike: the first of each ``number`` of them, the others ``full``."""
    return [
        pytest.param(value, marks=[pytest.mark.full] if place % number else []) for place, value in enumerate(values)
    ]


def uncovered() -> list[tuple[Any, ...]]:
    """What the part that ``make test`` runs leaves out: a contract with a value, or a method with an engine."""

    def seen(chosen: list[Case]) -> set[tuple[Any, ...]]:
        single = {(case.contract, axis, value) for case in chosen for axis, value in case.values.items()}
        return single | {(case.values["method"], case.values["engine"]) for case in chosen}

    return sorted(seen(list(table())) - seen([case for case in table() if not case.full]), key=str)
