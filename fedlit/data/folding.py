"""A client's table with one of several folds as its validation rows, so that models of all folds predict every row once
without having seen it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlit.data.folds import check_folds, fold_of
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable, Split
from fedlit.data.target import own_task
from fedlit.errors import ConfigError

__all__ = ["check_fold", "fold_note", "folded"]

_NUMBERS = ("regression", "counts")


def check_fold(folds: int, fold: int) -> None:
    """Refuse a fold that there is not.

    Raises:
        ConfigError: one fold alone, or a fold outside of 0 to ``folds`` − 1.
    """
    check_folds(folds, "data.folds")
    if isinstance(fold, bool) or not 0 <= fold < max(folds, 1):
        known = f"0 to {folds - 1}" if folds else "0, for data.folds is 0"
        raise ConfigError(f"data.fold: expected {known}, found {fold}")


def folded(table: ClientTable, folds: int, fold: int, seed: int) -> ClientTable:
    """The table whose validation rows are one fold of its training and validation rows, and whose training rows are
    all others. Test rows are untouched.

    Args:
        table: a client's, with the splits of its source.
        folds: how many; see :func:`fedlit.data.folds.fold_of`, which deals the rows.
        fold: which is for validation.
        seed: the run's.

    Raises:
        DataError: fewer rows than folds; names the client.
    """
    number = table.features.index.to_numpy()
    places = np.concatenate([table.splits["train"], table.splits["validation"]])
    places = places[np.argsort(number[places], kind="stable")]  # whatever the split that the source gives
    target = table.target.iloc[places]
    task = own_task(table.task, table.name)
    numbers = pd.to_numeric(target, errors="coerce") if task is not None and task["name"] in _NUMBERS else None
    y = pd.factorize(target)[0] if numbers is None or numbers.isna().any() else numbers.to_numpy(np.float64)
    held = fold_of(y, folds, seed, table.name) == fold
    splits: dict[Split, np.ndarray] = {**table.splits, "train": places[~held], "validation": places[held]}
    return replace(table, splits=splits)


def fold_note(folds: int, fold: int, source: Source) -> list[str]:
    """What a person should know of folds: which one is held out, and whether rows are parted that belong together."""
    if not folds:
        return []
    split = getattr(source, "split", None)
    splits = [split, *split.values()] if isinstance(split, dict) else []
    kept = {own[way] for own in splits if isinstance(own, dict) for way in ("group", "time") if way in own}
    apart = (
        f"; by row, although data.source.split keeps rows of one {' or '.join(sorted(kept))} together" if kept else ""
    )
    return [
        f"training and validation rows are dealt into {folds} folds; fold {fold} is the validation rows, and "
        f"the others are trained on{apart}"
    ]
