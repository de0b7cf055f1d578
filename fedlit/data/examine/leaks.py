"""Finds columns that alone predict the target, by the adjusted R² of their bins.

The search covers each client, and the pooled rows of all clients with the same target, so that
clients with few rows count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import is_number, raw_column, sampled
from fedlit.data.note import Note
from fedlit.data.table import ClientTable
from fedlit.data.targets import outcome_at, strata_of
from fedlit.show.text import counted

ALMOST = 0.9
"""Adjusted R² of one column alone, for classes or for the ranks of a number, from which it is
mentioned."""
_SURELY_NUMBER = 0.985  # Less is normal for ranks of a number: carats predict a price so well.
ROWS = 2_000
"""Largest number of a client's training rows that are examined."""
COLUMNS = 300
"""Number of columns that are examined at a time."""
_POOLED_ROWS = 4_000
_POOLED_CLIENTS = 200
_CELLS = 3_000_000
"""Largest number of cells that are examined client by client."""
_FEWEST_ALONE = 4
"""Number of clients that are examined one by one, however many cells they have."""
_MOST_ALONE = 1_000  # Each client takes a millisecond.
_FEWEST = 40
_FEWEST_OF_CLASS = 8
_ENOUGH = 200  # If each client has so many training rows, pooled rows reveal nothing more.
_BINS = 32
_ROWS_OF_BIN = 4
_NOTHING = 1e-9  # Rounding alone makes this variance of a target.
_UNSEEN = "columns that reveal the target are not looked for"


@dataclass(frozen=True)
class _Rows:
    """A sample of a client's training rows, by their positions."""

    table: ClientTable
    labels: pd.Series
    positions: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def names(self) -> list[str]:
        return [*map(str, self.table.features)]

    @property
    def target(self) -> pd.Series:
        return self.labels.iloc[self.positions]

    def features(self, names: Sequence[str]) -> pd.DataFrame:
        rows = self.table.features.iloc[self.positions]
        return rows if len(names) == rows.shape[1] else rows[[*names]]

    def at_most(self, rows: int) -> _Rows:
        return _Rows(self.table, self.labels, sampled(self.positions, rows))


@dataclass(frozen=True)
class _Score:
    """How well a column predicts the target: the R², with the rows and clients that it is computed
    from.
    """

    value: float
    rows: int
    clients: tuple[str, ...]


