"""Effects of a mixed model: what all share, how much sites differ, and each site's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

__all__ = ["effects_frame", "intraclass"]

_COLUMNS = ["client", "output", "part", "column", "value", "error"]
_LOGISTIC = math.pi**2 / 3
"""Variance of the logistic distribution: the residual one on the scale of log odds."""


def effects_frame(told: Mapping[str, Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
    """What clients tell of their mixed models, shared parts once: rows of part ``effect`` (shared), ``variance`` (of
    sites, and ``residual``) and ``own`` (a client's).

    Args:
        told: client → rows with ``output``, ``part``, ``column``, ``value`` and ``error`` (standard error, or None).
    """
    rows = [{"client": client if row["part"] == "own" else "", **row} for client, own in told.items() for row in own]
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.drop_duplicates(["client", "output", "part", "column"], ignore_index=True)


def intraclass(effects: pd.DataFrame) -> dict[str, float]:
    """Output → the share of the variance that lies between sites (intraclass correlation): of their intercepts, against
    the residual variance of a number, or π²/3 of log odds; none of a count.

    Example:
        >>> rows = [dict(output="y (number)", part="variance", column=own, value=value, error=None)
        ...         for own, value in (("(intercept)", 1.0), ("residual", 3.0))]
        >>> intraclass(effects_frame({"a": rows}))
        {'y (number)': 0.25}
    """
    variances = effects[effects["part"] == "variance"].set_index(["output", "column"])["value"]
    found = {}
    for output in dict.fromkeys(variances.index.get_level_values(0)):
        if not output.endswith(" (count)"):
            between = variances[output, "(intercept)"]
            within = variances[output, "residual"] if output.endswith(" (number)") else _LOGISTIC
            found[output] = float(between / (between + within))
    return found
