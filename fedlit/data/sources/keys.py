"""Hashes of identifiers, by which clients' rows are compared without showing them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlit.data.reading import ReadOptions
from fedlit.data.schema.cells import Cells
from fedlit.data.schema.schema import Schema

_NUMBERING = 1.25
"""Whole numbers whose range is less than this multiple of the rows only number the rows."""


def hashed_keys(schema: Schema, rows: pd.DataFrame, options: ReadOptions) -> dict[str, np.ndarray]:
    """Return the hashes of each identifier's values, without identifiers that only number rows."""
    keys = dict[str, np.ndarray]()
    for name in schema.keys:
        if name in rows:
            hashes = _hashed(rows[name], options.missing_in(name))
            if len(hashes):
                keys[name] = hashes
    return keys


def _hashed(key: pd.Series, missing: tuple[str | float, ...]) -> np.ndarray:
    """Return the distinct values of an identifier as uint64, ascending; none if it only numbers the
    rows.
    """
    cells, _ = Cells.of(key).without(missing)
    texts = np.array(cells.texts, object)
    numbers = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(np.float64)
    # From 2**53 on, different numbers are one float.
    are_exact = bool((np.abs(numbers) < 2**53).all())
    if not cells.texts or (are_exact and np.ptp(numbers) < _NUMBERING * cells.counts.sum()):
        return np.empty(0, np.uint64)
    return np.unique(pd.util.hash_array(numbers if are_exact else texts, categorize=False))
