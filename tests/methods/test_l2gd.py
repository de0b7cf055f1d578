"""L2GD as a configuration: part of the mean is taken every few steps (Hanzely and Richtárik 2020)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from methods.quadratic import DIMENSIONS, Problem, point, problems, quadratic

Own = dict[str, Problem]


def by_theory(own: Own, strength: float) -> np.ndarray:
    """What minimises Σ f_i(x_i) + λ/2 Σ ‖x_i − x̄‖² (their Eq. 2), (clients, d)."""
    n, eye = len(own), np.eye(DIMENSIONS)
    matrix = np.kron(np.eye(n) - 1 / n, strength * eye)
    for place, one in enumerate(own.values()):
        matrix[place * DIMENSIONS :, place * DIMENSIONS :][:DIMENSIONS, :DIMENSIONS] += one.curvature
    pulls = np.concatenate([one.curvature @ one.minimum for one in own.values()])
    return np.linalg.solve(matrix, pulls).reshape(n, DIMENSIONS)


def at_rest(own: Own, lr: float, steps: int, rate: float) -> np.ndarray:
    """Where E gradient steps and x ← (1 − r) x + r x̄ come to rest."""
    n = len(own)
    shrink, shift = np.zeros((n * DIMENSIONS,) * 2), np.zeros(n * DIMENSIONS)
    for place, one in enumerate(own.values()):
        rows = slice(place * DIMENSIONS, (place + 1) * DIMENSIONS)
        left = np.linalg.matrix_power(np.eye(DIMENSIONS) - lr * one.curvature, steps)
        shrink[rows, rows], shift[rows] = left, one.minimum - left @ one.minimum
    mix = np.kron((1 - rate) * np.eye(n) + rate / n, np.eye(DIMENSIONS))
    return np.linalg.solve(np.eye(n * DIMENSIONS) - mix @ shrink, mix @ shift).reshape(n, DIMENSIONS)


def test_it_comes_to_rest_near_the_optimum_that_rate_steps_and_learning_rate_stand_for(tmp_path: Path) -> None:
    lr, steps, rate = 0.1, 2, 0.1
    pace = dict.fromkeys(("ash", "birch", "cedar"), 10)
    run = quadratic(tmp_path, lr=lr, steps=pace, rounds=60, exchange={"every": {"steps": steps}, "rate": rate})
    run.fit(quiet=True)
    own = problems(run)
    found = np.stack([point(run, name) for name in own])
    assert found == pytest.approx(at_rest(own, lr, steps, rate), abs=1e-4)
    strength = rate / (lr * steps)  # λ, to first order in the learning rate
    optimum = by_theory(own, strength)
    away = [np.abs(at_rest(own, lr / f, steps, rate / f) - optimum).max() for f in (1, 10, 100)]
    assert away[0] < 0.1 and away[1] < away[0] / 5 and away[2] < away[1] / 5
    assert np.abs(optimum - optimum.mean(0)).max() > 0.1  # neither one model nor everybody's own
