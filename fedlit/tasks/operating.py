"""Operating thresholds of a classifier of two classes: chosen on some rows, scored on others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from fedlit.errors import expect
from fedlit.types import Bools, Floats, PredictionArray

YOUDEN = "youden"
ThresholdRule = Literal["youden"] | dict[str, float]
"""How a threshold is chosen: by Youden's index, or by the value that sensitivity or specificity
must reach."""
Weights = Floats | None

_REACHED = ("sensitivity", "specificity")
_ROUNDING = 1e-12


def check_rule(rule: object, key: str) -> None:
    """Refuse what is no rule for a threshold.

    Raises:
        ConfigError: it is neither ``youden`` nor a sensitivity or specificity in (0, 1].
    """
    valid = rule == YOUDEN
    if isinstance(rule, Mapping) and len(rule) == 1:
        ((measure, value),) = rule.items()
        valid = measure in _REACHED and type(value) in (int, float) and 0 < value <= 1
    expected = (
        f"{YOUDEN}, or {{specificity: 0.9}} or {{sensitivity: 0.9}} with a share above 0 "
        "and up to 1"
    )
    expect(valid, key, expected, rule)


def rule_text(rule: ThresholdRule) -> str:
    """Return a rule in words.

    Example:
        >>> rule_text("youden"), rule_text({"specificity": 0.9})
        ("Youden's index", 'specificity of at least 0.9')
    """
    if isinstance(rule, str):
        return "Youden's index"
    ((measure, value),) = rule.items()
    return f"{measure} of at least {value:g}"


def choose_threshold(
    positive: Bools, probability: PredictionArray, rule: ThresholdRule, weight: Weights = None
) -> float | None:
    """Return the threshold from which on a row counts as positive.

    Youden's index is sensitivity + specificity − 1. With a specificity given, sensitivity is as
    high as possible, and the other way round. Among equal choices, the highest threshold is taken.
    It lies half-way between two neighbouring probabilities, so that rounding moves no row across
    it.

    Args:
        positive: (n,) whether each row is of the positive class.
        probability: (n,) the predicted probability of the positive class.
        rule: the rule.
        weight: (n,) how much each row counts; None if all count alike.

    Returns:
        The threshold; None if one class has no rows, or if no threshold at which some row counts as
        positive reaches what the rule asks for.

    Example:
        >>> positive = np.array([False, False, True, False, True])
        >>> probability = np.array([0.1, 0.2, 0.4, 0.6, 0.8])
        >>> choose_threshold(positive, probability, {"specificity": 1.0})
        0.7
    """
    from sklearn.metrics import roc_curve

    if positive.all() or not positive.any():
        return None
    false_rate, true_rate, scores = roc_curve(
        positive, probability.astype(np.float64), sample_weight=weight, drop_intermediate=False
    )
    # its first point, at which no row counts as positive, is no threshold
    reached = {"sensitivity": true_rate[1:], "specificity": 1 - false_rate[1:]}
    scores = scores[1:]
    if isinstance(rule, str):
        merit = reached["sensitivity"] + reached["specificity"]
    else:
        ((measure, least),) = rule.items()
        opposite = _REACHED[1 - _REACHED.index(measure)]
        merit = np.where(reached[measure] >= least - _ROUNDING, reached[opposite], -math.inf)
    best = merit.max()
    if best == -math.inf:
        return None
    position = int(np.argmax(merit >= best - _ROUNDING))
    below = 0.0
    if position + 1 < len(scores):
        below = scores[position + 1]
    return float((scores[position] + below) / 2)


def scores_at(positive: Bools, predicted: Bools, weight: Weights = None) -> dict[str, float]:
    """Return the scores of predicted classes, and the numbers of rows behind them; NaN if a score
    is undefined.

    Args:
        positive: (n,) whether each row is of the positive class.
        predicted: (n,) whether each row is predicted to be.
        weight: (n,) how much each row counts in the scores; None if all count alike.

    Example:
        >>> found = scores_at(np.array([True, True, False, False]), np.array([True, False, False, False]))
        >>> found["sensitivity"], found["specificity"], found["ppv"], round(found["npv"], 3), found["true_positives"]
        (0.5, 1.0, 1.0, 0.667, 1)
    """
    cells = {
        "true_positives": positive & predicted,
        "false_positives": ~positive & predicted,
        "true_negatives": ~positive & ~predicted,
        "false_negatives": positive & ~predicted,
    }
    counts = {name: int(cell.sum()) for name, cell in cells.items()}
    total: Mapping[str, float] = counts
    if weight is not None:
        total = {name: float(weight[cell].sum()) for name, cell in cells.items()}
    sensitivity = _share(total["true_positives"], total["false_negatives"])
    specificity = _share(total["true_negatives"], total["false_positives"])
    return {
        "sensitivity": sensitivity,
        "specificity": specificity,
        "ppv": _share(total["true_positives"], total["false_positives"]),
        "npv": _share(total["true_negatives"], total["false_negatives"]),
        "balanced_accuracy": (sensitivity + specificity) / 2,
        **counts,
    }


def _share(right: float, wrong: float) -> float:
    if right + wrong == 0:
        return math.nan
    return right / (right + wrong)
