"""Robust rules against what other libraries and their definitions say."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import trim_mean

from fedlit import CenteredClipping, GeometricMedian, Krum, Median, MultiKrum, NormBound, TrimmedMean
from fedlit.client import FederatedClient
from fedlit.errors import ConfigError
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Round, Rule, Update
from fedlit.sharing import Sharing

ALL = (Median, TrimmedMean, Krum, MultiKrum, GeometricMedian, NormBound, CenteredClipping)
each = pytest.mark.parametrize("make", [partial(rule, 1) for rule in ALL], ids=lambda make: make.func.__name__)


def a_round(values: Any, number: int = 0) -> Round:
    """A round of clients that send one parameter each: [clients, numbers]."""
    rows = torch.as_tensor(np.asarray(values), dtype=torch.float32)
    updates = {f"c{place:02d}": Update({"w": own}, parameters=("w",)) for place, own in enumerate(rows)}
    return Round(number, 0, updates, dict.fromkeys(updates, ("w",)))


def given(rule: Rule, values: Any, number: int = 0) -> np.ndarray:
    received = rule(a_round(values, number))
    assert len({id(own["w"]) for own in received.values()}) == 1
    return received["c00"]["w"].numpy()


def sent(clients: int, numbers: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(clients, numbers)).astype(np.float32)


@pytest.mark.parametrize("clients", [3, 4, 7])
def test_the_median_and_the_trimmed_mean_are_what_numpy_and_scipy_say(clients: int) -> None:
    values = sent(clients)
    assert given(Median(), values) == pytest.approx(np.median(values, axis=0), abs=1e-6)
    assert given(TrimmedMean(1), values) == pytest.approx(trim_mean(values, 1 / clients + 1e-9, axis=0), abs=1e-6)


@pytest.mark.parametrize(("clients", "attackers"), [(5, 1), (7, 2), (9, 1)])
def test_krum_is_the_one_with_the_nearest_neighbours(clients: int, attackers: int) -> None:
    values = sent(clients, seed=clients)
    apart = np.sort(((values[:, None] - values) ** 2).sum(2), axis=1)[:, 1:]  # without oneself
    order = np.argsort(apart[:, : clients - attackers - 2].sum(1))
    assert np.array_equal(given(Krum(attackers), values), values[order[0]])
    kept = values[order[: clients - attackers]].mean(0)
    assert given(MultiKrum(attackers), values) == pytest.approx(kept, abs=1e-6)
    assert np.array_equal(given(MultiKrum(attackers, keep=1), values), values[order[0]])


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    values = sent(6, 3).astype(np.float64)
    found = minimize(lambda z: np.linalg.norm(values - z, axis=1).sum(), values.mean(0), tol=1e-12)
    assert given(GeometricMedian(iterations=100), values) == pytest.approx(found.x, abs=1e-4)


def test_a_norm_bound_is_the_mean_of_clipped_moves() -> None:
    rule, values, now = NormBound(1, bound=0.5), sent(5), np.ones(4)
    rule.begin(a_round(np.ones((5, 4)), -1))
    for number in range(2):  # the next round begins from what this one gave
        moves = values - now
        now = now + (moves * np.minimum(1, 0.5 / np.linalg.norm(moves, axis=1))[:, None]).mean(0)
        assert given(rule, values, number) == pytest.approx(now, abs=1e-6)


@pytest.mark.parametrize("radius", [0.5, None])
def test_centered_clipping_is_the_recursion_of_the_paper_and_goes_on_when_restored(radius: float | None) -> None:
    rule, w, v = CenteredClipping(1, radius=radius, iterations=2), np.zeros(4), np.zeros(4)
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
        assert given(rule, values, number) == pytest.approx(w, abs=1e-5)
        assert np.array_equal(given(again, values, number), rule.state_dict()["given"]["w"].numpy())


@each
def test_parts_of_some_clients_are_decided_among_these_and_statistics_by_their_median(make: Any) -> None:
    names, rng = [f"c{place}" for place in range(7)], np.random.default_rng(0)
    states = {
        name: {"w": torch.tensor(rng.normal(size=3)).float(), "running_var": torch.tensor(rng.random(2)).float()}
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
    alone = {name: Update({"part": states[name]["part"]}, parameters=("part",)) for name in names[:5]}
    expected = make()(Round(0, 0, alone, dict.fromkeys(names[:5], ("part",))))
    assert {name: tuple(own) for name, own in received.items()} == receivers
    part = received["c0"]["part"]
    assert part.dtype == torch.bfloat16 and torch.equal(part, expected["c4"]["part"])
    assert torch.equal(received["c6"]["own"], torch.ones(1))
    variances = np.median(torch.stack([own["running_var"] for own in states.values()]).numpy(), axis=0)
    assert received["c3"]["running_var"].numpy() == pytest.approx(variances, abs=1e-6)


@each
def test_huge_numbers_overflow_nowhere(make: Any) -> None:
    rule, values = make(), sent(7)
    values[3] = 3e38
    rule.begin(a_round(np.zeros((7, 4)), -1))
    assert np.abs(given(rule, values)).max() < 5


def test_too_few_updates_in_a_round_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rule = Krum(1)
    for number, clients in enumerate((5, 4, 4, 5)):
        given(rule, sent(clients), number)
        assert rule.scalars == {"bears": 1.0 if clients == 5 else 0.0}
    assert len(caplog.messages) == 1 and "exchange 2: Krum" in caplog.text


@each
def test_fewer_clients_than_the_theory_needs_are_refused(make: Any) -> None:
    rule = make()
    nothing = Blueprint(FederatedClient, (), (), torch.device("cpu"))
    fewest = rule.fewest(1)
    assert rule.most(fewest) == 1 and rule.most(fewest - 1) == 0 and rule.bears(fewest) == 1
    names = {f"c{place}": ("core.w",) for place in range(fewest)}
    rule.check(Sharing(names, names), 1.0, nothing, fewest)
    few = {**names, "other": ("core.w", "part"), "another": ("part", "alone")}
    for sharing, clients, key in ((names, fewest - 1, "core.w"), (few, fewest + 2, "part at 2 clients")):
        with pytest.raises(ConfigError, match=key):
            rule.check(Sharing(sharing, sharing), 1.0, nothing, clients)
