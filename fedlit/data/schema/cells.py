"""The cells of a column as distinct texts, before their type is known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.note import Note
from fedlit.data.reading.options import INVISIBLE, MISSING
from fedlit.show.text import counted, shorten

TRUE = frozenset(
    {"true", "t", "yes", "y", "ja", "j", "oui", "si", "sí", "sim", "wahr", "vrai", "on"}
)
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
        values = _written(values) if values.dtype.kind == "M" else values
        try:
            codes, different = pd.factorize(values)
        # Python cannot hash nested cells, and Arrow cannot encode its own
        except (TypeError, NotImplementedError):
            codes, different = pd.factorize(values.astype(object).map(str, na_action="ignore"))
        written = [plain_text(own) for own in different]
        plain = [
            _SPACES.sub(" ", own if own.isascii() else INVISIBLE.sub("", own)).strip()
            for own in written
        ]
        again, texts = pd.factorize(np.array(plain, object))
        marked = np.array(
            [not own.isascii() and INVISIBLE.search(own) is not None for own in written], bool
        )
        return cls(
            str(values.name),
            list(texts),
            _taken(again, codes, -1),
            int(marked[codes[codes >= 0]].sum()),
        )

    @property
    def counts(self) -> np.ndarray:
        """How often each text occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def without(
        self,
        missing: Iterable[str | float],
        kept: Collection[str] = (),
        words: frozenset[str] = MISSING,
    ) -> tuple[Cells, dict[str, int]]:
        """Return the cells that have a value, and how often each word for a missing value occurs.

        Args:
            missing: further words in lower case, and numbers, that mean missing.
            kept: words in lower case that are values in this column.
            words: the words that mean missing in every column.
        """
        gone = words.union(*((plain_text(own), str(own)) for own in missing)).difference(kept)
        places = [place for place, text in enumerate(self.texts) if text.casefold() not in gone]
        if len(places) == len(self.texts):
            return self, {}
        counts = dict(zip(self.texts, self.counts.tolist(), strict=True))
        texts = [self.texts[place] for place in places]
        again = np.full(len(self.texts), -1)
        again[places] = np.arange(len(places))
        gaps = {text: count for text, count in counts.items() if text and text.casefold() in gone}
        return replace(self, texts=texts, codes=_taken(again, self.codes, -1)), gaps

    @property
    def notes(self) -> list[Note]:
        """A note on invisible letters, if there are any."""
        said = f"{counted(self.hidden, 'cell')} with invisible letters, which are left out"
        return [Note(said, "spelling")] if self.hidden else []

    def shown(self, chosen: np.ndarray) -> str:
        """List some of the texts, with the number of their cells."""
        return shorten(
            [f"{self.texts[place]!r} ({self.counts[place]:,})" for place in np.flatnonzero(chosen)]
        )

    def take(self, values: np.ndarray, gap: Any = np.nan) -> np.ndarray:
        """Expand one value for each text to one for each cell (n,); missing cells become
        ``gap``.
        """
        return _taken(values, self.codes, gap)


def _taken(values: np.ndarray, codes: np.ndarray, gap: Any) -> np.ndarray:
    made: np.ndarray = np.append(
        values, np.array([gap], object if values.dtype == object else None)
    )[codes]
    return made


def plain_text(cell: object) -> str:
    """Return a cell as text. A whole number is written exactly: 1000001, not 1e+06."""
    return (
        str(int(cell))
        if isinstance(cell, float | np.floating) and float(cell).is_integer()
        else str(cell)
    )


def _written(times: pd.Series) -> pd.Series:
    """Write times that a file stores as ISO 8601, days without midnight."""
    if not isinstance(times.dtype, np.dtype):  # times with a zone, and Arrow's days
        return times.astype(object).map(str, na_action="ignore")
    texts = pd.Series(
        np.datetime_as_string(times.to_numpy("datetime64[s]")), times.index, name=times.name
    )
    return texts.str.removesuffix("T00:00:00").where(times.notna())


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
