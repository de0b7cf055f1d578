"""Life tables: how many rows are at risk, have the event and are censored between given times, and
which of these numbers stand for several rows. It needs NumPy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlit.outcomes.censored import ENTRY, EVENT, TIME, kaplan_meier
from fedlit.types import Floats, Numbers


@dataclass(frozen=True)
class LifeTable:
    """The numbers of one group of rows at given times.

    Attributes:
        times: (t,) the times at which something is said, ascending.
        at_risk: (t,) the rows that are still at risk right after each of them.
        events: (t,) the events after the time before, up to this one.
        censored: (t,) the rows whose observation ended in this time without the event.
        shares: (t,) the share without the event (Kaplan and Meier).
    """

    times: Floats
    at_risk: Floats
    events: Floats
    censored: Floats
    shares: Floats


def life_table(y: Numbers, times: Floats, rows: int = 1) -> LifeTable:
    """Return the life table of a group of rows.

    Nothing is said at a time unless at least ``rows`` rows are at risk then, or none; and since the last
    time of which something is said, no row had the event or at least ``rows``, no row was censored
    or at least ``rows``, and no row entered or at least ``rows``. So neither a number nor the
    difference of two stands for fewer rows.

    Args:
        y: (n, 3) the target, see :data:`fedlit.outcomes.censored.TIME`.
        times: (t,) times, ascending.
        rows: the least number of rows behind each number.

    Example:
        >>> y = np.array([[time, 1.0, -np.inf] for time in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)])
        >>> table = life_table(y, np.array([1.5, 2.5, 5.5]), rows=2)
        >>> table.times.tolist(), table.at_risk.tolist(), table.events.tolist()
        ([2.5], [4.0], [2.0])
    """
    happened = y[:, EVENT] == 1
    events = _up_to(y[happened, TIME], times)
    censored = _up_to(y[~happened, TIME], times)
    entered = _up_to(y[:, ENTRY], times)
    at_risk = entered - events - censored
    counts = np.stack([events, censored, entered])
    last = np.array([0.0, 0.0, (y[:, ENTRY] == -np.inf).sum()])
    chosen = []
    for position in range(len(times)):
        since = counts[:, position] - last
        are_several = ((since == 0) | (since >= rows)).all()
        # Once nobody is left, that is said once.
        is_last = at_risk[position] == 0 and since.any()
        if are_several and (at_risk[position] >= rows or is_last):
            chosen.append(position)
            last = counts[:, position]
    new_events, new_censored = np.diff(counts[:2, chosen], axis=1, prepend=0.0)
    shares = kaplan_meier(y).at(times)[chosen]
    return LifeTable(times[chosen], at_risk[chosen], new_events, new_censored, shares)


def _up_to(values: Numbers, times: Floats) -> Floats:
    """Return how many values are at most each of these times."""
    ascending = np.sort(values.astype(np.float64))
    return np.searchsorted(ascending, times, side="right").astype(np.float64)
