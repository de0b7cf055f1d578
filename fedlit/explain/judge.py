"""Finds corrections that stand out, by how much, and describes them in words (Roschewitz et al.
2021, Section 5.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.errors import Told, expect
from fedlit.explain import ALL

Numbers = NDArray[np.float64]

ABOUT = (
    "Each client multiplies (scale) and shifts its own columns before the shared network, and its "
    "outputs after it. It learns by how much, so that its table fits the others; columns are "
    "scaled before. A client that corrects a column much more than the others do may have another "
    "unit, another way of measuring, or flipped labels."
)
"""What corrections are."""

COLUMNS = ("client", "part", "feature", "value")
IDENTITY = {"scale": 1.0, "shift": 0.0}
"""What a correction is, by the last word of its part, where nothing is corrected."""

MARKED = 2.0
"""Standard deviations from which a correction is marked."""

FEW = 6
"""Clients below which no p can be small after correction for the number of cells: both marks
together decide then."""

LEVEL = 0.001
"""Of p. Not 5 %: what chance deals to clients has heavier tails than a normal distribution, and
most unharmed federations of 24 had a finding then (``benchmarks/README.md``)."""

LEAST = 0.01
"""A correction that differs by less from the other clients' is nobody's concern, however sure it
is: 1 % of a scale, a hundredth of a column's unit."""

_ROUNDING = 1e-6  # corrections that differ by less are the same: float32 around 1


