"""What is true of rules whatever clients send: permutations, agreement, and how many attackers it takes to move their
result. Examples are the same in each run.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedlit
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.robust import Robust

SHARE = 0.25  # of attackers that a rule is told to expect
COORDINATES = 3


def one(clients: int) -> int:
    return 1


def half(clients: int) -> int:
    return (clients + 1) // 2


KRUM = fedlit.Krum(SHARE)
TABLE: dict[str, tuple[Callable[[], Rule], Callable[[int], int] | None]] = {
    # of n clients, how many that send one far point move its result there; None where none do
    "Mean": (fedlit.Mean, one),
    "ByPart": (partial(fedlit.ByPart, {"*": "mean"}), one),
    "FedAvgM": (partial(fedlit.FedAvgM, 0.6), one),
    "FedNova": (fedlit.FedNova, one),
    "FedAdagrad": (partial(fedlit.FedAdagrad, 0.1), None),
    "FedAdam": (partial(fedlit.FedAdam, 0.1), None),
    "FedYogi": (partial(fedlit.FedYogi, 0.1), None),
    "Median": (fedlit.Median, half),
    "TrimmedMean": (partial(fedlit.TrimmedMean, SHARE), lambda n: int(SHARE * n) + 1),
    # so many need to agree that they are neighbours enough of each other
    "Krum": (partial(fedlit.Krum, SHARE), lambda n: n - KRUM.bears(n) - 1),
    "MultiKrum": (partial(fedlit.MultiKrum, SHARE), lambda n: KRUM.bears(n) + 1),
    "GeometricMedian": (partial(fedlit.GeometricMedian, iterations=100), lambda n: n // 2 + 1),
    "NormBound": (fedlit.NormBound, half),
    "NormBound, a number": (partial(fedlit.NormBound, bound=1.0), None),
    "CenteredClipping": (fedlit.CenteredClipping, half),
    "CenteredClipping, a number": (partial(fedlit.CenteredClipping, radius=1.0), None),
}
# whoever sends what, no number moves further than the learning rate
ADAPTIVE = ("FedAdagrad", "FedAdam", "FedYogi")
CLUSTERED = {"CFL": partial(fedlit.CFL, 9.0, 1e-6), "Agglomerative": partial(fedlit.Agglomerative, 1, clusters=2)}
MADE: dict[str, Callable[[], Rule]] = {**{name: own[0] for name, own in TABLE.items()}, **CLUSTERED}
# abstract; or they ask clients, or evaluate their networks
OTHERS = {"Clustered", "FedDynMean", "FedGMCC", "GrowForest", "IFCA", "MixedEffects", "Newton", "Rule", "ScaffoldMean"}


def a_round(values: np.ndarray, number: int = 0, order: list[int] | None = None) -> Round:
    """A round in which client k sends row k; ``order`` is who is called by which name."""
    rows = torch.as_tensor(values, dtype=torch.float64)
    updates = {
        f"c{place:02d}": Update({"w": rows[k]}, rows=1, parameters=("w",))
        for place, k in enumerate(order or range(len(values)))
    }
    return Round(number, 0, updates, dict.fromkeys(updates, ("w",)))


def result(name: str, values: np.ndarray, order: list[int] | None = None) -> np.ndarray:
    """What clients receive in the first exchange, after they have started from one point: a row a client."""
    rule = MADE[name]()
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


def near(values: np.ndarray) -> float:
    return 1e-6 * (1 + float(np.abs(values).max()))


@pytest.mark.parametrize("name", MADE)
@few
@given(values=drawn, data=st.data())
def test_names_of_clients_do_not_matter(name: str, values: np.ndarray, data: Any) -> None:
    order = list(data.draw(st.permutations(range(len(values)))))
    assert result(name, values, order) == pytest.approx(result(name, values)[order], abs=near(values))


@pytest.mark.parametrize("name", [name for name in MADE if name not in ADAPTIVE])
@few
@given(values=drawn)
def test_where_all_agree_they_receive_what_they_sent(name: str, values: np.ndarray) -> None:
    if name.endswith("a number"):
        values = values / np.linalg.norm(values[0])  # it moves no further than that in a round
    agreed = np.repeat(values[:1], len(values), 0)
    assert result(name, agreed) == pytest.approx(agreed, abs=near(values))


@pytest.mark.parametrize("name", TABLE)
@few
@given(values=drawn, far=st.sampled_from([1e4, 1e8]))
def test_it_takes_as_many_attackers_to_break_a_rule_as_it_says(name: str, values: np.ndarray, far: float) -> None:
    values, point, clients = values / np.abs(values).max(), np.array([far, -far, far]), len(values)
    rule, breaks = MADE[name](), TABLE[name][1]
    bears = rule.bears(clients) if isinstance(rule, Robust) else 0

    def attacked(attackers: int) -> np.ndarray:
        """Where honest clients are within 1."""
        return result(name, np.concatenate([values[attackers:], np.repeat(point[None], attackers, 0)]))

    assert all(np.abs(attacked(attackers)).max() <= 10 for attackers in range(bears + 1))
    if breaks is None:  # a number bounds it, whoever sends what
        assert np.linalg.norm(attacked(clients)[0]) <= 1 + 1e-6
    else:
        assert breaks(clients) > bears and np.abs(attacked(breaks(clients))).max() >= far / 20


def test_the_table_is_complete() -> None:
    public = {name: getattr(fedlit, name) for name in fedlit.__all__}
    kinds = {name for name, own in public.items() if isinstance(own, type) and issubclass(own, Rule)}
    assert kinds == {name.partition(",")[0] for name in MADE} | OTHERS
    # at the edge of what it says: one attacker more than it bears breaks it, but for Krum, whose attackers must be
    # neighbours of each other, and for a bound that is a number
    for name, (make, breaks) in TABLE.items():
        rule = make()
        if breaks is not None and isinstance(rule, Robust) and type(rule) is not fedlit.Krum:
            assert breaks(9) == rule.bears(9) + 1, name
