"""The uncertainty of differences between methods: intervals that state their source, and paired
tests.

There are two designs, which differ in their source of error:

- *fixed* test rows: seeds differ in initial values and the order of rows alone. Their spread is
  training noise; what other test rows would have given is estimated by a bootstrap over rows. The
  interval that verdicts use adds both variances.
- splits drawn anew by each seed: seeds share most of their rows and so are not independent. The
  variance of the mean is corrected after Nadeau and Bengio (2003), "Inference for the
  Generalization Error", Machine Learning 52, Eq. 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
MIN_SEEDS_FOR_TEST = 8

MIN_SEEDS = 3
"""With fewer seeds there is no verdict."""
BLOCKED = "blocked"
"""In place of a verdict, where a finding about the tables has to be settled first."""
MATTERS = 0.5
"""The smallest difference that matters where nothing else is said: percentage points, or percent of
a score that has another unit."""
JOIN = "join"
ALONE = "stay alone"
SAME = "no difference"
FEW = "not enough data"
TITLES = {
    JOIN: "Join",
    ALONE: "Stay alone",
    SAME: "No difference that matters",
    FEW: "Not enough data",
}
"""Verdict → its words."""
Interval = tuple[float, float]
_NONE: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, with its uncertainty.

    Attributes:
        n: the number of seeds.
        mean: the mean over seeds.
        sd: the sample standard deviation over seeds; NaN for one seed.
        interval: the 95 % interval that verdicts use.
        seeds: the interval that comes from seeds alone: training noise, or re-splits.
        rows: the interval that comes from the test rows alone: bootstrap percentiles. NaN if there
            is no bootstrap.
    """

    n: int
    mean: float
    sd: float
    interval: Interval
    seeds: Interval
    rows: Interval = _NONE


def _around(mean: float, error: float, degrees: float) -> Interval:
    from scipy import special  # not before: whoever checks a study's file needs none of it

    # what stats.t.ppf computes, without its checks of arguments: a report asks thousands of times
    reach = float(special.stdtrit(degrees, (1 + LEVEL) / 2)) * error
    return mean - reach, mean + reach


def corrected_interval(values: ArrayLike, ratio: float = 0.0) -> Interval:
    """Return the corrected resampled t interval of Nadeau and Bengio (2003): the variance of the
    mean of n random re-splits is (1/n + test rows / training rows) · s², with n − 1 degrees of
    freedom.

    Args:
        values: (n,) one value for each re-split; differences of two methods for a paired interval.
        ratio: test rows / training rows; 0 gives Student's t interval for independent values.

    Returns:
        NaN for fewer than two values, and if all are equal, because these do not show how far
        others would vary.

    Example:
        >>> low, high = corrected_interval([1.0, 2.0, 3.0])
        >>> round(low, 4), round(high, 4)
        (-0.4841, 4.4841)
    """
    array = np.asarray(values, float)
    if len(array) < 2 or not np.isfinite(array).all() or (array == array[0]).all():
        return _NONE
    return _around(
        float(array.mean()),
        float(array.std(ddof=1)) * math.sqrt(1 / len(array) + ratio),
        len(array) - 1,
    )


def rows_interval(resamples: ArrayLike) -> Interval:
    """Return the percentile interval of bootstrap resamples."""
    drawn = np.asarray(resamples, float)
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 2:
        return _NONE
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def estimate(
    values: ArrayLike, *, ratio: float | None = None, resamples: ArrayLike | None = None
) -> Estimate:
    """Return the mean over seeds, with its intervals.

    Args:
        values: (n,) one value for each seed: scores, or paired differences.
        ratio: test rows / training rows if each seed draws new splits; None if the test rows are
            the same.
        resamples: (B,) the same mean over seeds on resampled test rows, if the test rows are the
            same for all seeds.

    With fixed rows and resamples, the variances of both are added. The degrees of freedom are those
    of Welch and Satterthwaite, with infinite degrees for the bootstrap. This approximation is too
    optimistic for a few seeds, so the interval is never narrower than either part.
    """
    array = np.asarray(values, float)
    n = len(array)
    mean = float(array.mean()) if n else math.nan
    sd = float(array.std(ddof=1)) if n > 1 else math.nan
    if ratio is not None:
        interval = corrected_interval(array, ratio)
        return Estimate(n, mean, sd, interval, interval)
    seeds = corrected_interval(array)
    if resamples is None:
        return Estimate(n, mean, sd, seeds, seeds)
    drawn: NDArray[np.float64] = np.asarray(resamples, float)
    rows = rows_interval(drawn)
    drawn = drawn[np.isfinite(drawn)]
    training = sd**2 / n if n > 1 else math.nan
    sampling = float(drawn.var(ddof=1)) if len(drawn) > 1 else math.nan
    if not math.isfinite(training + sampling):
        return Estimate(n, mean, sd, _NONE, seeds, rows)
    degrees = (training + sampling) ** 2 / (training**2 / (n - 1)) if training else math.inf
    parts = [
        _around(mean, math.sqrt(training + sampling), degrees),
        _around(mean, math.sqrt(training), n - 1),
        _around(mean, math.sqrt(sampling), math.inf),
    ]
    widest = max(parts, key=lambda interval: interval[1] - interval[0])
    interval = widest if sampling else _NONE
    return Estimate(n, mean, sd, interval, seeds, rows)


def wilcoxon(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test: NaN for fewer than 8 seeds, 1 if
    no pair differs.
    """
    from scipy import stats

    array = np.asarray(differences, float)
    if len(array) < MIN_SEEDS_FOR_TEST or not np.isfinite(array).all():
        return math.nan
    return float(stats.wilcoxon(array).pvalue) if array.any() else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests by Holm's step-down method. NaN stays NaN and
    does not count as a test.

    Example:
        >>> holm([0.04, 0.01, math.nan])
        [0.04, 0.02, nan]
    """
    array: NDArray[np.float64] = np.asarray(p_values, float)
    order = np.argsort(np.where(np.isfinite(array), array, np.nan))[: np.isfinite(array).sum()]
    adjusted = np.full(len(array), np.nan)
    adjusted[order] = np.minimum(
        np.maximum.accumulate(array[order] * np.arange(len(order), 0, -1)), 1
    )
    return list(map(float, adjusted))


def verdict(lift: float, interval: Interval, matters: float) -> str:
    """Return the verdict on a lift: one of :data:`TITLES`.

    ``join`` and ``stay alone`` require an interval that excludes zero and a lift that matters. ``no
    difference`` means that no lift in the interval matters, or that the interval excludes zero for
    a lift too small to matter. Otherwise there is not enough data to decide.

    Args:
        lift: by how much one method is better than another.
        interval: the 95 % interval of the lift; NaN if there is none.
        matters: the smallest lift that matters, in the same unit.

    Example:
        >>> verdict(2.0, (1.0, 3.0), 0.5), verdict(-2.0, (-3.0, -1.0), 0.5)
        ('join', 'stay alone')
        >>> verdict(0.2, (0.1, 0.3), 0.5), verdict(0.1, (-0.3, 0.5), 0.5), verdict(2.0, (-1.0, 5.0), 0.5)
        ('no difference', 'no difference', 'not enough data')
    """
    low, high = interval
    if not math.isfinite(low + high):
        return FEW
    if abs(lift) < matters and (low > 0 or high < 0 or max(-low, high) <= matters):
        return SAME
    if low > 0:
        return JOIN
    return ALONE if high < 0 else FEW