def leaks(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find columns that nearly determine the target, and say for which clients they could not be
    looked for.
    """
    targets = dict[tuple[str, bool], list[_Rows]]()
    for table in tables:
        strata = strata_of(table.target, outcome_at(table))
        target = table.target if strata is None else strata
        if strata is None and (isinstance(target.name, tuple) or not is_number(target)):
            text = f"{_UNSEEN}: it is neither one of several classes nor a number"
            yield Note(text, "not looked for", clients=(table.name,))
            continue
        sample = _Rows(table, target, sampled(np.sort(table.splits["train"]), ROWS))
        targets.setdefault((str(target.name), strata is not None), []).append(sample)
    for (name, classes), samples in targets.items():
        yield from _leaks(name, classes, samples)


def _leaks(target: str, classes: bool, samples: Sequence[_Rows]) -> Iterator[Note]:
    """Find the columns that predict one target."""
    surely = ALMOST if classes else _SURELY_NUMBER
    holders = dict[str, list[str]]()
    best = dict[str, _Score]()
    examined = set[str]()
    for sample in samples:
        for name in dict.fromkeys(raw_column(sample.table, typed) for typed in sample.names):
            holders.setdefault(name, []).append(sample.table.name)
    for name, score in _scored(classes, samples):
        examined |= {*score.clients}
        if score.value > best.get(name, score).value or name not in best:
            best[name] = score
    for name, score in best.items():
        if ALMOST <= score.value < surely:
            text = (
                f"alone tells most of {target} (R² {score.value:.3f} in "
                f"{counted(score.rows, 'training row')})"
            )
            yield Note(text, "predicts", clients=holders[name], column=name)
        elif score.value >= surely:
            rows = counted(score.rows, "training row")
            clients = counted(len(score.clients), "client")
            at_client = ""
            if len(score.clients) == 1 < len(holders[name]):
                at_client = f" at {score.clients[0]}"
            text = (
                f"alone predicts {target}{at_client} (R² {score.value:.3f} in {rows} of {clients}); "
                "is it known when the prediction is made? If not, drop it; if so, write why in "
                "data.known"
            )
            counts = {"rows": score.rows}
            yield Note(
                text,
                "leak",
                clients=holders[name],
                column=name,
                fix={"drop": [name]},
                counts=counts,
            )
    if len(samples) > _POOLED_CLIENTS and examined:
        return  # A sample of many clients stands for all of them.
    for sample in samples:
        if sample.table.name not in examined:
            training_rows = counted(len(sample), "training row")
            text = f"{_UNSEEN}: {training_rows}, or too few of a second class"
            yield Note(text, "not looked for", clients=(sample.table.name,))


def _scored(classes: bool, samples: Sequence[_Rows]) -> Iterator[tuple[str, _Score]]:
    """Yield the scores of raw columns: at each client, then, unless each has enough rows, in the
    rows of all clients that have the same columns.
    """
    largest = max(len(sample) * sample.table.features.shape[1] for sample in samples)
    most = max(_FEWEST_ALONE, min(_MOST_ALONE, _CELLS // max(largest, 1)))
    alone = sampled(np.arange(len(samples)), most).tolist()
    enough = len(alone) == len(samples)
    for sample in (samples[position] for position in alone):
        scores = list(_scores_of(classes, [sample], sample.names))
        enough &= bool(scores) and len(sample) >= _ENOUGH
        yield from scores
    if enough:
        return
    chosen = sampled(np.arange(len(samples)), _POOLED_CLIENTS)
    few = max(1, _POOLED_ROWS // len(chosen))
    pooled = [samples[position].at_most(few) for position in chosen.tolist()]
    together = dict[tuple[int, ...], list[str]]()
    kinds = dict[tuple[str, bool], list[int]]()
    for position, sample in enumerate(pooled):
        categories = {*sample.table.categorical}
        for name in sample.names:
            kinds.setdefault((name, name in categories), []).append(position)
    for (name, _), positions in kinds.items():
        together.setdefault(tuple(positions), []).append(name)
    for holders, names in together.items():
        if len(holders) > 1:
            yield from _scores_of(classes, [pooled[position] for position in holders], names)


def _scores_of(
    classes: bool, samples: Sequence[_Rows], names: Sequence[str]
) -> Iterator[tuple[str, _Score]]:
    """Yield the scores of columns in the rows of some clients together; none if there are too
    few.
    """
    if sum(map(len, samples)) < _FEWEST:
        return
    target = pd.concat([sample.target for sample in samples])
    if classes:
        answers = pd.get_dummies(target, dtype=float).to_numpy()
    else:
        answers = target.rank(pct=True).to_frame().to_numpy()
    answers = answers[:, answers.sum(axis=0) >= _FEWEST_OF_CLASS]
    owners = np.repeat(np.arange(len(samples)), [*map(len, samples)])
    within = _variation(answers, owners) / (len(target) - len(samples))
    if within < _NOTHING:
        return
    table = samples[0].table
    clients = tuple(sample.table.name for sample in samples)
    for start in range(0, len(names), COLUMNS):
        some = list(names[start : start + COLUMNS])
        columns = pd.concat([sample.features(some) for sample in samples])
        unexplained = _unexplained(_bins(columns, table.categorical), answers)
        for name, score in zip(some, (1 - unexplained / within).tolist(), strict=True):
            yield raw_column(table, name), _Score(score, len(target), clients)


def _variation(answers: np.ndarray, owners: np.ndarray) -> float:
    """Return the sum of squares of answers (n, k) about the means of their clients, so that a column
    that only tells clients apart explains none of it.
    """
    if not answers.size:
        return 0.0
    totals = np.stack([np.bincount(owners, answer) for answer in answers.T])
    return float((answers**2).sum() - (totals**2 / np.bincount(owners)).sum())


def _bins(columns: pd.DataFrame, categorical: Sequence[str]) -> np.ndarray:
    """Return a bin for each cell (n, d): the code of a category, or one of bins with roughly equal
    numbers of rows. Equal numbers share a bin, and so do missing ones.
    """
    coded = np.array([name in categorical for name in columns])
    numbers = columns.loc[:, ~coded].astype(np.float64)
    bins = np.empty(columns.shape, np.int64)
    first = numbers.rank(method="min", na_option="bottom").to_numpy().astype(np.int64) - 1
    last = numbers.rank(method="max", na_option="bottom").to_numpy().astype(np.int64) - 1
    most = min(_BINS, len(bins) // _ROWS_OF_BIN)
    frequent = last - first >= len(bins) // most  # has a bin of its own
    bins[:, ~coded] = 2 * (first * most // len(bins)) + frequent
    for position in np.flatnonzero(coded).tolist():
        bins[:, position] = pd.factorize(columns.iloc[:, position])[0] + 1
    return bins


def _unexplained(bins: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the variance of indicators of classes, or ranks (n, k), that each column's bins (n, d)
    leave unexplained: (d,). It is infinite for columns with fewer than two rows in a bin.
    """
    rows, columns = bins.shape
    width = int(bins.max()) + 1
    cells = (bins + width * np.arange(columns)).ravel()
    counts = np.bincount(cells, minlength=columns * width).reshape(columns, width)
    used = (counts > 0).sum(axis=1)
    explained = np.zeros(columns)
    for answer in answers.T:
        totals = np.bincount(cells, np.repeat(answer, columns), columns * width).reshape(
            columns, width
        )
        explained += (totals**2 / np.maximum(counts, 1)).sum(axis=1)
    unexplained = (answers**2).sum() - explained
    return np.where(2 * used <= rows, unexplained / np.maximum(rows - used, 1), np.inf)
