"""The quadratic problem itself: its closed forms against plain loops, and FedAvg's and FedProx's fixed points."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from methods.quadratic import STEPS, Problem, joint, optimum, point, problems, quadratic, rest
from scipy.optimize import minimize

from fedlit.client.client import FederatedClient
from fedlit.methods import FedProx

LR = 0.2


def made(seed: int = 0) -> dict[str, Problem]:
    found = {}
    for name in STEPS:
        rng = np.random.default_rng([seed, len(name)])
        root = rng.normal(size=(3, 3))
        found[name] = Problem(root @ root.T / 4 + 0.2 * np.eye(3), rng.normal(size=3))
    return found


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_the_fixed_point_is_where_a_plain_loop_ends(mu: float) -> None:
    own, weights, w = made(), {"ash": 1.0, "birch": 2.0, "cedar": 0.5}, np.zeros(3)
    for _ in range(3000):
        ends = []
        for name, one in own.items():
            v = w.copy()
            for _ in range(STEPS[name]):
                v -= 0.1 * (one.gradient(v) + mu * (v - w))
            ends.append(weights[name] * v)
        w = sum(ends) / sum(weights.values())
    assert rest(own, lr=0.1, weights=weights, mu=mu) == pytest.approx(w, abs=1e-9)


def test_optima_are_what_a_solver_finds() -> None:
    own = made(1)

    def total(z: np.ndarray) -> float:  # w of two weights, then each client's third
        parts = [(np.append(z[:2], z[2 + place]), one) for place, one in enumerate(own.values())]
        return float(sum((w - one.minimum) @ one.curvature @ (w - one.minimum) for w, one in parts))

    w, best = joint(own, 2)
    assert np.concatenate([w, *best.values()]) == pytest.approx(minimize(total, np.zeros(5), tol=1e-12).x, abs=1e-5)
    whole = minimize(lambda z: total(np.append(z, [z[2], z[2]])), np.zeros(3), tol=1e-12).x
    assert optimum(own) == pytest.approx(whole, abs=1e-5)
    near = own["ash"].near(np.ones(3), 0.3)
    assert own["ash"].gradient(near) + 0.3 * (near - 1) == pytest.approx(np.zeros(3), abs=1e-12)


@pytest.mark.parametrize(("client", "mu"), [(FederatedClient, 0.0), (partial(FedProx, mu=1.5), 1.5)])
def test_fedavg_and_fedprox_rest_where_theory_says_and_not_at_the_optimum(
    client: type[FederatedClient], mu: float, tmp_path: Path
) -> None:
    run = quadratic(tmp_path, client=client, lr=LR, rounds=60)
    own = problems(run)
    run.fit(quiet=True)
    expected = rest(own, lr=LR, mu=mu)
    assert point(run) == pytest.approx(expected, abs=1e-5)
    assert np.abs(expected - optimum(own)).max() > 0.03


def test_a_core_is_shared_around_heads_of_one_s_own(tmp_path: Path) -> None:
    run = quadratic(tmp_path, lr=LR, steps=dict.fromkeys(STEPS, 1), own=1, rounds=200)
    w, best = joint(problems(run), 2)
    run.fit(quiet=True)
    for name in STEPS:
        assert point(run, name) == pytest.approx(np.concatenate([w, best[name]]), abs=1e-4)
