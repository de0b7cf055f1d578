"""Columns that nearly determine the target: each alone, by a decision tree on training rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.examine.facts import is_number, quantiles_of, sampled, task_of
from fedlit.data.note import Note
from fedlit.data.table import ClientTable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["leaks"]

ALMOST = 0.98
"""AUROC, balanced accuracy or R² of one column alone from which it is suspected."""
ROWS = 5_000
"""Training rows that are looked at; of wide tables (more than :data:`WIDE` columns) fewer."""
WIDE, ROWS_OF_WIDE = 300, 1_500
_FEWEST, _FEWEST_OF_CLASS = 40, 8
_WORTH_A_TREE = 0.85  # of the first, rough look
_BINS = 64
_FOLDS = 5


def leaks(table: ClientTable) -> list[Note]:
    """Find the columns of a client that nearly determine its target."""
    if getattr(table.target, "ndim", 1) != 1:
        return []
    wide = table.features.shape[1] > WIDE
    rows = sampled(np.sort(table.splits["train"]), ROWS_OF_WIDE if wide else ROWS)
    classes = task_of(table) == "classification"
    target = table.target.iloc[rows]
    y = _codes(target) if classes else target.to_numpy(np.float64) if is_number(target) else None
    if y is None or not _enough(y, classes):
        return []
    return [
        found
        for name, column in table.features.iloc[rows].items()
        if (found := _leak(table, str(name), column, target, y, classes)) is not None
    ]


def _enough(y: np.ndarray, classes: bool) -> bool:
    if len(y) < _FEWEST:
        return False
    if not classes:
        return bool(np.ptp(y) > 0)
    counts = np.bincount(y)
    return len(counts) > 1 and bool(np.sort(counts)[-2] >= _FEWEST_OF_CLASS)


def _codes(values: pd.Series) -> np.ndarray:
    codes, _ = values.factorize()
    return codes.astype(np.int64)


def _leak(
    table: ClientTable, name: str, column: pd.Series, target: pd.Series, y: np.ndarray, classes: bool
) -> Note | None:
    categories = name in table.categorical
    x = _codes(column) if categories else column.to_numpy(np.float64, na_value=np.nan)
    if _is_copy(x, y, classes):
        what = f"each value goes with one {'class' if classes else 'number'} of {target.name}: a copy of the target?"
        return _finding(table, name, what)
    if _rough(_bins(x, categories), y, classes) < _WORTH_A_TREE:
        return None
    score = _cross_validated(x, y, classes, categories)
    if score < ALMOST:
        return None
    kind = "R²" if not classes else "AUROC" if y.max() == 1 else "balanced accuracy"
    return _finding(table, name, f"alone it tells {target.name} almost surely ({kind} {score:.3f})")


def _finding(table: ClientTable, name: str, what: str) -> Note:
    schema = table.schema
    raw = name if schema is None or name in schema.columns else name.rpartition(".")[0]
    advice = "Is it known when the prediction is made? If not, drop it."
    return Note(what, "leak", clients=(table.name,), column=raw, fix={"drop": [raw]}, advice=advice)


def _is_copy(x: np.ndarray, y: np.ndarray, classes: bool) -> bool:
    """Return whether values and classes go one with one; for numbers, whether their order is the same."""
    if not classes:
        own = np.isfinite(x)
        if own.sum() < _FEWEST or (x[own] == x[own][0]).all() or (y[own] == y[own][0]).all():
            return False
        first, second = (np.unique(values[own], return_inverse=True)[1] for values in (x, y))
        return bool(abs(np.corrcoef(first, second)[0, 1]) > 0.9999)
    if np.isnan(x).any():
        return False
    values, codes = np.unique(x, return_inverse=True)
    if len(values) != y.max() + 1:
        return False
    return len(np.unique(codes * (y.max() + 1) + y)) == len(values)


def _bins(x: np.ndarray, categories: bool) -> np.ndarray:
    """(n,) int64: values in order, in at most so many bins; a place of its own for missing ones."""
    if categories:
        return np.asarray(x - x.min(), np.int64)
    missing = np.isnan(x)
    held = np.sort(x[~missing])
    edges = np.unique(quantiles_of(held, np.linspace(0, 1, _BINS + 1)[1:-1])) if len(held) else held
    return np.where(missing, _BINS, np.searchsorted(edges, x, side="left")).astype(np.int64)


def _rough(bins: np.ndarray, y: np.ndarray, classes: bool) -> float:
    """Score bins on the rows that they were made of. That flatters them, so nothing is overlooked."""
    if not classes:
        sizes = np.bincount(bins)
        means = np.bincount(bins, y) / np.maximum(sizes, 1)
        return float(1 - np.mean((y - means[bins]) ** 2) / np.var(y))
    number = y.max() + 1
    table = np.bincount(bins * number + y, minlength=(bins.max() + 1) * number).reshape(-1, number)
    return float((table / table.sum(0)).max(1).sum() / number)


def _cross_validated(x: np.ndarray, y: np.ndarray, classes: bool, categories: bool) -> float:
    """AUROC, balanced accuracy or R² on rows that the tree has not seen."""
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if classes:
        common = np.isin(y, np.flatnonzero(np.bincount(y) >= _FOLDS))
        x, y = x[common], np.unique(y[common], return_inverse=True)[1]
    depth = None if categories else 3  # codes have no order: each may have a leaf of its own
    tree: Any = (DecisionTreeClassifier if classes else DecisionTreeRegressor)(max_depth=depth, random_state=0)
    folds = (StratifiedKFold if classes else KFold)(_FOLDS, shuffle=True, random_state=0)
    scoring = "r2" if not classes else "roc_auc" if y.max() == 1 else "balanced_accuracy"
    return float(cross_val_score(tree, x[:, None], y, cv=folds, scoring=scoring).mean())
