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
"""The variance of the logistic distribution, which is the residual variance of log odds."""


def effects_frame(rows_by_client: Mapping[str, Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
    """Return the effects that clients report of their mixed models, with shared parts only once.
    The part of a row is ``effect`` (shared), ``variance`` (of sites, and ``residual``) or ``own``
    (a client's).

    Args:
        rows_by_client: maps each client to rows with ``output``, ``part``, ``column``, ``value``
            and ``error`` (standard error, or None).
    """
    rows = []
    for client, client_rows in rows_by_client.items():
        for row in client_rows:
            rows.append({"client": client if row["part"] == "own" else "", **row})
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    return frame.drop_duplicates(["client", "output", "part", "column"], ignore_index=True)


def intraclass(effects: pd.DataFrame) -> dict[str, float]:
    """Map each output to the share of the variance that lies between sites (intraclass
    correlation): the variance of sites' intercepts relative to its sum with the residual variance
    of a number, or with π²/3 for log odds. Counts have none.

    Example:
        >>> variance = {"output": "y (number)", "part": "variance", "error": None}
        >>> rows = [
        ...     {**variance, "column": "(intercept)", "value": 1.0},
        ...     {**variance, "column": "residual", "value": 3.0},
        ... ]
        >>> intraclass(effects_frame({"a": rows}))
        {'y (number)': 0.25}
    """
    variances = effects[effects["part"] == "variance"].set_index(["output", "column"])["value"]
    correlations = {}
    for output in dict.fromkeys(variances.index.get_level_values(0)):
        if not output.endswith(" (count)"):
            between = variances[output, "(intercept)"]
            within = variances[output, "residual"] if output.endswith(" (number)") else _LOGISTIC
            correlations[output] = float(between / (between + within))
    return correlations
