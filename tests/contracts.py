"""Which method keeps the contracts on which engine in ``make test``: each on one, so that every
engine comes often.

The full product is marked ``full``, as all that is one of many alike.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
from federations import (
    ALIKE,
    ASKING,
    BOTH,
    CLUSTERED,
    FAULTY,
    METHODS,
    POOLED,
    THREE,
    Explodes,
    dry,
    of,
)

from fedlit import Mean

ALL = {**METHODS, **CLUSTERED, **ASKING, **FAULTY}
# of exchanges and rows, where clients are not all in one process
APART: dict[str, dict[str, Any]] = {
    "half take part, half the rate, by rows": of(
        participation=0.5, rate=0.5, rule=partial(Mean, "rows")
    ),
    "half take part, every 3 steps": of(participation=0.5, **THREE),
    "reset every step": of(optimizer_state="reset", every="step"),
    "one is not finite": {**of(Explodes), "epochs": 3},
    "pooled scaling": of(data=POOLED, **BOTH),
}
# threads run networks without dropout only; stacks need clients that are alike
ENGINES = ("plain", "threads", "stacked")

SENT = {
    name: own["exchange"] for name, own in ALL.items() if "federated" in own.get("exchange", {})
}
HONEST = {
    name for name, exchange in SENT.items() if "attacks" not in exchange and name not in FAULTY
}


def options_of(method: str, engine: str, threads: int = 2) -> dict[str, Any]:
    """What :func:`federations.make_run` is given."""
    known = {**ALL, **APART}[method]
    own = {"clients": ALIKE if engine == "stacked" else ALIKE[:3], **known}
    if engine == "threads":
        return own | dry(known, "threads", threads)
    return own | {
        "loop": {**own.get("loop", {}), "engine": "plain" if engine == "plain" else "auto"}
    }


def covering(*axes: Sequence[Any]) -> list[Any]:
    """Parameters of a test: the product of axes, marked ``full`` but for one in as many as the
    shortest axis has values; those have every value of each.
    """
    least = min(map(len, axes))
    return [
        pytest.param(*values, marks=[pytest.mark.full] if sum(places) % least else [])
        for places, values in zip(
            product(*(range(len(own)) for own in axes)), product(*axes), strict=True
        )
    ]


def one_in(number: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of a test whose values are much alike: the first of each ``number`` of them, the
    others ``full``."""
    return [
        pytest.param(value, marks=[pytest.mark.full] if place % number else [])
        for place, value in enumerate(values)
    ]
