"""Which federated parts enter a client's mixture: those that do not make its validation rows worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedlit.errors import DataError
from fedlit.mix.losses import RowLoss
from fedlit.mix.simplex import stacked
from fedlit.mix.weights import How, mixed_parts, weights_of
from fedlit.statistics import Interval, rows_interval

__all__ = ["Admission", "Gain", "Tried", "admitted", "gain_interval"]

Score = Callable[[np.ndarray], float]
ByCounts = Callable[[np.ndarray | None], float]


@dataclass(frozen=True)
class Tried:
    """What became of one part.

    Attributes:
        part: its name.
        own: whether it is one of the client's own.
        alone: the score of the part by itself.
        change: by how much the score became better when it was added to what was in the mixture then; of a part that
            stayed out, to all that is in the mixture. NaN of own parts, and where no score is defined.
        admitted: whether it is in the mixture.
        weight: of the part in the mixture; 0 where it is not in it.
    """

    part: str
    own: bool
    alone: float
    change: float
    admitted: bool
    weight: float


@dataclass(frozen=True)
class Admission:
    """A client's mixture, and how it came about.

    Attributes:
        weights: part → weight, of the parts in the mixture.
        score: of the mixture.
        own_score: of the own parts that it began with; NaN without own parts.
        tried: all parts: own ones, then federated ones in the order in which they entered, then those that stayed out,
            the least harmful first.
        note: what a person should know, or empty.
    """

    weights: dict[str, float]
    score: float
    own_score: float
    tried: tuple[Tried, ...]
    note: str = ""


def admitted(
    parts: Mapping[str, np.ndarray],
    own: Collection[str],
    score: Score,
    higher_is_better: bool,
    how: How = "equal",
    loss: RowLoss | None = None,
    shrink: float = 100,
    least_gain: float = 0.0,
) -> Admission:
    """The mixture of a client's own parts and of those federated ones that do not make it worse.

    It begins with what the client would take alone: all its own parts, or the one of them that is better than all
    together. Of the parts that are left, the one that gives the best score enters (of equals the first by name), as
    long as the score does not fall; weights are set anew for each mixture. Scores decide
    here, not chance: :func:`gain_interval` says whether a gain is more than noise. Where the score is not defined on
    these rows nothing can be judged, and federated parts stay out. A client without own parts begins with the best
    federated one.

    Args:
        parts: predictions (n, width) by part, of the same validation or out-of-fold rows.
        own: names of the client's own parts.
        score: of predictions, for instance :class:`~fedlit.mix.losses.Judge`.
        higher_is_better: whether more of the score is better.
        how: see :func:`~fedlit.mix.weights.weights_of`, as ``loss`` and ``shrink``.
        loss: of each row.
        shrink: pseudo-rows of each part.
        least_gain: what a federated part must gain to enter, in the unit of the score; below 0, what it may cost.

    Raises:
        DataError: parts that do not fit.

    Example:
        >>> y = np.array([0.0, 1.0, 2.0])
        >>> parts = {"own": y + 1.0, "joint": y - 0.5, "far": y + 9.0}
        >>> parts = {name: values[:, None] for name, values in parts.items()}
        >>> found = admitted(parts, ["own"], lambda p: float(np.abs(p[:, 0] - y).mean()), higher_is_better=False)
        >>> found.weights, found.own_score, found.score
        ({'own': 0.5, 'joint': 0.5}, 1.0, 0.25)
        >>> for part in found.tried:
        ...     print(part.part, part.alone, part.change, part.admitted)
        own 1.0 nan True
        joint 0.5 0.75 True
        far 9.0 -2.9166666666666665 False
    """
    stacked(parts)
    sign = 1.0 if higher_is_better else -1.0
    alone = {name: float(score(np.asarray(parts[name], float))) for name in sorted(parts)}
    inside = [name for name in alone if name in own]
    left = [name for name in alone if name not in own]

    def of(names: list[str]) -> tuple[dict[str, float], float]:
        weights = weights_of(how, {name: parts[name] for name in names}, own, loss, shrink)
        return weights, float(score(mixed_parts(parts, weights)))

    change, note = dict.fromkeys(alone, math.nan), ""
    if not inside:
        first = min(left, key=lambda name: (-sign * alone[name] if not math.isnan(alone[name]) else math.inf, name))
        inside, left = [first], [name for name in left if name != first]
        note = f"there is no own part: {first!r}, the best federated one by itself, is what others are compared with"
    if len(inside) > 1:  # what the client would take alone: all its parts, or one of them
        scored: dict[tuple[str, ...], float] = {
            (name,): sign * alone[name] for name in inside if not math.isnan(alone[name])
        }
        together, (_, all_own) = tuple(inside), of(inside)
        best_one = max(scored, key=lambda names: scored[names], default=together)
        if best_one != together and scored[best_one] > sign * all_own:
            left = [name for name in inside if name not in best_one] + left
            inside = list(best_one)
    weights, now = of(inside)
    own_score = now if inside[0] in own else math.nan
    if left and math.isnan(now):
        note = (
            f"the score is not defined on these {len(next(iter(parts.values()))):,} rows: federated parts could not be "
            f"judged and stay out ({', '.join(left)}); give validation rows of each class"
        )
    while left:
        gained = {name: sign * (of([*inside, name])[1] - now) for name in left}
        change |= gained
        best = max(left, key=lambda name: -math.inf if math.isnan(gained[name]) else gained[name])
        if not gained[best] >= least_gain:
            break
        inside, left = [*inside, best], [name for name in left if name != best]
        weights, now = of(inside)
    left.sort(key=lambda name: (math.inf if math.isnan(change[name]) else -change[name], name))
    tried = [
        Tried(name, name in own, alone[name], change[name], name in weights, weights.get(name, 0.0))
        for name in [*inside, *left]
    ]
    return Admission(weights, now, own_score, tuple(tried), note)


@dataclass(frozen=True)
class Gain:
    """By how much one prediction of the same rows is better than another, and how sure that is.

    Attributes:
        gain: on all rows, positive where the first is better; NaN where a score is not defined.
        error: its standard error: the standard deviation over resampled rows; NaN where too few could be scored.
        interval: percentiles of the resampled gains that hold 95 %.
        resamples: how many could be scored.
    """

    gain: float
    error: float
    interval: Interval
    resamples: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0: the gain, or the loss, is more than the noise of these rows."""
        low, high = self.interval
        return low > 0 or high < 0


