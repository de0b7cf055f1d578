"""One honest sentence for a client: join or not, what it brings, and if nothing, why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedlit.statistics import ALONE, FEW, JOIN, MATTERS, SAME, TITLES, Interval, verdict
from fedlit.tasks import Score

__all__ = ["LITTLE_IN_COMMON", "Common", "Verdict", "verdict_of"]

LITTLE_IN_COMMON = 0.25
"""With fewer of its columns in common than this part, a client has little to learn of the others."""

_NAMED = 4  # columns that are named one by one


@dataclass(frozen=True)
class Common:
    """What a client has in common with others that it could join, by name.

    Attributes:
        columns: its columns that another client has as well.
        of_columns: how many columns it has.
        classes: how many of its classes another client has as well.
        of_classes: how many classes it has; 0 where a number is predicted.
        rows: its own rows, those for training and validation.
    """

    columns: Sequence[str]
    of_columns: int
    classes: int
    of_classes: int
    rows: int

    @property
    def few(self) -> bool:
        """Whether it is too little to expect a gain: few columns, or no class."""
        return len(self.columns) < LITTLE_IN_COMMON * self.of_columns or (self.of_classes > 0 and not self.classes)


@dataclass(frozen=True)
class Verdict:
    """A client's answer.

    Attributes:
        kind: of :data:`fedlit.statistics.TITLES`.
        sentence: its words, and why; without the client's name and a full stop.
    """

    kind: str
    sentence: str


def verdict_of(
    score: Score,
    lift: float,
    interval: Interval,
    alone: float,
    common: Common,
    parts: Sequence[str] = (),
    matters: float = MATTERS,
) -> Verdict:
    """What to tell a client, by :func:`fedlit.statistics.verdict`.

    Args:
        score: by which the client judges.
        lift: by how much the mixture is better than the best alone, positive where it is, in the unit of the score
            (0.01 is a point where it is in percent). NaN where it is not defined.
        interval: 95 %, of the lift; NaN where there is none.
        alone: the score of the best alone.
        common: what it shares with others.
        parts: the federated parts of the mixture, as people read them.
        matters: the smallest lift that matters (see :meth:`fedlit.tasks.Score.least_lift`).

    Example:
        >>> auroc, common = Score("auroc", "AUROC"), Common(["age", "sex"], 14, 2, 2, 303)
        >>> verdict_of(auroc, 0.015, (0.009, 0.021), 0.9, common, ["the forest"]).sentence
        'Join with the forest: +1.50 points of AUROC (95 % interval +0.90 to +2.10)'
        >>> verdict_of(auroc, 0.0, (-0.004, 0.004), 0.9, common, ["the forest"]).kind
        'no difference'
    """
    unit = "points of" if score.percent else "in"
    way = "" if score.higher_is_better else ", + for lower and better"
    told = f"{score.text(lift, signed=True)} {unit} {score.label}{way}"
    if math.isfinite(sum(interval)):
        ends = (score.text(own, signed=True) for own in interval)
        told += f" (95 % interval {' to '.join(ends)})"
    shared = f"; {_shared(common)}" if common.few else ""
    if not math.isfinite(lift):
        return Verdict(FEW, f"{TITLES[FEW]}: {score.label} is not defined on these rows; give rows of each class")
    if not parts:
        why = "no federated part was better on its held-out rows, so it stays with its own models"
        return Verdict(SAME, f"{TITLES[SAME]}: {why}{shared}")
    kind = verdict(lift, interval, score.least_lift(matters, alone))
    title = f"{TITLES[kind]} with {_listed(parts)}" if kind == JOIN else TITLES[kind]
    why = {
        JOIN: "",
        ALONE: "; its own models are better",
        SAME: shared,
        FEW: f"; with {common.rows:,} rows it cannot be told from no lift{shared}",
    }[kind]
    return Verdict(kind, f"{title}: {told}{why}")


def _shared(common: Common) -> str:
    """Why little is in common."""
    count, columns = len(common.columns), f"{len(common.columns)} of {common.of_columns} columns"
    if not count:
        return "no column is shared"
    if count >= LITTLE_IN_COMMON * common.of_columns:
        return "no class is shared"
    if count > _NAMED:
        return f"only {columns} are shared"
    return f"only {_listed(common.columns)} {'is' if count == 1 else 'are'} shared ({columns})"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
