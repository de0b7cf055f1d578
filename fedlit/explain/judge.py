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
"""An explanation of corrections."""

COLUMNS = ("client", "part", "feature", "value")
IDENTITY = {"scale": 1.0, "shift": 0.0}
"""The value of a correction that changes nothing, by the last word of its part."""

MARKED = 2.0
"""The number of standard deviations from which a correction is marked."""

FEW = 6
"""With fewer clients, no p can be small after correction for the number of cells, so that both
marks together decide."""

LEVEL = 0.001
"""The significance level of p. It is not 5 %, because clients' corrections have heavier tails than
a normal distribution: with 5 %, most of 24 federations without a fault had a finding
(``docs/studies/corrections.md``)."""

LEAST = 0.01
"""A correction that differs by less from the other clients' is never a finding, however significant
it is: 1 % of a scale, a hundredth of a column's unit."""

_ROUNDING = 1e-6
"""Corrections that differ by less are equal: the precision of float32 around 1."""


def corrections_frame(corrections: Mapping[str, Mapping[str, Mapping[str, float]]]) -> pd.DataFrame:
    """Return clients' corrections (client → part → feature → value) as a table with the columns
    :data:`COLUMNS` and one row for each correction; empty if no client corrects anything.
    """
    rows: list[tuple[str, str, str, float]] = []
    for client, parts in corrections.items():
        for part, values in parts.items():
            rows += [(client, part, feature, value) for feature, value in values.items()]
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
    present = ~np.isnan(values)
    filled = np.where(present, values, 0.0)
    z = np.full(values.shape, np.nan)
    for row in range(len(values)):
        rest = np.delete(filled, row, 0)
        rest_present = np.delete(present, row, 0)
        count = rest_present.sum(0)
        mean = rest.sum(0) / np.maximum(count, 1)
        difference = filled[row] - mean
        residuals = np.where(rest_present, rest - mean, 0.0)
        variance = (residuals**2).sum(0) / np.maximum(count - 1, 1)
        deviation = np.maximum(np.sqrt(variance), _ROUNDING)
        row_z = np.where(np.abs(difference) <= _ROUNDING, 0.0, difference / deviation)
        z[row] = np.where(present[row] & (count >= 2), row_z, np.nan)
    return z


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
        findings = self.cells[self.cells["finding"]].copy()
        findings["reversed"] = list(map(_reversed, findings["part"], findings["value"]))
        findings["far"] = findings["apart"].abs().fillna(np.inf)
        findings = findings.sort_values(
            ["reversed", "far", "client", "part", "feature"],
            ascending=[False, False, True, True, True],
        )
        findings["words"] = [
            finding_words(row, turned=row["reversed"]) for row in findings.to_dict("records")
        ]
        return findings.drop(columns=["reversed", "far"]).reset_index(drop=True)

    def matrix(self, part: str, column: str = "value") -> pd.DataFrame:
        """Return a table of clients × features for one part, with features in the order of the
        clients' tables.
        """
        rows = self.cells[self.cells["part"] == part]
        order = list(dict.fromkeys(rows["feature"]))
        return rows.pivot(index="client", columns="feature", values=column)[order]

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
        if clients < FEW:
            rule = (
                "none in a column on which clients differ far more than on others (fewer than "
                f"{FEW} clients need both)"
            )
        else:
            rule = (
                f"none farther than chance explains (p < {100 * LEVEL:g} % after Holm's correction)"
            )
        return f"No finding: {count} of {len(self.cells)} corrections lie {far}, {rule}."

    def __str__(self) -> str:
        if not len(self.findings):
            return self._no_finding()
        return "\n".join(
            f"{number}. {text}" for number, text in enumerate(self.findings["words"], 1)
        )


def judge(values: pd.DataFrame) -> Judgement:
    """Evaluate corrections.

    Args:
        values: one row for each correction, with the columns :data:`COLUMNS`.

    Raises:
        ConfigError: there are no corrections.

    Example:
        >>> import textwrap
        >>> scales = {
        ...     "ash": {"age": 1.0, "bmi": 1.1, "ldl": 0.9},
        ...     "oak": {"age": 1.1, "bmi": 0.9, "ldl": 1.0},
        ...     "elm": {"age": 0.9, "bmi": 1.0, "ldl": 0.1},
        ...     "yew": {"age": 1.0, "bmi": 0.8, "ldl": 1.2},
        ... }
        >>> corrections = {client: {"input scale": values} for client, values in scales.items()}
        >>> print(textwrap.fill(str(judge(corrections_frame(corrections))), 90))
        1. elm multiplies column ldl by 0.1, the other clients by 1.03 on average. That is 6.1
        times as far from that as they usually are. Clients differ on ldl far more than on other
        columns. Is it in another unit, or measured in another way?
    """
    do = "train one whose class shows corrections, such as fedlit.IFedAvg"
    expect(len(values) > 0, "corrections", "clients that correct something", Told("none"), do)
    parts = [_judge_part(rows) for _, rows in values.groupby("part", sort=False)]
    return Judgement(pd.concat(parts, ignore_index=True))


