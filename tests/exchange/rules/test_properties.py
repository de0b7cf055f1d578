"""What is true of rules whatever clients send: permutations, agreement, and how many attackers it takes to move their
result. Examples are the same in each run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlit.exchange import rules
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules import (
    CFL,
    Agglomerative,
    ByPart,
    CenteredClipping,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedNova,
    FedYogi,
    GeometricMedian,
    Krum,
    Mean,
    Median,
    MultiKrum,
    NormBound,
    Robust,
    TrimmedMean,
)

SHARE = 0.25  # of attackers that a rule is told to expect


@dataclass(frozen=True)
class Properties:
    """Of a rule.

    Attributes:
        make: makes it.
        agreed: whether clients that agree receive what they sent.
        breaks: of n clients, how many that send one far point move its result there; None where none do.
    """

    make: Callable[[], Rule]
    agreed: bool = True
    breaks: Callable[[int], int] | None = None


def half(clients: int) -> int:
    return (clients + 1) // 2


TABLE: dict[str, Properties] = {
    "Mean": Properties(Mean, breaks=lambda clients: 1),
    "ByPart": Properties(partial(ByPart, {"*": "mean"}), breaks=lambda clients: 1),
    "FedAvgM": Properties(partial(FedAvgM, 0.6), breaks=lambda clients: 1),
    "FedNova": Properties(FedNova, breaks=lambda clients: 1),
    # whoever sends what, no number moves further than the learning rate
    "FedAdagrad": Properties(partial(FedAdagrad, 0.1), agreed=False),
    "FedAdam": Properties(partial(FedAdam, 0.1), agreed=False),
    "FedYogi": Properties(partial(FedYogi, 0.1), agreed=False),
    "Median": Properties(Median, breaks=half),
    "TrimmedMean": Properties(partial(TrimmedMean, SHARE), breaks=lambda n: int(SHARE * n) + 1),
    # so many need to agree that they are neighbours enough of each other
    "Krum": Properties(partial(Krum, SHARE), breaks=lambda n: n - Krum(SHARE).bears(n) - 1),
    "MultiKrum": Properties(partial(MultiKrum, SHARE), breaks=lambda n: Krum(SHARE).bears(n) + 1),
    "GeometricMedian": Properties(partial(GeometricMedian, iterations=100), breaks=lambda n: n // 2 + 1),
    "NormBound": Properties(NormBound, breaks=half),
    "NormBound, a number": Properties(partial(NormBound, bound=1.0)),
    "CenteredClipping": Properties(CenteredClipping, breaks=half),
    "CenteredClipping, a number": Properties(partial(CenteredClipping, radius=1.0)),
}
CLUSTERED: dict[str, Callable[[], Rule]] = {
    "CFL": partial(CFL, 9.0, 1e-6),
    "Agglomerative": partial(Agglomerative, 1, clusters=2),
}
OTHERS = {
    "Clustered": "abstract",
    "Robust": "abstract",
    "ServerOptimizer": "abstract",
    "Rule": "abstract",
    "FedGMCC": "evaluates clients' networks, which a round alone does not have",
    "IFCA": "asks clients for their losses",
    "GrowForest": "asks clients for counts, and averages nothing",
    "Newton": "asks clients for gradients, and averages nothing",
    "MixedEffects": "asks clients for terms of a likelihood, and averages nothing",
}
COORDINATES = 3


def a_round(values: np.ndarray, number: int = 0, order: list[int] | None = None) -> Round:
    """A round in which client k sends row k; ``order`` is who is called by which name."""
    order = list(range(len(values))) if order is None else order
    rows = torch.as_tensor(values, dtype=torch.float64)
    updates = {f"c{place:02d}": Update({"w": rows[k]}, rows=1, parameters=("w",)) for place, k in enumerate(order)}
    return Round(number, 0, updates, dict.fromkeys(updates, ("w",)))


def result(make: Callable[[], Rule], values: np.ndarray, order: list[int] | None = None) -> np.ndarray:
    """What clients receive in the first exchange, after they have started from one point: a row a client."""
    rule = make()
    rule.begin(a_round(np.zeros_like(values), -1))
    received = rule(a_round(values, 0, order))
    return np.stack([received[name]["w"].numpy() for name in sorted(received)])


drawn = st.builds(
    lambda seed, clients, spread: np.random.default_rng(seed).normal(size=(clients, COORDINATES)) * spread,
    st.integers(0, 2**31),
    st.integers(5, 12),
    st.floats(0.01, 100),
)
few = settings(max_examples=12, derandomize=True, deadline=None, database=None)
of_each = pytest.mark.parametrize("name", TABLE)


def near(values: np.ndarray) -> float:
    return 1e-6 * (1 + float(np.abs(values).max()))


@pytest.mark.parametrize("name", [*TABLE, *CLUSTERED])
@few
@given(values=drawn, data=st.data())
def test_names_of_clients_do_not_matter(name: str, values: np.ndarray, data: Any) -> None:
    make = TABLE[name].make if name in TABLE else CLUSTERED[name]
    order = data.draw(st.permutations(range(len(values))))
    usual, other = result(make, values), result(make, values, list(order))
    assert other == pytest.approx(usual[list(order)], abs=near(values))


@pytest.mark.parametrize("name", [*TABLE, *CLUSTERED])
@few
@given(values=drawn)
def test_where_all_agree_they_receive_what_they_sent(name: str, values: np.ndarray) -> None:
    make = TABLE[name].make if name in TABLE else CLUSTERED[name]
    if name.endswith("a number"):
        values = values / np.linalg.norm(values[0])  # it moves no further than that in a round
    agreed = np.repeat(values[:1], len(values), 0)
    if name in CLUSTERED or TABLE[name].agreed:
        assert result(make, agreed) == pytest.approx(agreed, abs=near(values))


@of_each
@few
@given(values=drawn, far=st.sampled_from([1e4, 1e8]))
def test_it_takes_as_many_attackers_to_break_a_rule_as_it_says(name: str, values: np.ndarray, far: float) -> None:
    values = values / np.abs(values).max()  # honest clients are within 1
    own, clients = TABLE[name], len(values)
    rule = own.make()
    point = np.array([far, -far, far])
    bears = rule.bears(clients) if isinstance(rule, Robust) else 0
    for attackers in range(bears + 1):
        sent = np.concatenate([values[attackers:], np.repeat(point[None], attackers, 0)])
        assert np.abs(result(own.make, sent)).max() <= 10, (name, clients, attackers)
    if own.breaks is None:  # a number bounds it, whoever sends what
        everybody = np.repeat(point[None], clients, 0)
        assert np.linalg.norm(result(own.make, everybody)[0]) <= 1 + 1e-6
        return
    breaks = own.breaks(clients)
    assert breaks > bears
    sent = np.concatenate([values[breaks:], np.repeat(point[None], breaks, 0)])
    assert np.abs(result(own.make, sent)).max() >= far / 20, (name, clients, breaks)


def test_the_table_is_complete() -> None:
    kinds = {name for name in rules.__all__ if isinstance(own := getattr(rules, name), type) and issubclass(own, Rule)}
    assert kinds == {name.partition(",")[0] for name in TABLE} | set(CLUSTERED) | set(OTHERS)
    # at the edge of what it says: one attacker more than it bears breaks it, but for Krum, whose attackers must be
    # neighbours of each other, and for a bound that is a number
    for name, own in TABLE.items():
        rule = own.make()
        if own.breaks is not None and isinstance(rule, Robust) and type(rule) is not Krum:
            assert own.breaks(9) == rule.bears(9) + 1, name
