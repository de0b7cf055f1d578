"""Reads of DNA as tables: a column for each position, coded alike everywhere, and a text of labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.sources.base import random_split
from fedlit.data.table import ClientTable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BASES", "NO_BASE", "codes_of", "table_of", "texts_of"]

BASES = "ACGNT"
"""The symbols by their codes 0 to 4, sorted as encoders sort categories; N is a base that was not read."""
NO_BASE = -1
"""The code of a position behind a read's end."""


@cache
def _table() -> np.ndarray:
    """Byte → code; −2 for one that is no base."""
    made = np.full(256, -2, np.int8)
    for code, base in enumerate(BASES):
        made[ord(base)] = code
    return made


def codes_of(reads: Sequence[str], length: int) -> np.ndarray:
    """(n, length) int8: codes of bases, −1 behind a read's end; longer reads are cut.

    Args:
        reads: texts of A, C, G, N and T.
        length: positions.

    Example:
        >>> codes_of(["ACGT", "N"], 3).tolist()
        [[0, 1, 2], [3, -1, -1]]
    """
    codes = np.full((len(reads), length), NO_BASE, np.int8)
    for row, read in zip(codes, reads, strict=True):
        own = _table()[np.frombuffer(read[:length].encode("ascii"), np.uint8)]
        row[: len(own)] = own
    return codes


def texts_of(codes: np.ndarray) -> list[str]:
    """The reads that have these codes (n, length), without what is behind their ends.

    Example:
        >>> texts_of(codes_of(["ACGT", "N"], 3))
        ['ACG', 'N']
    """
    letters = np.array([*BASES, ""])
    return ["".join(own) for own in letters[codes].tolist()]


def table_of(
    client: str,
    codes: np.ndarray,
    labels: Sequence[str],
    seed: int,
    test: float,
    validation: float,
    notes: Sequence[str] = (),
) -> ClientTable:
    """A client's table: categories ``p1``, ``p2``, … (with leading zeros) over all :data:`BASES`, missing behind a
    read's end, and the target ``labels``.

    Args:
        client: its name.
        codes: (n, length), see :func:`codes_of`.
        labels: a text of ``length`` labels for each read.
        seed: draws the splits.
        test: the share of reads that are test rows.
        validation: the share of the others that are validation rows.
        notes: what a person should know.
    """
    import pandas as pd

    # declared, so that the codes of all clients are the same whatever their training rows hold
    bases = pd.CategoricalDtype(list(BASES))
    names = position_names(codes.shape[1])
    columns = {name: pd.Categorical.from_codes(codes[:, place], dtype=bases) for place, name in enumerate(names)}
    features = pd.DataFrame(columns)
    return ClientTable(
        name=client,
        features=features,
        target=pd.Series(list(labels), features.index, name="labels", dtype=object),
        splits=random_split(len(features), seed, test, validation, client),
        categorical=tuple(names),
        task="sequence_labelling",
        notes=tuple(notes),
    )


def position_names(length: int) -> list[str]:
    """Names of the columns, whose order as text is that of positions.

    Example:
        >>> position_names(10)[:2]
        ['p01', 'p02']
    """
    digits = len(str(length))
    return [f"p{place + 1:0{digits}}" for place in range(length)]


def codes_in(features: pd.DataFrame) -> np.ndarray:
    """The codes (n, length) that a table's columns hold."""
    return np.stack([features[name].cat.codes.to_numpy() for name in features], 1)
