"""Which corrections stand out, by how much, and what that says in words (Roschewitz et al. 2021, Section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.errors import ConfigError
from fedlit.explain import CORRECTIONS
from fedlit.explain.words import finding_words

__all__ = [
    "COLUMNS",
    "CORRECTIONS",
    "IDENTITY",
    "LEVEL",
    "Judgement",
    "chances",
    "corrections_frame",
    "distances",
    "judge",
]

Numbers = NDArray[np.float64]

COLUMNS = ("client", "part", "feature", "value")
IDENTITY = {"scale": 1.0, "shift": 0.0}
"""What a correction is, by the last word of its part, where nothing is corrected."""

FEW = 6
"""Clients below which no p can be small after correction for the number of cells: both marks together decide then."""

LEVEL = 0.001
"""Of p. Not 5 %: what chance deals to clients has heavier tails than a normal distribution, and most unharmed
federations of 24 had a finding then (``benchmarks/README.md``)."""

LEAST = 0.01
"""A correction that differs by less from the other clients' is nobody's concern, however sure it is: 1 % of a scale, a
hundredth of a column's unit."""

_ROUNDING = 1e-6  # corrections that differ by less are the same: float32 around 1


def corrections_frame(corrections: Mapping[str, Mapping[str, Mapping[str, float]]]) -> pd.DataFrame:
    """What clients correct (client → part → feature → value) as a table: one row for each of :data:`COLUMNS`; empty if
    no client corrects anything.
    """
    rows = [
        (name, part, feature, value)
        for name, parts in corrections.items()
        for part, own in parts.items()
        for feature, value in own.items()
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def distances(values: Numbers) -> Numbers:
    """How many standard deviations of the others each value lies from their mean; NaN where there are not two others to
    compare with. NOTE[DIFF]: the paper compares with all, itself included: then a value among n can be (n − 1)/√n away
    at most, and fewer than 6 never reach 2.

    Args:
        values: (n, …), NaN where there is none; compared along the first axis.

    Example:
        >>> distances(np.array([1.0, 1.2, 0.8, 3.0])).round(1).tolist()
        [-0.6, -0.3, -0.8, 10.0]
    """
    known = ~np.isnan(values)
    found = np.full(values.shape, np.nan)
    for row in range(len(values)):
        rest, there = np.delete(np.where(known, values, 0.0), row, 0), np.delete(known, row, 0)
        count = there.sum(0)
        away = np.where(known[row], values[row], 0.0) - rest.sum(0) / np.maximum(count, 1)
        gaps = np.where(there, rest - rest.sum(0) / np.maximum(count, 1), 0.0)
        spread = np.maximum(np.sqrt((gaps**2).sum(0) / np.maximum(count - 1, 1)), _ROUNDING)
        z = np.where(np.abs(away) <= _ROUNDING, 0.0, away / spread)
        found[row] = np.where(known[row] & (count >= 2), z, np.nan)
    return found


@dataclass(frozen=True)
class Judgement:
    """Corrections, judged.

    Attributes:
        cells: one row per correction: client, part, feature, value; ``z``, its distance from the other clients in their
            standard deviations; ``marked``, whether that is more than the threshold; ``spread``, the standard deviation
            of the feature over clients; ``spread_z``, that spread's distance from the part's other features;
            ``feature_marked``, whether that is above the threshold (None where there are fewer than three features);
            ``p``, for a cell that is like the others', how often it would lie so far off (t-test, Holm's correction
            over the part; see :func:`chances`), ``apart`` and ``others``, by what it was judged; ``finding``, whether
            it is worth a person's attention: p below 0.1 %, or an output turned round; with fewer than six clients,
            where p can hardly be small, a marked cell in a marked feature; in any case at least 0.01 from the others.
        threshold: of marks, in standard deviations.
    """

    cells: pd.DataFrame
    threshold: float

    @property
    def findings(self) -> pd.DataFrame:
        """The cells worth a person's attention, the farthest off first, with what each says (``words``)."""
        found = self.cells[self.cells["finding"]].copy()
        found["reversed"] = [_reversed(part, value) for part, value in zip(found["part"], found["value"], strict=True)]
        found["far"] = found["apart"].abs().fillna(np.inf)
        found = found.sort_values(
            ["reversed", "far", "client", "part", "feature"], ascending=[False, False, True, True, True]
        )
        found["words"] = [
            finding_words(row, turned=turned)
            for row, turned in zip(found.to_dict("records"), found["reversed"], strict=True)
        ]
        return found.drop(columns=["reversed", "far"]).reset_index(drop=True)

    def matrix(self, part: str, column: str = "value") -> pd.DataFrame:
        """Clients × features of one part; features in the order of the clients' tables."""
        own = self.cells[self.cells["part"] == part]
        order = list(dict.fromkeys(own["feature"]))
        return own.pivot(index="client", columns="feature", values=column)[order]

    @property
    def parts(self) -> list[str]:
        """The parts that there are."""
        return list(dict.fromkeys(self.cells["part"]))

    @property
    def sides(self) -> list[str]:
        """The sides that parts are on: ``input``, ``output``."""
        return list(dict.fromkeys(part.partition(" ")[0] for part in self.parts))

    def _no_finding(self) -> str:
        clients = self.cells["client"].nunique()
        if clients < 3:
            return f"No finding: {clients} clients are too few to say what stands out."
        count = int(self.cells["marked"].sum())
        far = f"more than {self.threshold:g} standard deviations from the mean of other clients"
        rule = (
            f"none in a column on which clients differ far more than on others (fewer than {FEW} clients need both)"
            if clients < FEW
            else f"none farther than chance would have it (p < {100 * LEVEL:g} % after Holm's correction)"
        )
        return f"No finding: {count} of {len(self.cells)} corrections lie {far}, {rule}."

    def __str__(self) -> str:
        if not len(self.findings):
            return self._no_finding()
        return "\n".join(f"{number}. {words}" for number, words in enumerate(self.findings["words"], 1))


def judge(values: pd.DataFrame, *, threshold: float = 2.0) -> Judgement:
    """Judge corrections.

    Args:
        values: one row each, columns :data:`COLUMNS`.
        threshold: of marks, in standard deviations.

    Raises:
        ConfigError: a threshold that is not positive, or no corrections.

    Example:
        >>> import textwrap
        >>> table = {"ash": [1.0, 1.1, 0.9], "oak": [1.1, 0.9, 1.0], "elm": [0.9, 1.0, 0.1], "yew": [1.0, 0.8, 1.2]}
        >>> rows = [(k, "input scale", f, v) for k, own in table.items() for f, v in zip(("age", "bmi", "ldl"), own)]
        >>> print(textwrap.fill(str(judge(pd.DataFrame(rows, columns=COLUMNS))), 90))
        1. elm multiplies column ldl by 0.1, the other clients by 1.03 on average. That is 6.1
        times as far from that as they usually are. Clients differ on ldl far more than on other
        columns. Is it in another unit, or measured in another way?
    """
    if not threshold > 0:
        raise ConfigError(f"--threshold: expected a positive number of standard deviations, found {threshold}")
    if not len(values):
        raise ConfigError(
            "expected clients that correct something, found none; train one whose class shows corrections, such as "
            "fedlit.IFedAvg"
        )
    parts = [_judge_part(own, threshold) for _, own in values.groupby("part", sort=False)]
    return Judgement(pd.concat(parts, ignore_index=True), threshold)


def _judge_part(own: pd.DataFrame, threshold: float) -> pd.DataFrame:
    order, clients = list(dict.fromkeys(own["feature"])), list(dict.fromkeys(own["client"]))
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
            "marked": (np.abs(z) > threshold).ravel(),
            "spread": np.tile(spread, len(clients)),
            "spread_z": np.tile(spread_z, len(clients)),
            "feature_marked": pd.array(np.tile(spread_z > threshold, len(clients)), dtype="boolean"),
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
    """For each cell, how often one that is like the other clients' would lie so far from them (two-sided t-test), after
    Holm's correction for all cells.

    A cell below :data:`LEVEL` is set aside and the others are judged again without it, until no more are found, while
    :data:`FEW` clients remain: two that are wrong in one column would hide each other.

    Args:
        values: (clients, features), NaN where there is none.

    Returns:
        That, the distance by which it was judged, and the mean of the others without those set aside: (clients,
        features) each, NaN where there is nothing to compare with.
    """
    from scipy import stats

    from fedlit.statistics import holm

    left, found = values.copy(), np.zeros(values.shape, bool)
    while True:
        # every cell against the others that are left: one that was set aside as if it had come back alone
        kept = ~np.isnan(left)
        number = np.maximum(kept.sum(0) - kept, 1)
        others = np.where(np.isnan(values), np.nan, (np.nansum(left, 0) - np.nan_to_num(left)) / number)
        apart = distances(left)
        for row, column in np.argwhere(found):
            with_it = left[:, column].copy()
            with_it[row] = values[row, column]
            apart[row, column] = distances(with_it)[row]
        # the distance of a new value from the mean of n others, in their standard deviations, is √(1 + 1/n) t
        t = np.abs(apart) / np.sqrt(1 + 1 / number)
        p = np.array(holm((2 * stats.t.sf(t, np.maximum(number - 1, 1))).ravel().tolist())).reshape(t.shape)
        new = kept & (p < LEVEL) & (kept.sum(0) > FEW)
        if not new.any():
            return p, apart, others
        found |= new
        left[new] = np.nan


def _reversed(part: str, value: float) -> bool:
    return part == "output scale" and value < 0
