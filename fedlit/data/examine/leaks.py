"""Finds columns that alone predict the target, by the adjusted R² of their bins.

The search covers each client, and the pooled rows of all clients with the same target, so that
clients with few rows count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.binned import Pools, answers_of, bins_of, unexplained_by, variation
from fedlit.data.examine.facts import is_number, raw_column, sampled
from fedlit.data.grouped import runs
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
_ENOUGH = 200  # If each client has so many training rows, pooled rows reveal nothing more.
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
    alone = [samples[position] for position in sampled(np.arange(len(samples)), most).tolist()]
    enough = len(alone) == len(samples)
    for sample, scores in zip(alone, _scores_alone(classes, alone), strict=True):
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
            pool = [pooled[position] for position in holders]
            (scores,) = _scores_of(classes, [pool], names)
            yield from scores


def _scores_alone(classes: bool, samples: Sequence[_Rows]) -> list[list[tuple[str, _Score]]]:
    """Return the scores of columns at each client; clients with the same columns are examined at
    once.
    """
    scores: list[list[tuple[str, _Score]]] = [[] for _ in samples]
    same_columns = dict[tuple[Any, ...], list[int]]()
    for position, sample in enumerate(samples):
        if len(sample) >= _FEWEST:
            key = tuple(sample.names), sample.table.categorical
            same_columns.setdefault(key, []).append(position)
    for positions in same_columns.values():
        names = samples[positions[0]].names
        for run in runs([len(samples[position]) * len(names) for position in positions]):
            members = positions[run]
            pools = [[samples[position]] for position in members]
            for position, of_client in zip(members, _scores_of(classes, pools, names), strict=True):
                scores[position] = of_client
    return scores


def _scores_of(
    classes: bool, pools: Sequence[Sequence[_Rows]], names: Sequence[str]
) -> list[list[tuple[str, _Score]]]:
    """Return the scores of columns in each pool of rows; none for a pool with too few rows, or too
    few of a second class.

    Args:
        classes: whether the target is one of several classes.
        pools: the clients whose rows are scored together, in each pool.
        names: the columns, which all these clients have, and whose kinds are the same.
    """
    scores: list[list[tuple[str, _Score]]] = [[] for _ in pools]
    samples = [*chain(*pools)]
    pooled = Pools.of(pools)
    target = pd.concat([sample.target for sample in samples])
    answers = answers_of(target, classes, pooled)
    owners = np.repeat(np.arange(len(samples)), [*map(len, samples)])
    clients = np.array([*map(len, pools)])
    within = variation(answers, owners, pooled) / np.maximum(pooled.sizes - clients, 1)
    is_scored = (pooled.sizes >= _FEWEST) & (within >= _NOTHING)
    if not is_scored.any():
        return scores
    for start in range(0, len(names), COLUMNS):
        some = list(names[start : start + COLUMNS])
        columns = pd.concat([sample.features(some) for sample in samples])
        bins = bins_of(columns, samples[0].table.categorical, pooled)
        unexplained = unexplained_by(bins, answers, pooled)
        for position in np.flatnonzero(is_scored).tolist():
            pool = pools[position]
            rows = int(pooled.sizes[position])
            at = tuple(sample.table.name for sample in pool)
            values = (1 - unexplained[position] / within[position]).tolist()
            for name, value in zip(some, values, strict=True):
                raw_name = raw_column(pool[0].table, name)
                scores[position].append((raw_name, _Score(value, rows, at)))
    return scores
