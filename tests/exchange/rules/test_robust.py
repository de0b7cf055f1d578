"""Robust rules against what other libraries and their definitions say; and what is true of all
rules whatever clients send: permutations, agreement, and how many attackers it takes to move their
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
from scipy.optimize import minimize
from scipy.stats import trim_mean

import fedlit
from fedlit import (
    CenteredClipping,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormBound,
    TrimmedMean,
)
from fedlit.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.exchange.rules.tolerance import Robust
from fedlit.sharing import Sharing

ALL = (Median, TrimmedMean, Krum, MultiKrum, GeometricMedian, NormBound, CenteredClipping)
each = pytest.mark.parametrize(
    "make", [partial(rule, 1) for rule in ALL], ids=lambda make: make.func.__name__
)


def a_round(
    values: Any, number: int = 0, order: list[int] | None = None, dtype: Any = torch.float32
) -> Round:
    """A round in which client k sends row k of [clients, numbers]; ``order`` is who is called by
    which name."""
    rows = torch.as_tensor(np.asarray(values), dtype=dtype)
    updates = {
        f"c{place:02d}": Update({"w": rows[k]}, parameters=("w",))
        for place, k in enumerate(order or range(len(rows)))
    }
    return Round(number, 0, updates, dict.fromkeys(updates, ("w",)))


def ruled(rule: Rule, values: Any, number: int = 0) -> np.ndarray:
    received = rule(a_round(values, number))
    assert len({id(own["w"]) for own in received.values()}) == 1
    return received["c00"]["w"].numpy()


def sent(clients: int, numbers: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(clients, numbers)).astype(np.float32)


@pytest.mark.parametrize("clients", [3, 4, 7])
def test_median_and_trimmed_mean_are_numpys_and_scipys(clients: int) -> None:
    values = sent(clients)
    assert ruled(Median(), values) == pytest.approx(np.median(values, axis=0), abs=1e-6)
    assert ruled(TrimmedMean(1), values) == pytest.approx(
        trim_mean(values, 1 / clients + 1e-9, axis=0), abs=1e-6
    )


@pytest.mark.parametrize(("clients", "attackers"), [(5, 1), (7, 2), (9, 1)])
def test_krum_is_the_one_with_the_nearest_neighbours(clients: int, attackers: int) -> None:
    values = sent(clients, seed=clients)
    apart = np.sort(((values[:, None] - values) ** 2).sum(2), axis=1)[:, 1:]  # without oneself
    order = np.argsort(apart[:, : clients - attackers - 2].sum(1))
    assert np.array_equal(ruled(Krum(attackers), values), values[order[0]])
    kept = values[order[: clients - attackers]].mean(0)
    assert ruled(MultiKrum(attackers), values) == pytest.approx(kept, abs=1e-6)
    assert np.array_equal(ruled(MultiKrum(attackers, keep=1), values), values[order[0]])


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    values = sent(6, 3).astype(np.float64)
    found = minimize(lambda z: np.linalg.norm(values - z, axis=1).sum(), values.mean(0), tol=1e-12)
    assert ruled(GeometricMedian(iterations=100), values) == pytest.approx(found.x, abs=1e-4)


def test_a_norm_bound_is_the_mean_of_clipped_moves() -> None:
    rule = NormBound(1, bound=0.5)
    values = sent(5)
    now = np.ones(4)
    rule.begin(a_round(np.ones((5, 4)), -1))
    for number in range(2):  # the next round begins from what this one gave
        moves = values - now
        now = now + (moves * np.minimum(1, 0.5 / np.linalg.norm(moves, axis=1))[:, None]).mean(0)
        assert ruled(rule, values, number) == pytest.approx(now, abs=1e-6)


@pytest.mark.parametrize("radius", [0.5, None])
def test_centered_clipping_is_the_papers_recursion(
    radius: float | None,
) -> None:
    rule = CenteredClipping(1, radius=radius, iterations=2)
    w = np.zeros(4)
    v = np.zeros(4)
    rule.begin(a_round(np.zeros((5, 4)), -1))
    for number in range(3):
        values = sent(5, seed=number)
        for _ in range(2):
            apart = values - w - v
            lengths = np.linalg.norm(apart, axis=1)
            tau = np.median(lengths) if radius is None else radius
            v = v + (apart * np.minimum(1, tau / lengths)[:, None]).mean(0)
        w = w + v
        again = CenteredClipping(1, radius=radius, iterations=2)
        again.load_state_dict(rule.state_dict())
        assert ruled(rule, values, number) == pytest.approx(w, abs=1e-5)
        assert np.array_equal(ruled(again, values, number), rule.state_dict()["given"]["w"].numpy())


@each
def test_parts_of_some_clients_are_decided_among_these(
    make: Any,
) -> None:
    names = [f"c{place}" for place in range(7)]
    rng = np.random.default_rng(0)
    states = {
        name: {
            "w": torch.tensor(rng.normal(size=3)).float(),
            "running_var": torch.tensor(rng.random(2)).float(),
        }
        for name in names
    }
    for name in names[:5]:
        states[name]["part"] = torch.tensor(rng.normal(size=(2, 2))).to(torch.bfloat16)
    states["c6"]["own"] = torch.ones(1)
    updates = {
        name: Update(state, parameters=tuple(key for key in state if key != "running_var"))
        for name, state in states.items()
    }
    receivers = {name: tuple(state) for name, state in states.items()}
    received = make()(Round(0, 0, updates, receivers))
    alone = {
        name: Update({"part": states[name]["part"]}, parameters=("part",)) for name in names[:5]
    }
    expected = make()(Round(0, 0, alone, dict.fromkeys(names[:5], ("part",))))
    assert {name: tuple(own) for name, own in received.items()} == receivers
    part = received["c0"]["part"]
    assert part.dtype == torch.bfloat16 and torch.equal(part, expected["c4"]["part"])
    assert torch.equal(received["c6"]["own"], torch.ones(1))
    variances = np.median(
        torch.stack([own["running_var"] for own in states.values()]).numpy(), axis=0
    )
    assert received["c3"]["running_var"].numpy() == pytest.approx(variances, abs=1e-6)


@each
def test_huge_numbers_overflow_nowhere(make: Any) -> None:
    rule = make()
    values = sent(7)
    values[3] = 3e38
    rule.begin(a_round(np.zeros((7, 4)), -1))
    assert np.abs(ruled(rule, values)).max() < 5


def test_too_few_updates_in_a_round_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rule = Krum(1)
    for number, clients in enumerate((5, 4, 4, 5)):
        ruled(rule, sent(clients), number)
        assert rule.scalars == {"bears": 1.0 if clients == 5 else 0.0}
    assert len(caplog.messages) == 1 and "exchange 2: Krum" in caplog.text


@each
def test_fewer_clients_than_the_theory_needs_are_refused(make: Any) -> None:
    rule = make()
    nothing = Blueprint(FederatedClient, (), (), torch.device("cpu"))  # type: ignore[arg-type]
    fewest = rule.fewest(1)
    assert rule.most(fewest) == 1 and rule.most(fewest - 1) == 0 and rule.bears(fewest) == 1
    names = {f"c{place}": ("core.w",) for place in range(fewest)}
    rule.check(Sharing(names, names), 1.0, nothing, fewest)
    few = {**names, "other": ("core.w", "part"), "another": ("part", "alone")}
    for sharing, clients, key in (
        (names, fewest - 1, "core.w"),
        (few, fewest + 2, "part at 2 clients"),
    ):
        with pytest.raises(ConfigError, match=key):
            rule.check(Sharing(sharing, sharing), 1.0, nothing, clients)


# ------------------------------------------------------------------ whatever clients send

SHARE = 0.25  # of attackers that a rule is told to expect
COORDINATES = 3


KRUM = fedlit.Krum(SHARE)


def one(n: int) -> int:
    return 1


def half(n: int) -> int:
    return (n + 1) // 2


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
CLUSTERED: dict[str, Callable[[], Rule]] = {
    "CFL": partial(fedlit.CFL, 9.0, 1e-6),
    "Agglomerative": partial(fedlit.Agglomerative, 1, clusters=2),
}
MADE: dict[str, Callable[[], Rule]] = {**{name: own[0] for name, own in TABLE.items()}, **CLUSTERED}
# abstract; or they ask clients, evaluate their networks, or give each client a state of its own
# from what it publishes
OTHERS = {
    "Clustered",
    "FedDynMean",
    "FedGMCC",
    "GrowForest",
    "IFCA",
    "MixedEffects",
    "Newton",
    "PartialLikelihood",
    "Rule",
    "ScaffoldMean",
}
OTHERS |= {"FedAMP", "FedPACMean", "PrototypeMean"}


def result(name: str, values: np.ndarray, order: list[int] | None = None) -> np.ndarray:
    """What clients receive in the first exchange, after they have started from one point: a row a
    client."""
    rule = MADE[name]()
    rule.begin(a_round(np.zeros_like(values), -1, dtype=torch.float64))
    received = rule(a_round(values, 0, order, torch.float64))
    return np.stack([received[name]["w"].numpy() for name in sorted(received)])


drawn = st.builds(
    lambda seed, clients, spread: (
        np.random.default_rng(seed).normal(size=(clients, COORDINATES)) * spread
    ),
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
    assert result(name, values, order) == pytest.approx(
        result(name, values)[order], abs=near(values)
    )


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
def test_it_takes_as_many_attackers_to_break_a_rule_as_it_says(
    name: str, values: np.ndarray, far: float
) -> None:
    values, point, clients = values / np.abs(values).max(), np.array([far, -far, far]), len(values)
    rule = MADE[name]()
    breaks = TABLE[name][1]
    bears = rule.bears(clients) if isinstance(rule, Robust) else 0

    def attacked(attackers: int) -> np.ndarray:
        """Where honest clients are within 1."""
        return result(
            name, np.concatenate([values[attackers:], np.repeat(point[None], attackers, 0)])
        )

    assert all(np.abs(attacked(attackers)).max() <= 10 for attackers in range(bears + 1))
    if breaks is None:  # a number bounds it, whoever sends what
        assert np.linalg.norm(attacked(clients)[0]) <= 1 + 1e-6
    else:
        assert breaks(clients) > bears and np.abs(attacked(breaks(clients))).max() >= far / 20


def test_the_table_is_complete() -> None:
    public = {name: getattr(fedlit, name) for name in fedlit.__all__}  # type: ignore[attr-defined]
    kinds = {
        name for name, own in public.items() if isinstance(own, type) and issubclass(own, Rule)
    }
    assert kinds == {name.partition(",")[0] for name in MADE} | OTHERS
