"""The columns of the frames in which predictions are written, see :meth:`fedlit.tasks.base.Task.frame`."""

from __future__ import annotations

from collections.abc import Hashable

WEIGHT = "weight"
"""The column of predictions that says how much each row counts."""


def of_people(column: Hashable) -> bool:
    """Return whether a column of :meth:`Task.frame` holds labels or numbers in the user's spelling,
    not probabilities.

    Example:
        >>> [of_people(column) for column in ("row", "target", "predicted_died", "probability_died")]
        [False, True, True, False]
    """
    return is_target(column) or str(column).partition("_")[0] == "predicted"


def is_target(column: Hashable) -> bool:
    """Return whether a column of :meth:`Task.frame` holds the target."""
    return str(column).partition("_")[0] == "target"