def gain_interval(
    first: ByCounts, second: ByCounts, rows: int, higher_is_better: bool, resamples: int = 400, seed: int = 0
) -> Gain:
    """A paired bootstrap over rows: both predictions are scored on the same rows, drawn with replacement.

    It speaks of other rows of the same kind, not of models trained anew; where the rows chose the first, it is too
    hopeful.

    Args:
        first: the score of one prediction as a function of how often each row counts, (n,) int64, or None for once;
            for instance :meth:`Judge.by_counts <fedlit.mix.losses.Judge.by_counts>`.
        second: that of the other.
        rows: n.
        higher_is_better: whether more of the score is better.
        resamples: how many draws; those in which a score is not defined are left out.
        seed: of the draws, which depend on it and on the number of rows alone.

    Example:
        >>> right, wrong = np.ones(50), np.r_[np.zeros(10), np.ones(40)]
        >>> def score(hits): return lambda counts: float(np.average(hits, weights=counts))
        >>> found = gain_interval(score(right), score(wrong), rows=50, higher_is_better=True)
        >>> found.gain, round(found.error, 2), found.clear  # the closed form is √(0.2 · 0.8 / 50) = 0.057
        (0.19999999999999996, 0.06, True)
    """
    if rows < 1:
        raise DataError("gain: expected at least one row, found none; give validation rows")
    sign = 1.0 if higher_is_better else -1.0
    rng = np.random.default_rng([seed, rows])
    gains = []
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, rows, rows), minlength=rows)
        gains.append(sign * (first(counts) - second(counts)))
    known = np.array([own for own in gains if math.isfinite(own)])
    error = float(known.std(ddof=1)) if len(known) > 1 else math.nan
    return Gain(sign * (first(None) - second(None)), error, rows_interval(known), len(known))
