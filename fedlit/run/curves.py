"""``fedlit explain --curves``: the share of clients' rows without the event over time, and a test of
whether groups differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.module import FederatedData
from fedlit.data.schema.cells import plain_text
from fedlit.errors import ConfigError, expect
from fedlit.outcomes.censored import EVENT, TIME, kaplan_meier
from fedlit.outcomes.life_table import life_table
from fedlit.outcomes.log_rank import log_rank, site_terms
from fedlit.show.canvas import save_figure
from fedlit.show.curves import curves_figure
from fedlit.show.shown import Grid
from fedlit.types import Floats, Objects

CLIENT = "client"
"""What curves are drawn of if no column is named."""
_MOST = 12
"""The largest number of values that a column may have whose groups are drawn."""
_STEPS = 200
"""Times at which a curve is drawn."""


@dataclass(frozen=True)
class _Rows:
    """The training rows of one client: the target (n, 3), and the group of each row (n,)."""

    y: Floats
    group: Objects


@dataclass(frozen=True)
class Curves:
    """Curves of groups of rows.

    Attributes:
        table: a row for each group: ``group``, ``rows``, ``events``, ``median``, and the share
            without the event at each horizon.
        files: the pictures.
        lines: what is printed.
    """

    table: pd.DataFrame
    files: list[Path]
    lines: list[str | Grid]


def draw_curves(data: FederatedData, by: str, target: Path) -> Curves:
    """Draw Kaplan–Meier curves of training rows with the numbers at risk.

    Args:
        data: a run's data.
        by: ``client``, or a column of all clients, whose groups are compared by a log-rank test
            that is stratified by client.
        target: the folder of the pictures.

    Raises:
        ConfigError: the task is not the time to an event, or the column does not fit.
    """
    for spec in data.specs:
        if not spec.task.periods:
            raise ConfigError(
                f"--curves: expected task survival, found {spec.task.title} at client "
                f"{spec.name!r}; leave --curves out"
            )
    outcome: Any = data.specs[0].task.outcome
    clients = {spec.name: _rows_of(data, spec.name, by) for spec in data.specs}
    group = np.concatenate([rows.group for rows in clients.values()])
    groups = list(dict.fromkeys(group))
    if by != CLIENT:
        groups.sort()
        expect(len(groups) <= _MOST, "--curves", f"a column of at most {_MOST} values", len(groups))
    y = np.concatenate([rows.y for rows in clients.values()])
    times = _round_times(float(y[:, TIME].max()))
    tables = {name: life_table(y[group == name], times) for name in groups}
    label = f"{outcome.time_unit}s" if outcome.time_unit else "time"
    files = save_figure(curves_figure(tables, label, by), target / "curves")
    table = pd.DataFrame([_summary(outcome, name, y[group == name]) for name in groups])
    lines: list[str | Grid] = [
        f"Training rows without the event (Kaplan–Meier), by {by}",
        _grid(table),
    ]
    if by != CLIENT:
        lines += ["", *_test(clients, groups, by)]
    return Curves(table, files, lines)


def _round_times(last: float) -> Floats:
    """Return up to about 200 times from 0 to past the last one, whose step is 1, 2 or 5 times a
    power of ten, as are the marks of the picture's axis.
    """
    least = max(last, np.finfo(np.float64).tiny) / _STEPS
    power = 10.0 ** np.floor(np.log10(least))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))
    times: Floats = np.arange(int(np.ceil(last / step)) + 1) * step
    return times


def _rows_of(data: FederatedData, client: str, by: str) -> _Rows:
    """Return the training rows of a client, with their groups."""
    table = data.table(client)
    train = table.splits["train"]
    (spec,) = [spec for spec in data.specs if spec.name == client]
    y = spec.task.encode(table.target.iloc[train]).numpy().astype(np.float64)
    if by == CLIENT:
        return _Rows(y, np.full(len(y), client, object))
    columns = list(map(str, table.features))
    expect(by in columns, "--curves", f"{CLIENT}, or a column of {client}", by, known=columns)
    cells = table.features[by].iloc[train]
    is_known = cells.notna().to_numpy()
    names = [plain_text(cell) for cell in cells[is_known]]
    return _Rows(y[is_known], np.array(names, object))


def _summary(outcome: Any, name: str, y: Floats) -> Mapping[str, object]:
    """Return what is said about one group."""
    curve = kaplan_meier(y)
    reached = np.flatnonzero(curve.shares <= 0.5)
    median = float(curve.times[reached[0]]) if len(reached) else np.inf
    shares = {outcome.text(horizon): float(curve.at(horizon)) for horizon in outcome.horizons}
    events = int(y[:, EVENT].sum())
    return {"group": name, "rows": len(y), "events": events, "median": median, **shares}


def _grid(table: pd.DataFrame) -> Grid:
    shares = list(table.columns[4:])
    lines = []
    for row in table.to_dict("records"):
        cells = [
            str(row["group"]),
            f"{row['rows']:,}",
            f"{row['events']:,}",
            f"{row['median']:.4g}",
        ]
        lines.append([*cells, *(f"{row[name]:.3f}" for name in shares)])
    return Grid(["group", "rows", "events", "median", *shares], lines)


def _test(clients: Mapping[str, _Rows], groups: list[str], by: str) -> Iterator[str | Grid]:
    """Yield the log-rank test, and the events of each group beside those that are expected."""
    from scipy.stats import chi2

    terms = [site_terms(rows.y, rows.group, groups) for rows in clients.values()]
    sums = {name: np.sum(list(map(itemgetter(name), terms)), 0) for name in terms[0]}
    test = log_rank(sums)
    p = float(chi2.sf(test.statistic, test.freedom)) if test.freedom else np.nan
    degrees = "degree" if test.freedom == 1 else "degrees"
    yield (
        f"Log-rank test of {by}, stratified by client: χ² {test.statistic:.2f} on {test.freedom} "
        f"{degrees} of freedom, p {p:.3g}"
    )
    lines = []
    for name, observed, expected in zip(groups, sums["observed"], sums["expected"], strict=True):
        lines.append([name, f"{observed:.0f}", f"{expected:.1f}"])
    yield Grid(["group", "events", "expected"], lines)
