"""Operating thresholds, against scikit-learn's curve and against every threshold that there is."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import (
    balanced_accuracy_score,
    confusion_matrix,
    precision_score,
    recall_score,
    roc_curve,
)

from fedlit.errors import ConfigError
from fedlit.tasks.operating import ThresholdRule, check_rule, choose_threshold, scores_at

RNG = np.random.default_rng(5)
POSITIVE = RNG.random(200) < 0.3
# with ties
PROBABILITY = np.round(np.clip(0.3 * POSITIVE + 0.7 * RNG.random(200), 0, 1), 2).astype(np.float32)


def of(threshold: float) -> tuple[float, float]:
    """Sensitivity and specificity."""
    found = scores_at(POSITIVE, threshold <= PROBABILITY)
    return found["sensitivity"], found["specificity"]


def test_youden_is_the_largest_height_above_the_diagonal() -> None:
    false_rate, true_rate, scores = roc_curve(POSITIVE, PROBABILITY)
    place = np.argmax(true_rate - false_rate)
    found = choose_threshold(POSITIVE, PROBABILITY, "youden")
    assert found is not None and found <= scores[place]
    assert of(found) == pytest.approx((true_rate[place], 1 - false_rate[place]))


@pytest.mark.parametrize("least", [0.05, 0.5, 0.8, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("measure", ["sensitivity", "specificity"])
def test_no_threshold_that_reaches_one_has_more_of_the_other(measure: str, least: float) -> None:
    rule: ThresholdRule = {measure: least}
    found = choose_threshold(POSITIVE, PROBABILITY, rule)
    every = np.array([of(threshold) for threshold in np.unique(PROBABILITY)])
    place = ["sensitivity", "specificity"].index(measure)
    allowed = every[every[:, place] >= least]
    assert found is not None and of(found)[place] >= least
    assert of(found)[1 - place] == allowed[:, 1 - place].max()


def test_a_threshold_lies_between_probabilities() -> None:
    for rule in ("youden", {"specificity": 0.8}, {"sensitivity": 1.0}):
        found = choose_threshold(POSITIVE, PROBABILITY, rule)
        assert found is not None and np.abs(PROBABILITY - found).min() > 0.004


def test_a_share_that_rounding_misses_is_reached() -> None:
    positive = np.array([False] * 70 + [True] * 2)
    probability = np.concatenate([np.linspace(0, 0.5, 63), np.full(7, 0.8), [0.8, 0.9]])
    found = choose_threshold(positive, probability, {"specificity": 0.9})
    assert found is not None and scores_at(positive, probability >= found)["sensitivity"] == 1


def test_there_may_be_no_threshold() -> None:
    assert choose_threshold(np.ones(3, bool), np.array([0.1, 0.2, 0.3]), "youden") is None
    assert choose_threshold(np.zeros(0, bool), np.zeros(0), "youden") is None
    assert (
        choose_threshold(np.array([True, False]), np.array([0.1, 0.9]), {"specificity": 1.0})
        is None
    )


def test_scores_and_counts_are_scikit_learns() -> None:
    predicted = PROBABILITY > 0.4
    found = scores_at(POSITIVE, predicted)
    names = ("true_negatives", "false_positives", "false_negatives", "true_positives")
    assert [found[name] for name in names] == confusion_matrix(POSITIVE, predicted).ravel().tolist()
    assert found["sensitivity"] == pytest.approx(recall_score(POSITIVE, predicted))
    assert found["specificity"] == pytest.approx(recall_score(~POSITIVE, ~predicted))
    assert found["ppv"] == pytest.approx(precision_score(POSITIVE, predicted))
    assert found["npv"] == pytest.approx(precision_score(~POSITIVE, ~predicted))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(POSITIVE, predicted))
    alone = scores_at(np.zeros(3, bool), np.zeros(3, bool))
    assert (
        alone["specificity"] == 1
        and np.isnan([alone["sensitivity"], alone["ppv"], alone["balanced_accuracy"]]).all()
    )


@pytest.mark.parametrize(
    "rule",
    [
        "yuden",
        {},
        {"specificity": 0},
        {"specificity": 90},
        {"recall": 0.9},
        {"specificity": True},
        0.3,
    ],
)
def test_other_rules_are_refused(rule: Any) -> None:
    with pytest.raises(ConfigError, match=r"score\.threshold"):
        check_rule(rule, "score.threshold")