def _judge_part(rows: pd.DataFrame) -> pd.DataFrame:
    order = list(dict.fromkeys(rows["feature"]))
    clients = list(dict.fromkeys(rows["client"]))
    table = rows.pivot(index="client", columns="feature", values="value").loc[clients, order]
    value = table.to_numpy(np.float64)
    z = distances(value)
    p, distance, mean_of_others = chances(value)
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = pd.DataFrame(value).std(axis=0, ddof=1).to_numpy(np.float64)
    spread_z = distances(spread)
    cells = pd.DataFrame(
        {
            "client": np.repeat(clients, len(order)),
            "part": str(rows["part"].iloc[0]),
            "feature": np.tile(order, len(clients)),
            "value": value.ravel(),
            "z": z.ravel(),
            "marked": (np.abs(z) > MARKED).ravel(),
            "spread": np.tile(spread, len(clients)),
            "spread_z": np.tile(spread_z, len(clients)),
            "feature_marked": pd.array(np.tile(spread_z > MARKED, len(clients)), dtype="boolean"),
            "p": p.ravel(),
            "apart": distance.ravel(),
            "others": mean_of_others.ravel(),
        }
    )
    cells["feature_marked"] = cells["feature_marked"].mask(cells["spread_z"].isna())
    cells = cells[cells["value"].notna()]
    significant = cells["p"] < LEVEL
    if len(clients) < FEW:
        significant = cells["marked"] & cells["feature_marked"].fillna(False).astype(bool)
    significant = significant & ((cells["value"] - cells["others"]).abs() >= LEAST)
    turned = list(map(_reversed, cells["part"], cells["value"]))
    return cells.assign(finding=significant | np.array(turned, dtype=bool))


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

    remaining = values.copy()
    aside = np.zeros(values.shape, bool)
    while True:
        present = ~np.isnan(remaining)
        number = np.maximum(present.sum(0) - present, 1)
        sums = np.nansum(remaining, 0) - np.nan_to_num(remaining)
        means = np.where(np.isnan(values), np.nan, sums / number)
        distance = distances(remaining)
        # A cell that was set aside is compared as if it alone had come back.
        for row, column in np.argwhere(aside):
            with_cell = remaining[:, column].copy()
            with_cell[row] = values[row, column]
            distance[row, column] = distances(with_cell)[row]
        # The distance of a new value from the mean of n others, in their standard deviations, is
        # √(1 + 1/n) t.
        t = np.abs(distance) / np.sqrt(1 + 1 / number)
        tails = 2 * stats.t.sf(t, np.maximum(number - 1, 1))
        p = np.array(holm(tails.ravel().tolist())).reshape(t.shape)
        new = present & (p < LEVEL) & (present.sum(0) > FEW)
        if not new.any():
            return p, distance, means
        aside |= new
        remaining[new] = np.nan


def _reversed(part: str, value: float) -> bool:
    return part == "output scale" and value < 0


def finding_words(cell: Mapping[Any, Any], *, turned: bool) -> str:
    """Describe a correction that stands out: the client's value, the other clients' mean, how
    unusual the value is, and a question to ask.

    Args:
        cell: a row of :attr:`~fedlit.explain.judge.Judgement.cells`.
        turned: whether the correction turns an output round.

    Example:
        >>> cell = {"client": "elm", "part": "output scale", "feature": "sick"}
        >>> cell |= {"value": -0.4, "others": 1.0}
        >>> finding_words(cell, turned=True)
        'elm turns output sick round (times -0.4, the other clients 1 on average). Are its labels
        flipped?'
    """
    value = cell["value"]
    mean = cell["others"]
    compared = math.isfinite(mean)
    side, _, kind = str(cell["part"]).rpartition(" ")
    noun = "output" if side == "output" else "column"
    feature = cell["feature"]
    target = "all outputs" if (side, feature) == ("output", ALL) else f"{noun} {feature}"
    if turned:
        text = f"{cell['client']} turns {target} round (times {value:.3g}"
        if compared:
            text += f", the other clients {mean:.3g} on average"
        return f"{text}). Are its labels flipped?"
    client_does, others_do = {
        "scale": (f"multiplies {target} by {value:.3g}", f"by {mean:.3g}"),
        "shift": (f"shifts {target} by {value:+.3g}", f"by {mean:+.3g}"),
    }.get(kind, (f"has {value:.3g} as {kind} of {target}", f"have {mean:.3g}"))
    text = f"{cell['client']} {client_does}"
    if compared:
        text += f", the other clients {others_do} on average"
    text += "."
    if math.isfinite(cell["apart"]):
        text += f" That is {abs(cell['apart']):.1f} times as far from that as they usually are."
    if cell["feature_marked"] is True:
        text += f" Clients differ on {feature} far more than on other {noun}s."
    if noun == "column":
        return f"{text} Is it in another unit, or measured in another way?"
    return f"{text} Do its labels mean the same?"
