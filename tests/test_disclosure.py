"""Means that stand for several rows, against sums over Python lists."""

import math
from typing import Any

import numpy as np
import pytest

from fedlit.disclosure import group_means, outer_means


@pytest.mark.parametrize("rows", [1, 2, 5, 9])
@pytest.mark.parametrize("number", [1, 4, 5, 9, 10, 11, 14, 15, 144, 2000])
def test_each_group_is_of_enough_rows_and_no_row_is_left_out(rows: int, number: int) -> None:
    values = np.random.default_rng(number).normal(50, 15, number)
    found = group_means(values, rows, 257).tolist()
    rest = sorted(values.tolist())
    assert len(found) == min(257, number // rows)
    if len(found) >= 3:
        assert math.isclose(found[0], math.fsum(rest[:rows]) / rows)
        assert math.isclose(found[-1], math.fsum(rest[-rows:]) / rows)
    # each is the mean of the next rows: of which, follows from the numbers alone
    for mean in found:
        size = next(
            size
            for size in range(rows, len(rest) + 1)
            if math.isclose(math.fsum(rest[:size]) / size, mean)
        )
        rest = rest[size:]
    assert not rest or not found


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_a_range_is_of_the_outermost_rows_in_any_order(dtype: Any) -> None:
    values = np.random.default_rng(1).normal(0, 1000, 301).astype(dtype)
    ordered = sorted(values.astype(float).tolist())
    assert outer_means(values, 1) == (ordered[0], ordered[-1])
    for rows in (2, 5, 301):
        low, high = outer_means(values, rows)
        assert math.isclose(low, math.fsum(ordered[:rows]) / rows, rel_tol=1e-12)
        assert math.isclose(high, math.fsum(ordered[-rows:]) / rows, rel_tol=1e-12)
        assert (
            outer_means(values[::-1], rows)
            == outer_means(np.array(sorted(values)), rows)
            == (low, high)
        )
    assert outer_means(values, 302) == (math.inf, -math.inf)


def test_groups_of_no_rows_are_refused() -> None:
    for wrong in (outer_means, lambda values, rows: group_means(values, rows, 257)):
        with pytest.raises(ValueError, match="rows"):
            wrong(np.arange(3.0), 0)
