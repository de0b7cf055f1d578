"""Finds columns that alone predict the target, by the adjusted R² of their bins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import is_number, raw_column, sampled, task_of
from fedlit.data.note import Note
from fedlit.data.table import ClientTable

ALMOST = 0.9
"""Adjusted R² of one column alone, for classes or for the ranks of a number, from which it is suspected."""
ROWS, COLUMNS = 2_000, 300
"""Training rows that are looked at, and columns that are looked at together."""
_FEWEST, _FEWEST_OF_CLASS = 40, 8
_BINS, _ROWS_OF_BIN = 32, 4


def leaks(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find columns that nearly determine their client's target."""
    for table in tables:
        rows = sampled(np.sort(table.splits["train"]), ROWS)
        target, few = table.target.iloc[rows], table.features.iloc[rows]
        classes = task_of(table) == "classification"
        if isinstance(target.name, tuple) or len(rows) < _FEWEST or not (classes or is_number(target)):
            continue
        answers = (pd.get_dummies(target, dtype=float) if classes else target.rank(pct=True).to_frame()).to_numpy()
        answers = answers[:, answers.sum(axis=0) >= _FEWEST_OF_CLASS]
        if not answers.var(axis=0).any():
            continue
        for start in range(0, few.shape[1], COLUMNS):
            some = few.iloc[:, start : start + COLUMNS]
            for name, score in zip(some, _scores(_bins(some, table.categorical), answers).tolist(), strict=True):
                if score >= ALMOST:
                    raw = raw_column(table, str(name))
                    text = f"alone predicts {target.name} (R² {score:.3f}); is it known when the prediction is made? "
                    text += "If not, drop it"
                    yield Note(text, "leak", clients=(table.name,), column=raw, fix={"drop": [raw]})


def _bins(columns: pd.DataFrame, categorical: Sequence[str]) -> np.ndarray:
    """Return a bin for each cell (n, d): the code of a category, or one of bins with roughly equal numbers of rows.
    Equal numbers share a bin, and so do missing ones.
    """
    coded = np.array([name in categorical for name in columns])
    numbers, bins = columns.loc[:, ~coded].astype(np.float64), np.empty(columns.shape, np.int64)
    first = numbers.rank(method="min", na_option="bottom").to_numpy().astype(np.int64) - 1
    last = numbers.rank(method="max", na_option="bottom").to_numpy().astype(np.int64) - 1
    most = min(_BINS, len(bins) // _ROWS_OF_BIN)
    frequent = last - first >= len(bins) // most  # has a bin of its own
    bins[:, ~coded] = 2 * (first * most // len(bins)) + frequent
    for place in np.flatnonzero(coded).tolist():
        bins[:, place] = pd.factorize(columns.iloc[:, place])[0] + 1
    return bins


def _scores(bins: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return the adjusted R² with which each column's bins (n, d) predict indicators of classes, or ranks (n, k): (d,).
    It is 0 for columns with fewer than two rows in a bin.
    """
    (rows, columns), width = bins.shape, int(bins.max()) + 1
    places = (bins + width * np.arange(columns)).ravel()
    counts = np.bincount(places, minlength=columns * width).reshape(columns, width)
    used, explained = (counts > 0).sum(axis=1), np.zeros(columns)
    for answer in answers.T:
        totals = np.bincount(places, np.repeat(answer, columns), columns * width).reshape(columns, width)
        explained += (totals**2 / np.maximum(counts, 1)).sum(axis=1) / rows - answer.mean() ** 2
    adjusted = 1 - (1 - explained / answers.var(axis=0).sum()) * (rows - 1) / np.maximum(rows - used, 1)
    return np.where(2 * used <= rows, adjusted, 0)
