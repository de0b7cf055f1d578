"""The uncertainty of scores and of lifts: intervals that state their source, and paired tests.

A lift is measured in one of two ways, which return the same type. :func:`over_rows` compares two
predictions of the same rows by a bootstrap over rows. :func:`over_seeds` compares methods that were
trained with several seeds, by designs that differ in their source of error:

- *fixed* test rows: seeds differ in initial values and the order of rows alone. Their spread is
  training noise; what other test rows would have given is estimated by a bootstrap over rows. The
  interval that verdicts use adds both variances.
- splits drawn anew by each seed: seeds share most of their rows and so are not independent. The
  variance of the mean is corrected after Nadeau and Bengio (2003), "Inference for the
  Generalization Error", Machine Learning 52, Eq. 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.95
MIN_SEEDS_FOR_TEST = 8

Interval = tuple[float, float]
_NONE: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class Estimate:
    """A score or a lift, with its uncertainty.

    Attributes:
        n: the number of seeds, or of rows.
        mean: the mean over seeds, or the value on these rows.
        sd: the sample standard deviation over seeds; NaN for one seed, and for rows.
        interval: the 95 % interval that verdicts use.
        seeds: the interval that comes from seeds alone: training noise, or re-splits.
        rows: the interval that comes from rows alone: bootstrap percentiles. NaN if there is no
            bootstrap.
        over: what ``n`` counts.
        optimism: by how much the value on these rows was larger than ``mean``, because the same
            rows chose and judged.
    """

    n: int
    mean: float
    sd: float
    interval: Interval
    seeds: Interval
    rows: Interval = _NONE
    over: Literal["seeds", "rows"] = "seeds"
    optimism: float = 0.0


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


def over_seeds(
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
    training = math.nan
    if n > 1:
        training = sd**2 / n
    sampling = math.nan
    if len(drawn) > 1:
        sampling = float(drawn.var(ddof=1))
    if not math.isfinite(training + sampling):
        return Estimate(n, mean, sd, _NONE, seeds, rows)
    degrees = math.inf
    if training:
        degrees = (training + sampling) ** 2 / (training**2 / (n - 1))
    parts = [
        _around(mean, math.sqrt(training + sampling), degrees),
        _around(mean, math.sqrt(training), n - 1),
        _around(mean, math.sqrt(sampling), math.inf),
    ]
    widest = max(parts, key=lambda interval: interval[1] - interval[0])
    if not sampling:
        widest = _NONE
    return Estimate(n, mean, sd, widest, seeds, rows)


Counted = Callable[[NDArray[np.int64] | None], float]
"""A score as a function of how often each row counts, (n,); once if None."""


def over_rows(
    first: Counted,
    second: Counted,
    rows: int,
    gain: Callable[[float, float], float],
    *,
    honest: float | None = None,
    resamples: int = 400,
    seed: int = 0,
) -> Estimate:
    """Return by how much one prediction of rows is better than another, with the 95 % interval of a
    paired bootstrap over rows.

    The interval covers other rows of the same kind, but not newly trained models. Draws in which a
    score is undefined are left out.

    Args:
        first: the score of one prediction.
        second: the score of the other prediction.
        rows: the number of rows, n.
        gain: returns by how much the first of two scores is better.
        honest: the same difference where other rows chose the predictions than judged them; the
            result is corrected by the difference to it, the optimism. None or not finite if there
            is nothing to correct.
        resamples: the number of draws.
        seed: the seed of the draws, which depend only on it and on the number of rows.

    Example:
        >>> right, wrong = np.ones(50), np.r_[np.zeros(10), np.ones(40)]
        >>> def accuracy(hits): return lambda counts: float(np.average(hits, weights=counts))
        >>> lift = over_rows(accuracy(right), accuracy(wrong), 50, lambda first, second: first - second)
        >>> low, high = lift.interval  # the closed form of the error is √(0.2 · 0.8 / 50) = 0.057
        >>> round(lift.mean, 2), 0 < low < lift.mean < high < 0.35
        (0.2, True)
    """
    rng = np.random.default_rng([seed, rows])
    gains = list[float]()
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, rows, rows), minlength=rows)
        gains.append(float(gain(first(counts), second(counts))))
    low, high = rows_interval(gains)
    value = float(gain(first(None), second(None)))
    optimism = 0.0
    if honest is not None and math.isfinite(value - honest):
        optimism = value - honest
    interval = (low - optimism, high - optimism)
    return Estimate(
        rows, value - optimism, math.nan, interval, _NONE, interval, over="rows", optimism=optimism
    )


def wilcoxon(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test: NaN for fewer than 8 seeds, 1 if
    no pair differs.
    """
    from scipy import stats

    array = np.asarray(differences, float)
    if len(array) < MIN_SEEDS_FOR_TEST or not np.isfinite(array).all():
        return math.nan
    if not array.any():
        return 1.0
    return float(stats.wilcoxon(array).pvalue)


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
