"""The log-rank test of whether groups of rows differ in the time to an event, from terms that are
summed over strata such as sites. It needs NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedlit.outcomes.censored import EVENT, TIME, at_risk
from fedlit.reml import independent
from fedlit.types import Floats, Numbers, Objects

Terms = Mapping[str, Floats]
"""What a stratum says of g groups; sums over strata have the same names.

``observed`` (g,): the number of events; ``expected`` (g,): the number that would be expected if all
groups had the same hazard; ``variance`` (g, g): the covariance of their difference, given who is at
risk.
"""


def site_terms(y: Numbers, group: Objects, groups: Sequence[object]) -> dict[str, Floats]:
    """Return a stratum's terms, see :data:`Terms` (Mantel 1966).

    Args:
        y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
        group: (n,) the group of each row; rows of other groups do not count.
        groups: the groups, which are the same in all strata.

    Example:
        >>> y = np.array([[1.0, 1.0, -np.inf], [2.0, 1.0, -np.inf], [3.0, 0.0, -np.inf]])
        >>> terms = site_terms(y, np.array(["a", "b", "b"], object), ["a", "b"])
        >>> terms["observed"].tolist(), terms["expected"].round(3).tolist()
        ([1.0, 1.0], [0.333, 1.667])
    """
    members = [group == name for name in groups]
    counted = np.any(members, axis=0)
    events = counted & (y[:, EVENT] == 1)
    times = np.unique(y[events, TIME].astype(np.float64))
    risk = np.array([at_risk(y[rows], times) for rows in members])
    happened = np.zeros((len(groups), len(times)))
    for number, rows in enumerate(members):
        position = np.searchsorted(times, y[rows & events, TIME])
        happened[number] = np.bincount(position, minlength=len(times))
    total = risk.sum(0)
    all_events = happened.sum(0)
    shares = risk / total
    # The last row at risk has the event for sure.
    spread = all_events * (total - all_events) / np.maximum(total - 1, 1)
    variance = np.diag((shares * spread).sum(1)) - (shares * spread) @ shares.T
    return {
        "observed": happened.sum(1),
        "expected": (shares * all_events).sum(1),
        "variance": variance,
    }


@dataclass(frozen=True)
class LogRank:
    """The test of all groups together.

    Attributes:
        statistic: χ².
        freedom: its degrees of freedom: one less than the number of groups that can be compared.
    """

    statistic: float
    freedom: int


def log_rank(sums: Terms) -> LogRank:
    """Return the test, stratified by whatever the terms are summed over.

    Args:
        sums: the sums of :func:`site_terms` over strata.

    Example:
        >>> y = np.array([[time, 1.0, -np.inf] for time in (1.0, 2.0, 3.0, 4.0)])
        >>> test = log_rank(site_terms(y, np.array(["a", "a", "b", "b"], object), ["a", "b"]))
        >>> round(test.statistic, 3), test.freedom
        (2.882, 1)
    """
    difference = sums["observed"] - sums["expected"]
    # The differences sum to 0, so that one of the groups says nothing new.
    columns = np.flatnonzero(independent(sums["variance"]))
    block = sums["variance"][np.ix_(columns, columns)]
    part = difference[columns]
    return LogRank(float(part @ np.linalg.solve(block, part)), len(columns))
