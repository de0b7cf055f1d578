"""Temperature against logistic regression on log-odds, and planted ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, softmax

from fedlit.errors import DataError
from fedlit.mix.calibration import RANGE, calibrated, temperature_of
from fedlit.mix.losses import label_loss, log_loss


def drawn(rows: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True probabilities, and classes drawn by them."""
    rng = np.random.default_rng(seed)
    true = softmax(1.5 * rng.normal(size=(rows, width)), axis=1)
    return true, (rng.random((rows, 1)) > true.cumsum(1)).sum(1)


@pytest.mark.parametrize("planted", [0.5, 1.0, 3.0])
def test_it_finds_the_temperature_that_was_planted(planted: float) -> None:
    true, y = drawn(40_000, 4)
    given = calibrated(true, 1 / planted)  # as a network that is too sure by this temperature
    found = temperature_of(given, y)
    assert found.temperature == pytest.approx(planted, rel=0.03) and found.note == ""
    assert found.after == pytest.approx(log_loss(y, 4).mean(true), abs=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_optimum_and_never_worse_on_its_rows(seed: int) -> None:
    true, y = drawn(120, 3, seed)
    given = calibrated(true, 0.4 + 0.3 * seed)
    found, loss = temperature_of(given, y), log_loss(y, 3)
    best = minimize_scalar(
        lambda t: loss.mean(calibrated(given, t)), bounds=RANGE, method="bounded", options={"xatol": 1e-9}
    )
    assert found.temperature == pytest.approx(best.x, rel=1e-4)
    assert found.after == loss.mean(calibrated(given, found.temperature)) <= found.before == loss.mean(given)


def test_one_column_two_columns_and_labels_are_the_same_problem() -> None:
    rng = np.random.default_rng(0)
    yes = expit(4 * rng.normal(size=(300, 1)))
    y = (rng.random(300) < expit(np.log(yes / (1 - yes))[:, 0] / 2)).astype(int)
    one, two = temperature_of(yes, y), temperature_of(np.hstack([1 - yes, yes]), y)
    label = temperature_of(yes, y[:, None].astype(float), each=True)
    assert one.temperature == pytest.approx(two.temperature, rel=1e-9) == pytest.approx(label.temperature, rel=1e-9)
    wide, found = calibrated(np.hstack([1 - yes, yes]), 1.7), calibrated(yes, 1.7)
    np.testing.assert_allclose(found, wide[:, 1:], rtol=1e-12)
    inner = (yes > 1e-5) & (yes < 1 - 1e-5)
    np.testing.assert_allclose(found[inner], expit(np.log(yes / (1 - yes)) / 1.7)[inner], rtol=1e-9)
    assert (np.argsort(found[:, 0][inner[:, 0]]) == np.argsort(yes[:, 0][inner[:, 0]])).all()


def test_labels_that_are_not_known_count_nowhere() -> None:
    rng = np.random.default_rng(0)
    given = expit(3 * rng.normal(size=(200, 2)))
    y = (rng.random((200, 2)) < 0.5 * given + 0.25).astype(float)
    y[:50, 0], y[50:100] = np.nan, np.nan
    found = temperature_of(given, y, each=True)
    assert found.rows == 150
    without = temperature_of(np.delete(given, slice(50, 100), 0), np.delete(y, slice(50, 100), 0), each=True)
    assert (found.temperature, found.after) == pytest.approx((without.temperature, without.after), rel=1e-9)
    assert found.after == label_loss(y).mean(calibrated(given, found.temperature, each=True)) < found.before


def test_it_says_where_nothing_can_be_fitted() -> None:
    true, y = drawn(60, 3)
    few = temperature_of(true[:49], y[:49])
    assert (few.temperature, few.before) == (1.0, few.after) and "49 rows have a known class, fewer than 50" in few.note
    unknown = temperature_of(true, np.where(np.arange(60) < 20, -1, y))
    assert unknown.rows == 40 and unknown.temperature == 1.0
    assert "all 60 rows have one class" in temperature_of(true, np.zeros(60, int)).note
    nothing = temperature_of(true, np.full(60, -1))
    assert nothing.rows == 0 and math.isnan(nothing.before)
    right = temperature_of(0.8 * np.eye(3)[y] + 0.2 / 3, y)
    assert right.temperature == RANGE[0] and "next to all of these rows are predicted right" in right.note
    wrong = temperature_of(0.8 * np.eye(3)[(y + 1) % 3] + 0.2 / 3, y)
    assert wrong.temperature == RANGE[1] and "next to nothing" in wrong.note and wrong.after < wrong.before


def test_zeros_are_no_certainty_and_one_changes_nothing() -> None:
    given = np.array([[0.0, 1.0], [0.3, 0.7]])
    assert calibrated(given, 1.0).tobytes() == given.tobytes()
    warm = calibrated(given, 2.0)
    assert 0 < warm[0, 0] < 0.01 and np.allclose(warm.sum(1), 1)
    rows = np.tile(given, (50, 1))
    assert math.isfinite(temperature_of(rows, np.tile([0, 1], 50)).after)


def test_what_is_no_probability_is_refused() -> None:
    for given, said in (
        (np.array([[0.5, 1.5]]), "found values from 0.5 to 1.5"),
        (np.array([[0.5, 0.3]]), "sum to 1 in each row"),
        (np.array([[np.nan, 1.0]]), "expected finite"),
    ):
        with pytest.raises(DataError, match=said):
            calibrated(given, 2.0)
    with pytest.raises(DataError, match="temperature: expected"):
        calibrated(np.array([[0.5, 0.5]]), 0.0)
    with pytest.raises(DataError, match="expected 1 classes"):
        temperature_of(np.array([[0.5, 0.5]]), np.array([0, 1]))
