"""How scores and differences of scores are shown: units, headings and directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedlit.tasks.scores import Score


def drawn(score: Score, value: Any) -> Any:
    """Return one or several values on the scale that is shown to the user."""
    return 100 * value if score.percent else value


def heading(score: Score) -> str:
    """Return the heading for results of a score.

    Example:
        >>> heading(Score("mae", "MAE", higher_is_better=False, percent=False))
        'MAE (lower is better)'
    """
    return score.label if score.higher_is_better else f"{score.label} (lower is better)"


def lift_unit(score: Score) -> str:
    """Return the unit of a lift.

    Example:
        >>> lift_unit(Score("auroc", "AUROC")), lift_unit(Score("mae", "MAE", higher_is_better=False, percent=False))
        ('percentage points', 'by how much lower')
    """
    unit = "percentage points" if score.percent else ""
    direction = "" if score.higher_is_better else "by how much lower"
    return ", ".join(part for part in (unit, direction) if part) or "by how much higher"


def points(score: Score) -> str:
    """Return the unit to print after a difference."""
    return " points" if score.percent else ""


def in_unit(score: Score) -> str:
    """Return the label of an axis, or of a table of the score's values.

    Example:
        >>> in_unit(Score("auroc", "AUROC")), in_unit(Score("mae", "MAE", higher_is_better=False, percent=False))
        ('AUROC, %', 'MAE, lower is better')
    """
    unit = ", %" if score.percent else ""
    direction = "" if score.higher_is_better else ", lower is better"
    return f"{score.label}{unit}{direction}"


def in_percent(scores: Sequence[Score]) -> str:
    """Describe which of the scores are in percent.

    Example:
        >>> in_percent([Score("auroc", "AUROC"), Score("rmse", "RMSE", percent=False)])
        'in % (but RMSE)'
    """
    exceptions = [score.label for score in scores if not score.percent]
    if len(exceptions) == len(scores):
        return ""
    return f"in % (but {', '.join(exceptions)})" if exceptions else "in %"


def choice_words(scores: Sequence[Score]) -> str:
    """Describe by what clients choose on validation rows.

    Example:
        >>> choice_words([Score("auroc", "AUROC")])
        'the largest AUROC'
    """
    return " or ".join(
        f"the {'largest' if score.higher_is_better else 'smallest'} {score.label}"
        for score in scores
    )
