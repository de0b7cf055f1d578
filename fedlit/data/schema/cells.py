"""The cells of a column as distinct texts, before their type is known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import MISSING
from fedlit.data.reading.raw import INVISIBLE

TRUE = frozenset({"true", "t", "yes", "y", "ja", "j", "oui", "si", "sí", "sim", "wahr", "vrai", "on"})
FALSE = frozenset({"false", "f", "no", "n", "nein", "non", "não", "falsch", "faux", "off"})
ONE_AND_ZERO = {"1": True, "1.0": True, "0": False, "0.0": False}

_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Cells:
    """The cells of a column, stored as distinct texts and codes.

    Attributes:
        name: the column's.
        texts: the distinct texts, without surrounding blanks and with single blanks inside.
        codes: (n,) the position of each cell's text; −1 if the cell is missing.
        hidden: the number of cells with invisible letters, which are removed.

    Example:
        >>> cells = Cells.of(pd.Series([" a  b", "NA", 1.0, None], name="x"))
        >>> cells.texts, cells.without(())[0].texts, cells.codes.tolist()
        (['a b', 'NA', '1'], ['a b', '1'], [0, 1, 2, -1])
    """

    name: str
    texts: list[str]
    codes: np.ndarray
    hidden: int = 0

    @classmethod
    def of(cls, values: pd.Series) -> Cells:
        """Convert cells (n,) of any type to text."""
        try:
            codes, different = pd.factorize(values)
        except TypeError:  # lists and the like
            codes, different = pd.factorize(values.map(str, na_action="ignore"))
        written = [plain_text(own) for own in different]
        plain = [_SPACES.sub(" ", own if own.isascii() else INVISIBLE.sub("", own)).strip() for own in written]
        again, texts = pd.factorize(np.array(plain, object))
        marked = [place for place, own in enumerate(written) if not own.isascii() and INVISIBLE.search(own)]
        hidden = int(np.isin(codes, marked).sum()) if marked else 0
        return cls(str(values.name), list(texts), _taken(again, codes, -1), hidden)

    @property
    def counts(self) -> np.ndarray:
        """How often each text occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def without(
        self, missing: Iterable[str | float], kept: Collection[str] = (), words: frozenset[str] = MISSING
    ) -> tuple[Cells, dict[str, int]]:
        """Return the cells that have a value, and how often each word for a missing value occurs.

        Args:
            missing: further words in lower case, and numbers, that mean missing.
            kept: words in lower case that are values in this column.
            words: the words that mean missing in every column.
        """
        further = {
            spelt for own in missing for spelt in ((own,) if isinstance(own, str) else (plain_text(own), repr(own)))
        }
        gone = [
            (text.casefold() in words or text.casefold() in further) and text.casefold() not in kept
            for text in self.texts
        ]
        if not any(gone):
            return self, {}
        places = np.where(gone, -1, np.cumsum(~np.array(gone)) - 1)
        gaps = {text: int(n) for text, n, out in zip(self.texts, self.counts, gone, strict=True) if out and text}
        texts = [text for text, out in zip(self.texts, gone, strict=True) if not out]
        return replace(self, texts=texts, codes=_taken(places, self.codes, -1)), gaps

    @property
    def notes(self) -> list[Note]:
        """A note on invisible letters, if there are any."""
        said = f"{self.hidden:,} cells hold invisible letters, which are left out"
        return [Note(said, "spelling")] if self.hidden else []

    def take(self, values: np.ndarray, gap: Any = np.nan) -> np.ndarray:
        """Expand one value for each text to one for each cell (n,); missing cells become ``gap``."""
        return _taken(values, self.codes, gap)


def _taken(values: np.ndarray, codes: np.ndarray, gap: Any) -> np.ndarray:
    made: np.ndarray = np.append(values, np.array([gap], object if values.dtype == object else None))[codes]
    return made


def plain_text(cell: object) -> str:
    """Return a cell as text. A whole number is written exactly: 1000001, not 1e+06."""
    return str(int(cell)) if isinstance(cell, float | np.floating) and float(cell).is_integer() else str(cell)


def is_text(values: pd.Series) -> bool:
    """Return whether cells are text or arbitrary objects."""
    kind = getattr(values.dtype, "kind", "O")
    return kind == "O" or isinstance(values.dtype, pd.StringDtype | pd.CategoricalDtype)


def plain_types(values: pd.Series) -> pd.Series:
    """Convert Arrow's own types, which only some files have, to the types that are handled here.

    Example:
        >>> import pyarrow as pa
        >>> plain_types(pd.Series([1, None], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))).tolist()
        [1.0, nan]
    """
    if not isinstance(values.dtype, pd.ArrowDtype):
        return values
    import pyarrow as pa

    kind = values.dtype.pyarrow_dtype
    if pa.types.is_decimal(kind):
        return values.astype("float64[pyarrow]").astype(np.float64)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        seconds = pa.chunked_array(pa.array(values.array)).cast(pa.timestamp("s"), safe=False)  # any year
        return pd.Series(seconds.to_pandas().to_numpy(), index=values.index, name=values.name)
    if pa.types.is_time(kind):
        return pd.to_timedelta(values.astype(object).map(str, na_action="ignore"))
    return values.astype(object)


def true_or_false(word: object) -> bool | None:
    """Return the truth value that a word stands for, or None.

    Example:
        >>> true_or_false("Ja"), true_or_false("0"), true_or_false("perhaps")
        (True, False, None)
    """
    if isinstance(word, bool | np.bool_):
        return bool(word)
    low = str(word).casefold()
    return True if low in TRUE else False if low in FALSE else ONE_AND_ZERO.get(low)