def corrections_frame(corrections: Mapping[str, Mapping[str, Mapping[str, float]]]) -> pd.DataFrame:
    """Return clients' corrections (client → part → feature → value) as a table with the columns
    :data:`COLUMNS` and one row for each correction; empty if no client corrects anything.
    """
    rows = [
        (name, part, feature, value)
        for name, parts in corrections.items()
        for part, own in parts.items()
        for feature, value in own.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def distances(values: Numbers) -> Numbers:
    """Return how many standard deviations of the other values each value is away from their mean;
    NaN if there are fewer than two others. NOTE[DIFF]: the paper compares with all values,
    including the value itself; then one of n values can be at most (n − 1)/√n away, and with fewer
    than 6 values none can reach 2.

    Args:
        values: (n, …), NaN if there is no value; compared along the first axis.

    Example:
        >>> distances(np.array([1.0, 1.2, 0.8, 3.0])).round(1).tolist()
        [-0.6, -0.3, -0.8, 10.0]
    """
    known = ~np.isnan(values)
    found = np.full(values.shape, np.nan)
    for row in range(len(values)):
        rest = np.delete(np.where(known, values, 0.0), row, 0)
        there = np.delete(known, row, 0)
        count = there.sum(0)
        away = np.where(known[row], values[row], 0.0) - rest.sum(0) / np.maximum(count, 1)
        gaps = np.where(there, rest - rest.sum(0) / np.maximum(count, 1), 0.0)
        spread = np.maximum(np.sqrt((gaps**2).sum(0) / np.maximum(count - 1, 1)), _ROUNDING)
        z = np.where(np.abs(away) <= _ROUNDING, 0.0, away / spread)
        found[row] = np.where(known[row] & (count >= 2), z, np.nan)
    return found


@dataclass(frozen=True)
class Judgement:
    """Corrections with their evaluation.

    Attributes:
        cells: one row per correction: client, part, feature, value; ``z``, its distance from the
            other clients in their standard deviations; ``marked``, whether this exceeds
            :data:`MARKED`; ``spread``, the standard deviation of the feature over clients;
            ``spread_z``, the distance of this spread from those of the part's other features;
            ``feature_marked``, whether that exceeds it (None if there are fewer than three
            features); ``p``, how often a cell like those of the other clients would be so far away
            (t-test, with Holm's correction over the part; see :func:`chances`); ``apart`` and
            ``others``, the distance and the mean on which ``p`` is based; ``finding``, whether the
            cell deserves the user's attention: p below 0.1 %, or an output that is turned round;
            with fewer than six clients, for which p can hardly be small, a marked cell of a marked
            feature; a finding by p or marks is always at least 0.01 from the others.
    """

    cells: pd.DataFrame

    @property
    def findings(self) -> pd.DataFrame:
        """The cells that deserve the user's attention, the most distant first, with a description
        of each (``words``).
        """
        found = self.cells[self.cells["finding"]].copy()
        found["reversed"] = [
            _reversed(part, value)
            for part, value in zip(found["part"], found["value"], strict=True)
        ]
        found["far"] = found["apart"].abs().fillna(np.inf)
        found = found.sort_values(
            ["reversed", "far", "client", "part", "feature"],
            ascending=[False, False, True, True, True],
        )
        found["words"] = [
            finding_words(row, turned=turned)
            for row, turned in zip(found.to_dict("records"), found["reversed"], strict=True)
        ]
        return found.drop(columns=["reversed", "far"]).reset_index(drop=True)

    def matrix(self, part: str, column: str = "value") -> pd.DataFrame:
        """Return a table of clients × features for one part, with features in the order of the
        clients' tables.
        """
        own = self.cells[self.cells["part"] == part]
        order = list(dict.fromkeys(own["feature"]))
        return own.pivot(index="client", columns="feature", values=column)[order]

    @property
    def parts(self) -> list[str]:
        """The names of all parts."""
        return list(dict.fromkeys(self.cells["part"]))

    @property
    def sides(self) -> list[str]:
        """The sides of the parts: ``input``, ``output``."""
        return list(dict.fromkeys(part.partition(" ")[0] for part in self.parts))

    def _no_finding(self) -> str:
        clients = self.cells["client"].nunique()
        if clients < 3:
            return f"No finding: {clients} clients are too few to say what stands out."
        count = int(self.cells["marked"].sum())
        far = f"more than {MARKED:g} standard deviations from the mean of other clients"
        rule = (
            f"none in a column on which clients differ far more than on others (fewer than {FEW} "
            "clients need both)"
            if clients < FEW
            else f"none farther than chance would have it (p < {100 * LEVEL:g} % after Holm's "
            "correction)"
        )
        return f"No finding: {count} of {len(self.cells)} corrections lie {far}, {rule}."

    def __str__(self) -> str:
        if not len(self.findings):
            return self._no_finding()
        return "\n".join(
            f"{number}. {words}" for number, words in enumerate(self.findings["words"], 1)
        )


def judge(values: pd.DataFrame) -> Judgement:
    """Evaluate corrections.

    Args:
        values: one row for each correction, with the columns :data:`COLUMNS`.

    Raises:
        ConfigError: there are no corrections.

    Example:
        >>> import textwrap
        >>> table = {"ash": [1.0, 1.1, 0.9], "oak": [1.1, 0.9, 1.0], "elm": [0.9, 1.0, 0.1], "yew": [1.0, 0.8, 1.2]}
        >>> rows = [(k, "input scale", f, v) for k, own in table.items() for f, v in zip(("age", "bmi", "ldl"), own)]
        >>> print(textwrap.fill(str(judge(pd.DataFrame(rows, columns=COLUMNS))), 90))
        1. elm multiplies column ldl by 0.1, the other clients by 1.03 on average. That is 6.1
        times as far from that as they usually are. Clients differ on ldl far more than on other
        columns. Is it in another unit, or measured in another way?
    """
    do = "train one whose class shows corrections, such as fedlit.IFedAvg"
    expect(len(values) > 0, "corrections", "clients that correct something", Told("none"), do)
    parts = [_judge_part(own) for _, own in values.groupby("part", sort=False)]
    return Judgement(pd.concat(parts, ignore_index=True))


def _judge_part(own: pd.DataFrame) -> pd.DataFrame:
    order = list(dict.fromkeys(own["feature"]))
    clients = list(dict.fromkeys(own["client"]))
    table = own.pivot(index="client", columns="feature", values="value").loc[clients, order]
    value = table.to_numpy(np.float64)
    z = distances(value)
    p, apart, others = chances(value)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = pd.DataFrame(value).std(axis=0, ddof=1).to_numpy(np.float64)
    spread_z = distances(spread)
    cells = pd.DataFrame(
        {
            "client": np.repeat(clients, len(order)),
            "part": str(own["part"].iloc[0]),
            "feature": np.tile(order, len(clients)),
            "value": value.ravel(),
            "z": z.ravel(),
            "marked": (np.abs(z) > MARKED).ravel(),
            "spread": np.tile(spread, len(clients)),
            "spread_z": np.tile(spread_z, len(clients)),
            "feature_marked": pd.array(np.tile(spread_z > MARKED, len(clients)), dtype="boolean"),
            "p": p.ravel(),
            "apart": apart.ravel(),
            "others": others.ravel(),
        }
    )
    cells["feature_marked"] = cells["feature_marked"].mask(cells["spread_z"].isna())
    cells = cells[cells["value"].notna()]
    sure = cells["p"] < LEVEL
    if len(clients) < FEW:
        sure = cells["marked"] & cells["feature_marked"].fillna(False).astype(bool)
    sure = sure & ((cells["value"] - cells["others"]).abs() >= LEAST)
    turned = [_reversed(part, v) for part, v in zip(cells["part"], cells["value"], strict=True)]
    return cells.assign(finding=sure | np.array(turned, dtype=bool))


def chances(values: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return, for each cell, how often one like those of the other clients would be at least so far
    from them (two-sided t-test), after Holm's correction over all cells.

    A cell below :data:`LEVEL` is set aside and the others are judged again without it, until no
    more are found, as long as :data:`FEW` clients remain. Otherwise two wrong values in one column
    would hide each other.

    Args:
        values: (clients, features), NaN if there is no value.

    Returns:
        These p-values, the distances on which they are based, and the means of the other cells
        without those set aside, (clients, features) each; NaN if there is nothing to compare with.
    """
    from scipy import stats

    from fedlit.statistics import holm

    left = values.copy()
    found = np.zeros(values.shape, bool)
    while True:
        # every cell against the others that are left: one that was set aside as if it had come back
        # alone
        kept = ~np.isnan(left)
        number = np.maximum(kept.sum(0) - kept, 1)
        others = np.where(
            np.isnan(values), np.nan, (np.nansum(left, 0) - np.nan_to_num(left)) / number
        )
        apart = distances(left)
        for row, column in np.argwhere(found):
            with_it = left[:, column].copy()
            with_it[row] = values[row, column]
            apart[row, column] = distances(with_it)[row]
        # the distance of a new value from the mean of n others, in their standard deviations, is
        # √(1 + 1/n) t
        t = np.abs(apart) / np.sqrt(1 + 1 / number)
        p = np.array(holm((2 * stats.t.sf(t, np.maximum(number - 1, 1))).ravel().tolist())).reshape(
            t.shape
        )
        new = kept & (p < LEVEL) & (kept.sum(0) > FEW)
        if not new.any():
            return p, apart, others
        found |= new
        left[new] = np.nan


def _reversed(part: str, value: float) -> bool:
    return part == "output scale" and value < 0


def finding_words(cell: Mapping[Any, Any], *, turned: bool) -> str:
    """Describe a correction that stands out: what the client does, what the others do, how unusual
    it is, and what to ask.

    Args:
        cell: a row of :attr:`~fedlit.explain.judge.Judgement.cells`.
        turned: whether the correction turns an output round.

    Example:
        >>> cell = {"client": "elm", "part": "output scale", "feature": "sick", "value": -0.4, "others": 1.0}
        >>> finding_words(cell, turned=True)
        'elm turns output sick round (times -0.4, the other clients 1 on average). Are its labels
        flipped?'
    """
    value = cell["value"]
    others = cell["others"]
    side, _, kind = str(cell["part"]).rpartition(" ")
    kept = "output" if side == "output" else "column"
    name = cell["feature"]
    place = "all outputs" if (side, name) == ("output", ALL) else f"{kept} {name}"
    known = math.isfinite(others)
    if turned:
        rest = f", the other clients {others:.3g} on average" if known else ""
        return (
            f"{cell['client']} turns {place} round (times {value:.3g}{rest}). Are its labels "
            "flipped?"
        )
    does, do = {
        "scale": (f"multiplies {place} by {value:.3g}", f"by {others:.3g}"),
        "shift": (f"shifts {place} by {value:+.3g}", f"by {others:+.3g}"),
    }.get(kind, (f"has {value:.3g} as {kind} of {place}", f"have {others:.3g}"))
    text = f"{cell['client']} {does}" + (f", the other clients {do} on average." if known else ".")
    if math.isfinite(cell["apart"]):
        text += f" That is {abs(cell['apart']):.1f} times as far from that as they usually are."
    if cell["feature_marked"] is True:
        text += f" Clients differ on {name} far more than on other {kept}s."
    ask = (
        "Is it in another unit, or measured in another way?"
        if kept == "column"
        else "Do its labels mean the same?"
    )
    return f"{text} {ask}"
