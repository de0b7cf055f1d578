"""A client's table as a source hands it over: raw columns, target, splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPLITS", "ClientTable", "Split"]

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class ClientTable:
    """One client's rows, before any encoding.

    Attributes:
        name: the client's name.
        features: one column per feature, one row per row of the source; the index holds the row's number in the
            source file (0 is its first data row).
        target: the label of each row, in the source's own values, with the same index as ``features``.
        splits: for ``"train"``, ``"validation"`` and ``"test"`` the *positions* (int64, shape (n_split,)) of its
            rows in ``features``.
        categorical: the names of the columns that hold categories; all others hold numbers.
        positive: the label that counts as positive where there are two; the larger one if None.
    """

    name: str
    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()
    positive: Any = None
