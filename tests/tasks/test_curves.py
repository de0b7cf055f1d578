"""Bins of predictions hold all rows."""

from __future__ import annotations

import numpy as np
import pytest

from fedlit.tasks.curves import binned, reliability


def test_bins_hold_all_rows() -> None:
    rng = np.random.default_rng(3)
    probability = rng.random(500)
    happened = rng.random(500) < probability
    place = np.clip((probability * 10).astype(int), 0, 9)
    bins, predicted, true, rows = binned(place, probability, happened)
    assert rows.sum() == 500 and bins.tolist() == list(range(10))
    assert (predicted * rows).sum() == pytest.approx(probability.sum())
    assert (true * rows).sum() == pytest.approx(happened.sum())
    np.testing.assert_array_equal(reliability(happened, probability), (predicted, true))
