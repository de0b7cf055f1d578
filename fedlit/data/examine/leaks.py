"""Finds columns that alone predict the target: bins learnt on half of the training rows are scored on
the other half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import ClientFacts, is_number, sampled
from fedlit.data.note import Note

ALMOST = 0.98
"""AUROC, or R² of ranks, of one column alone from which it is suspected."""
ROWS = 5_000
"""Training rows that are looked at; of wide tables (more than :data:`WIDE` columns) fewer."""
WIDE, ROWS_OF_WIDE = 300, 1_500
_FEWEST, _FEWEST_OF_CLASS = 40, 8
_BINS, _ROWS_OF_BIN, _MOST_CODES = 32, 4, 500
_PRIOR = 1e-3  # rows of the mean answer in each bin: it is all that is known of an empty one


def leaks(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find columns that nearly determine their client's target."""
    for own in clients:
        table, wide = own.table, len(own.columns) > WIDE
        rows = sampled(np.sort(table.splits["train"]), ROWS_OF_WIDE if wide else ROWS)
        target = table.target.iloc[rows]
        if isinstance(target.name, tuple) or len(rows) < _FEWEST:
            continue
        if own.task != "classification":
            answers = target.rank(pct=True).to_numpy()[:, None] if is_number(target) else np.empty((0, 0))
        else:
            answers = pd.get_dummies(target, dtype=float).to_numpy()
            answers = answers[:, np.minimum(answers.sum(0), len(rows) - answers.sum(0)) >= _FEWEST_OF_CLASS]
            answers = answers[:, 1:] if answers.shape[1] == 2 else answers  # the other one says the same
        if not answers.size or not np.ptp(answers, axis=0).any():
            continue
        few, by_raw = table.features.iloc[rows], dict[str, float]()
        codes = [name for name in map(str, few) if name in table.categorical]
        numbers = [name for name in map(str, few) if name not in table.categorical]
        measure = "AUROC" if own.task == "classification" else "R² of ranks"
        for start in range(0, len(numbers), WIDE):
            some = numbers[start : start + WIDE]
            scores = _scores(_binned(few[some].to_numpy(np.float64)), answers, measure)
            by_raw |= dict(zip(some, scores.tolist(), strict=True))
        for name in codes:
            bins = few[name].factorize()[0][:, None] + 1
            by_raw[name] = float(_scores(np.minimum(bins, _MOST_CODES), answers, measure)[0])
        for name, score in by_raw.items():
            if score >= ALMOST:
                raw = name if table.schema is None or name in table.schema.columns else name.rpartition(".")[0]
                text = f"alone predicts {target.name} almost perfectly ({measure} {score:.3f})"
                yield Note(text, "leak", clients=(own.client,), column=raw, fix={"drop": [raw]})


def _binned(numbers: np.ndarray) -> np.ndarray:
    """Cut columns (n, d) into bins of roughly equal numbers of rows. Equal numbers share a bin, and so
    do missing ones.
    """
    from scipy.stats import rankdata

    held = np.where(np.isnan(numbers), np.inf, numbers)
    first, last = (rankdata(held, method, axis=0).astype(np.int64) - 1 for method in ("min", "max"))
    most = min(_BINS, max(2, len(held) // 2 // _ROWS_OF_BIN))
    frequent = last - first >= len(held) // most  # has a bin of its own
    bins: np.ndarray = 2 * (first * most // len(held)) + frequent
    return bins


def _scores(bins: np.ndarray, answers: np.ndarray, measure: str) -> np.ndarray:
    """Return how well each column's bins (n, d) predict classes or ranks (n, k), averaged over both halves: (d,)."""
    columns, width = bins.shape[1], int(bins.max()) + 1
    places = bins + width * np.arange(columns)
    scores = np.zeros(columns)
    for half in (0, 1):
        fit, rest = slice(half, None, 2), slice(1 - half, None, 2)

        def summed(rows: slice, of: np.ndarray) -> np.ndarray:
            total = np.bincount(places[rows].ravel(), np.repeat(of[rows], columns), columns * width)
            return total.reshape(columns, width)

        every = np.ones(len(bins))
        for answer in answers.T:
            expected = (summed(fit, answer) + _PRIOR * answer[fit].mean()) / (summed(fit, every) + _PRIOR)
            if measure == "AUROC":
                order = np.argsort(expected, axis=1)
                here = np.take_along_axis(summed(rest, answer), order, axis=1)
                gone = np.take_along_axis(summed(rest, 1 - answer), order, axis=1)
                right = (here * (gone.cumsum(axis=1) - gone / 2)).sum(axis=1)
                scores += right / np.maximum(here.sum(axis=1) * gone.sum(axis=1), 1)
            else:
                wrong = (answer[rest, None] - expected.ravel()[places[rest]]) ** 2
                scores += 1 - wrong.mean(axis=0) / max(answer[rest].var(), 1e-300)
    mean: np.ndarray = scores / (2 * answers.shape[1])
    return mean
