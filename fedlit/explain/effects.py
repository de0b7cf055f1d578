"""Effects of a mixed model: shared effects, variances between sites, and each site's random
effects.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

_COLUMNS = ["client", "output", "part", "column", "value", "error"]
_LOGISTIC = math.pi**2 / 3
"""Variance of the logistic distribution: the residual one on the scale of log odds."""


def effects_frame(told: Mapping[str, Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
    """Return the effects that clients report of their mixed models, with shared parts only once.
    The part of a row is ``effect`` (shared), ``variance`` (of sites, and ``residual``) or ``own``
    (a client's).

    Args:
        told: maps each client to rows with ``output``, ``part``, ``column``, ``value`` and
            ``error`` (standard error, or None).
    """
    rows = [
        {"client": client if row["part"] == "own" else "", **row}
        for client, own in told.items()
        for row in own
    ]
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.drop_duplicates(["client", "output", "part", "column"], ignore_index=True)


def intraclass(effects: pd.DataFrame) -> dict[str, float]:
    """Map each output to the share of the variance that lies between sites (intraclass
    correlation): the variance of sites' intercepts relative to its sum with the residual variance
    of a number, or with π²/3 for log odds. Counts have none.

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
