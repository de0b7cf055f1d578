"""One honest sentence for a client: join or not, what it brings, and if nothing, why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedlit.statistics import Interval
from fedlit.tasks import Score

__all__ = ["FEW", "HARM", "JOIN", "LEVEL", "LITTLE", "NOTHING", "UNCLEAR", "UNKNOWN", "Common", "Verdict", "verdict_of"]

JOIN, LEVEL, NOTHING, HARM, UNCLEAR, UNKNOWN = "join", "level", "nothing to gain", "do not join", "unclear", "not known"

FEW = 0.25
"""With fewer of its columns in common than this part, a client has little to learn of the others."""

LITTLE = 0.002
"""A lift is little below this: of scores in percent 0.2 points, of others this part of what the client has alone."""

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
        return len(self.columns) < FEW * self.of_columns or (self.of_classes > 0 and not self.classes)


@dataclass(frozen=True)
class Verdict:
    """A client's answer.

    Attributes:
        kind: ``join``, ``level``, ``nothing to gain``, ``do not join``, ``unclear`` or ``not known``.
        sentence: that word, and why; without the client's name and a full stop.
    """

    kind: str
    sentence: str


def verdict_of(
    score: Score, lift: float, interval: Interval, alone: float, common: Common, parts: Sequence[str] = ()
) -> Verdict:
    """What to tell a client.

    The first that holds: *not known* without a lift; *level* where no federated part is in the mixture; *join* and *do
    not join* where the interval excludes 0; *nothing to gain* where little is in common; *not known* without an
    interval; *level* where the whole interval is within what counts as little; else *unclear*.

    Args:
        score: by which the client judges.
        lift: mean over seeds, or on all rows: by how much the mixture is better than the best alone, positive where it
            is, in the unit of the score (0.01 is a point where it is in percent). NaN where it is not defined.
        interval: 95 %, of the lift; NaN where there is none.
        alone: the score of the best alone.
        common: what it shares with others.
        parts: the federated parts of the mixture, as people read them.

    Example:
        >>> auroc, common = Score("auroc", "AUROC"), Common(["age", "sex"], 14, 2, 2, 303)
        >>> verdict_of(auroc, 0.015, (0.009, 0.021), 0.9, common, ["the forest"]).sentence
        'join, with the forest: +1.50 points of AUROC (95 % interval +0.90 to +2.10)'
        >>> verdict_of(auroc, 0.0, (math.nan, math.nan), 0.9, common, ["the forest"]).sentence
        'nothing to gain: only age and sex are shared (2 of 14 columns); +0.00 points of AUROC'
    """
    unit = "points of" if score.percent else "in"
    way = "" if score.higher_is_better else ", + for lower and better"
    told = f"{score.text(lift, signed=True)} {unit} {score.label}{way}"
    low, high = interval
    known = math.isfinite(low + high)
    if known:
        ends = (score.text(own, signed=True) for own in interval)
        told += f" (95 % interval {' to '.join(ends)})"
    little = LITTLE if score.percent else LITTLE * abs(alone)
    if not math.isfinite(lift):
        return Verdict(UNKNOWN, f"{UNKNOWN}: {score.label} is not defined on these rows; give rows of each class")
    if not parts:
        why = "no federated part was better on its validation rows, it stays with its own models"
        if common.few:
            return Verdict(NOTHING, f"{NOTHING}: {_shared(common)}; {why}")
        return Verdict(LEVEL, f"{LEVEL}: {why}: nothing lost, nothing gained")
    if known and low > 0:
        more = ", which is little" if lift < little else ""
        return Verdict(JOIN, f"{JOIN}, with {_listed(parts)}: {told}{more}")
    if known and high < 0:
        return Verdict(HARM, f"{HARM}: {told}; its own models are better")
    if common.few:
        return Verdict(NOTHING, f"{NOTHING}: {_shared(common)}; {told}")
    if not known:
        return Verdict(UNKNOWN, f"{UNKNOWN}: {told}, and one result has no interval; take more seeds")
    if max(-low, high) <= little:
        return Verdict(LEVEL, f"{LEVEL}: nothing lost, nothing gained: {told}")
    return Verdict(UNCLEAR, f"{UNCLEAR}: {told}; with {common.rows:,} rows it cannot be told from no lift")


def _shared(common: Common) -> str:
    """Why little is in common."""
    count, columns = len(common.columns), f"{len(common.columns)} of {common.of_columns} columns"
    if not count:
        return "no column is shared"
    if count >= FEW * common.of_columns:
        return "no class is shared"
    if count > _NAMED:
        return f"only {columns} are shared"
    return f"only {_listed(common.columns)} {'is' if count == 1 else 'are'} shared ({columns})"


def _listed(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
