"""Columns that nearly determine the target: each alone, by a decision tree on training rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedlit.data.examine.facts import ClientFacts, sampled
from fedlit.data.note import Note

__all__ = ["leaks"]

ALMOST = 0.98
"""AUROC, balanced accuracy or R² (of ranks) of one column alone from which it is suspected."""
ROWS = 5_000
"""Training rows that are looked at; of wide tables (more than :data:`WIDE` columns) fewer."""
WIDE, ROWS_OF_WIDE = 300, 1_500
_FEWEST, _FEWEST_OF_CLASS = 40, 8
_WORTH_A_TREE = 0.8  # of the first, rough look
_BINS, _FOLDS = 32, 5


def leaks(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Columns that nearly determine their client's target."""
    for own in clients:
        table = own.table
        wide = table.features.shape[1] > WIDE
        rows = sampled(np.sort(table.splits["train"]), ROWS_OF_WIDE if wide else ROWS)
        target = table.target.iloc[rows]
        y: np.ndarray | None = None
        if own.classes:
            y = target.factorize()[0].astype(np.int64)
        elif own.quantiles:
            y = target.rank().to_numpy(np.float64)  # so that any monotone function of the target is found
        if y is None or not _enough(y):
            continue
        few = table.features.iloc[rows]
        columns = {name: few[name].factorize()[0].astype(np.float64) for name in table.categorical}
        numbers = [name for name in map(str, few) if name not in columns]
        columns |= dict(zip(numbers, few[numbers].to_numpy(np.float64).T, strict=True))
        for name in map(str, few):
            if said := _tells(columns[name], y, name in table.categorical):
                raw = name if table.schema is None or name in table.schema.columns else str(name).rpartition(".")[0]
                text = f"alone tells {target.name} almost surely ({said})"
                yield Note(text, "leak", clients=(own.client,), column=str(raw), fix={"drop": [str(raw)]})


def _enough(y: np.ndarray) -> bool:
    if y.dtype.kind == "f":
        return len(y) >= _FEWEST and bool(np.ptp(y) > 0)
    counts = np.sort(np.bincount(y))
    return len(y) >= _FEWEST and len(counts) > 1 and bool(counts[-2] >= _FEWEST_OF_CLASS)


def _tells(x: np.ndarray, y: np.ndarray, codes: bool) -> str:
    """How well a column (n,) tells classes (n,) int64 or numbers (n,) float64, if that is suspicious."""
    x = np.unique(x, return_inverse=True)[1]  # ranks; what is missing comes last
    if _rough(x, y) < _WORTH_A_TREE:
        return ""
    name, score = _cross_validated(x, y, codes)
    return f"{name} {score:.3f}" if score >= ALMOST else ""


def _rough(ranks: np.ndarray, y: np.ndarray) -> float:
    """Balanced accuracy or R² of bins that half of the rows made, on the others."""
    edges = np.unique(np.sort(ranks)[np.linspace(0, len(ranks) - 1, _BINS).astype(np.int64)])
    bins = np.searchsorted(edges, ranks)
    fit, rest = slice(0, None, 2), slice(1, None, 2)
    if y.dtype.kind == "f":
        mean = y[fit].mean()  # stands in where a bin has no row of this half
        means = mean + np.bincount(bins[fit], y[fit] - mean, _BINS) / np.maximum(np.bincount(bins[fit], None, _BINS), 1)
        return float(1 - np.mean((y[rest] - means[bins[rest]]) ** 2) / max(np.var(y[rest]), 1e-300))
    classes = y.max() + 1
    counts = np.bincount(bins[fit] * classes + y[fit], minlength=_BINS * classes).reshape(-1, classes)
    right = (counts / np.maximum(counts.sum(0), 1)).argmax(1)[bins[rest]] == y[rest]
    rows = np.bincount(y[rest], minlength=classes)
    return float((np.bincount(y[rest], right, classes) / np.maximum(rows, 1))[rows > 0].mean())


def _cross_validated(x: np.ndarray, y: np.ndarray, codes: bool) -> tuple[str, float]:
    """A score and its value on rows that the tree has not seen."""
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    depth = None if codes or len(np.unique(x)) <= _BINS else 4  # each code may have a leaf of its own
    if y.dtype.kind == "f":
        tree: Any = DecisionTreeRegressor(max_depth=depth, random_state=0)
        folds, score, name = KFold(_FOLDS, shuffle=True, random_state=0), "r2", "R² of ranks"
    else:
        common = np.isin(y, np.flatnonzero(np.bincount(y) >= _FOLDS))
        x, y = x[common], np.unique(y[common], return_inverse=True)[1]
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
        score, name = ("roc_auc", "AUROC") if y.max() == 1 else ("balanced_accuracy", "balanced accuracy")
    return name, float(cross_val_score(tree, x[:, None], y, cv=folds, scoring=score).mean())
