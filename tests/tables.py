"""Small made tables for tests of what is done with columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.table import SPLITS, ClientTable

N = 20


def table(
    name: str,
    columns: dict[str, Any],
    target: Sequence[Any] | None = None,
    *,
    categorical: Sequence[str] = (),
    positive: Any = None,
    seed: int = 0,
) -> ClientTable:
    """Twenty rows by default, 60 % training, 20 % validation, 20 % test, in an order drawn from the seed."""
    features = pd.DataFrame(columns)
    n = len(features)
    features.index = pd.RangeIndex(100, 100 + n)
    labels = pd.Series(list(target) if target is not None else [0, 1] * (n // 2), index=features.index, name="y")
    order = np.random.default_rng(seed).permutation(n)
    parts = np.split(order, [int(0.6 * n), int(0.8 * n)])
    return ClientTable(name, features, labels, dict(zip(SPLITS, parts, strict=True)), tuple(categorical), positive)


def numbers(seed: int = 1, n: int = N) -> np.ndarray:
    return 50 + 20 * np.random.default_rng(seed).normal(size=n)


def mixed(name: str, seed: int = 0, **more: Any) -> ClientTable:
    """Numbers with and without gaps, categories of text and of numbers."""
    generator = np.random.default_rng(seed)
    gaps = numbers(seed + 1)
    gaps[generator.choice(N, 4, replace=False)] = np.nan
    town = generator.choice(["Bonn", "Köln", "Aachen"], N).astype(object)
    town[generator.choice(N, 3, replace=False)] = None
    columns = {
        "age": numbers(seed),
        "dose": gaps,
        "town": town,
        "ward": generator.choice([1, 2, 7], N),
        **more,
    }
    return table(name, columns, categorical=("town", "ward"), seed=seed)
