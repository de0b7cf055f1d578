"""Effects of a mixed model: shared effects, variances between sites, and each site's random effects.
Effects of a Cox model: logarithms of hazard ratios, with a test of whether they change over time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

_COLUMNS = ["client", "output", "part", "column", "value", "error"]
ROBUST = "robust"
"""The part whose rows have the robust errors of a Cox model's effects."""
ALL = "(all)"
"""The column under which a test of all columns together stands."""
_Z = 1.96
_LOGISTIC = math.pi**2 / 3
"""The variance of the logistic distribution, which is the residual variance of log odds."""


def effects_frame(rows_by_client: Mapping[str, Iterable[Mapping[str, Any]]]) -> pd.DataFrame:
    """Return the effects that clients report of their models, with shared parts only once. The part
    of a row is ``effect`` (shared) or ``own`` (a client's); of a mixed model ``variance`` (of
    sites, and ``residual``); of a Cox model ``robust`` (the effect again, with its robust error) or
    ``trend`` (χ² of the test of proportional hazards, with the degrees of freedom as the error).

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


def hazard_ratios(effects: pd.DataFrame, robust: pd.DataFrame, trend: pd.DataFrame) -> pd.DataFrame:
    """Return the hazard ratios of a Cox model with 95 % intervals (Wald's).

    Args:
        effects: the rows of ``effects.csv`` with the part ``effect``.
        robust: those with the part ``robust``, in the same order.
        trend: those with the part ``trend``.

    Returns:
        A row for each column: ``ratio``, ``low``, ``high``, ``robust_low``, ``robust_high``, ``p``
        (that the ratio is 1, with the robust error), ``trend_p`` (that it does not change over
        time; NaN if that cannot be tested) and the ``error`` of its logarithm, 0 if none is known.

    Example:
        >>> rows = [{"column": "age", "value": math.log(2), "error": 0.25}]
        >>> test = [{"column": "age", "value": 3.84, "error": 1.0}]
        >>> table = hazard_ratios(*map(pd.DataFrame, (rows, rows, test)))
        >>> table.round(3).loc["age", ["ratio", "low", "high", "p", "trend_p"]].tolist()
        [2.0, 1.225, 3.265, 0.006, 0.05]
    """
    from scipy.stats import chi2, norm

    values = effects["value"].to_numpy(float)
    error = effects["error"].to_numpy(float)
    wide = robust["error"].to_numpy(float)
    tests = trend.set_index("column").reindex(effects["column"])
    is_tested = tests["error"].to_numpy(float) > 0
    trend_p = chi2.sf(tests["value"].to_numpy(float), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * norm.sf(np.abs(values / wide))
    return pd.DataFrame(
        {
            "ratio": np.exp(values),
            "low": np.exp(values - _Z * error),
            "high": np.exp(values + _Z * error),
            "robust_low": np.exp(values - _Z * wide),
            "robust_high": np.exp(values + _Z * wide),
            "p": p,
            "trend_p": np.where(is_tested, trend_p, np.nan),
            "error": error,
        },
        index=pd.Index(effects["column"], name="column"),
    )
