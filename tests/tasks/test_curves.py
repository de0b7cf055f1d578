"""Curves of predictions against scikit-learn and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, confusion_matrix, precision_score, recall_score

from fedlit.tasks.curves import at_threshold, best_threshold, binned, brier, reliability


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_brier_is_that_of_scikit_learn(classes: int) -> None:
    rng = np.random.default_rng(classes)
    probability, label = rng.dirichlet(np.ones(classes), 200), rng.integers(0, classes, 200)
    expected = brier_score_loss(label, probability, labels=range(classes), scale_by_half=classes == 2)
    assert brier(label, probability) == pytest.approx(expected, abs=1e-9)
    if classes == 2:
        assert brier(label, probability) == pytest.approx(brier_score_loss(label, probability[:, 1]), abs=1e-9)


def test_brier_of_a_label_that_nobody_knows_is_that_of_no_class() -> None:
    assert brier(np.array([-1, 0]), np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])) == pytest.approx(0.375 / 2)


def test_a_threshold_is_the_best_of_all() -> None:
    rng = np.random.default_rng(1)
    positive = rng.random(150) < 0.2
    probability = np.clip(0.3 * positive + rng.normal(0.3, 0.15, 150), 0, 1).round(2)

    def balanced(threshold: float) -> float:
        own = at_threshold(positive, probability, threshold)
        return (own["sensitivity"] + own["specificity"]) / 2

    chosen = best_threshold(positive, probability)
    every = np.arange(0, 1.001, 0.005)
    assert balanced(chosen) == pytest.approx(max(balanced(threshold) for threshold in every))
    assert balanced(chosen) > balanced(0.5)
    tied = np.array([False, True]), np.array([0.4, 0.9])
    assert best_threshold(*tied) == 0.5
    for places in ([0.6, 0.8], [0.1, 0.2]):
        assert best_threshold(np.array([False, True]), np.array(places)) == pytest.approx(np.mean(places))


def test_what_comes_of_a_threshold_is_what_scikit_learn_says() -> None:
    rng = np.random.default_rng(2)
    positive, probability = rng.random(99) < 0.4, rng.random(99).round(2)
    own, called = at_threshold(positive, probability, 0.35), probability >= 0.35
    (right, _), _ = confusion_matrix(positive, called)
    assert own["sensitivity"] == recall_score(positive, called)
    assert own["precision"] == precision_score(positive, called)
    assert own["specificity"] == right / (~positive).sum()
    assert np.isnan(at_threshold(positive, probability, 1.1)["precision"])


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
