"""The optimum carries its own proof: of a convex loss, slope · weights − the least slope bounds what is left."""

from __future__ import annotations

import numpy as np
import pytest

from fedlit.mix.losses import RowLoss, label_loss, log_loss, poisson_loss, squared_loss
from fedlit.mix.simplex import minimise


def problem(kind: str, seed: int) -> tuple[np.ndarray, RowLoss]:
    """Parts of very different quality, two of them equal, many of them sure and wrong."""
    rng = np.random.default_rng(seed)
    count, rows = int(rng.integers(2, 9)), int(rng.choice([1, 5, 200]))
    loud = 10.0 ** rng.uniform(-2, 2, (count, 1, 1))
    if kind == "classes":
        logits = rng.normal(size=(count, rows, 3)) * loud
        powers = np.exp(logits - logits.max(2, keepdims=True))
        parts, loss = powers / powers.sum(2, keepdims=True), log_loss(rng.integers(0, 3, rows), 3)
    elif kind == "labels":
        parts = 1 / (1 + np.exp(-np.clip(rng.normal(size=(count, rows, 2)) * loud, -500, 500)))
        loss = label_loss(rng.integers(0, 2, (rows, 2)).astype(float))
    elif kind == "numbers":
        y = rng.normal(size=rows)
        parts, loss = y[:, None] + rng.normal(size=(count, rows, 1)) * loud, squared_loss(y)
    else:
        parts = rng.gamma(1, 2, (count, rows, 1)) * (rng.random((count, rows, 1)) > 0.1)
        loss = poisson_loss(rng.poisson(2, rows).astype(float))
    parts[1] = parts[0]
    return parts, loss


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "counts"])
def test_no_weights_are_better_by_more_than_a_millionth_a_row(kind: str) -> None:
    for seed in range(20):
        parts, loss = problem(kind, seed)
        weights = minimise(parts, loss.terms, 0.0)
        assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12)
        assert weights[0] == pytest.approx(weights[1], abs=1e-6)  # equal parts are treated alike
        slope = (parts * loss.terms(np.tensordot(weights, parts, 1))[1]).sum((1, 2))
        assert slope @ weights - slope.min() <= 1e-6 * parts.shape[1] * max(1, loss.mean(parts[0]))
