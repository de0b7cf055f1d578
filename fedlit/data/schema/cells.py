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
        name: The name of the column.
        texts: The distinct texts, without surrounding blanks and with single blanks inside.
        codes: (n,) the position of each cell's text; −1 if the cell is missing.
        hidden: The number of cells with invisible letters, which are removed.

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
        if values.dtype.kind == "M":
            values = _written(values)
        try:
            codes, different = pd.factorize(values)
        # Python cannot hash nested cells, and Arrow cannot encode its own types.
        except (TypeError, NotImplementedError):
            codes, different = pd.factorize(values.astype(object).map(str, na_action="ignore"))
        written = [plain_text(text) for text in different]
        has_hidden = np.array(
            [not text.isascii() and INVISIBLE.search(text) is not None for text in written], bool
        )
        visible = [
            INVISIBLE.sub("", text) if hidden else text
            for text, hidden in zip(written, has_hidden, strict=True)
        ]
        plain = [_SPACES.sub(" ", text).strip() for text in visible]
        plain_codes, texts = pd.factorize(np.array(plain, object))
        hidden_cells = int(has_hidden[codes[codes >= 0]].sum())
        return cls(str(values.name), list(texts), _taken(plain_codes, codes, -1), hidden_cells)

    @property
    def counts(self) -> np.ndarray:
        """How often each text occurs."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))

    def without(
        self,
        missing: Iterable[str | float],
        not_missing: Collection[str] = (),
        missing_words: frozenset[str] = MISSING,
    ) -> tuple[Cells, dict[str, int]]:
        """Return the cells that have a value, and how often each word for a missing value occurs.

        Args:
            missing: Further words in lower case, and numbers, that mean missing.
            not_missing: Words in lower case that are values in this column.
            missing_words: The words that mean missing in every column.
        """
        further = list(missing)
        gone = {*missing_words, *map(plain_text, further), *map(str, further)}.difference(
            not_missing
        )
        positions = [
            position for position, text in enumerate(self.texts) if text.casefold() not in gone
        ]
        if len(positions) == len(self.texts):
            return self, {}
        counts = dict(zip(self.texts, self.counts.tolist(), strict=True))
        texts = [self.texts[position] for position in positions]
        again = np.full(len(self.texts), -1)
        again[positions] = np.arange(len(positions))
        gaps = {text: count for text, count in counts.items() if text and text.casefold() in gone}
        return replace(self, texts=texts, codes=_taken(again, self.codes, -1)), gaps

    def part(self, rows: np.ndarray) -> tuple[Cells, np.ndarray]:
        """Return some of the cells, by their positions, and the positions of their texts among all.

        Example:
            >>> cells, texts = Cells.of(pd.Series(["a", "b", "c", "b"])).part(np.array([1, 2, 3]))
            >>> cells.texts, cells.codes.tolist(), texts.tolist()
            (['b', 'c'], [0, 1, 0], [1, 2])
        """
        codes = self.codes[rows]
        filled = codes >= 0
        part_codes = np.full(len(codes), -1)
        part_codes[filled], positions = pd.factorize(codes[filled])
        texts = [self.texts[position] for position in positions.tolist()]
        return replace(self, texts=texts, codes=part_codes), positions

    @property
    def notes(self) -> list[Note]:
        """A note on invisible letters, if there are any."""
        if not self.hidden:
            return []
        text = f"{counted(self.hidden, 'cell')} with invisible letters, which are left out"
        return [Note(text, "spelling")]

    def shown(self, chosen: np.ndarray) -> str:
        """List some of the texts, with the number of their cells."""
        return shorten(
            [
                f"{self.texts[position]!r} ({self.counts[position]:,})"
                for position in np.flatnonzero(chosen)
            ]
        )

    def take(self, values: np.ndarray, gap: Any = np.nan) -> np.ndarray:
        """Expand one value for each text to one for each cell (n,); missing cells become
        ``gap``.
        """
        return _taken(values, self.codes, gap)


def _taken(values: np.ndarray, codes: np.ndarray, gap: Any) -> np.ndarray:
    dtype = object if values.dtype == object else None
    with_gap: np.ndarray = np.append(values, np.array([gap], dtype))
    taken: np.ndarray = with_gap[codes]
    return taken


def plain_text(cell: object) -> str:
    """Return a cell as text. A whole number is written exactly: 1000001, not 1e+06."""
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


def _written(times: pd.Series) -> pd.Series:
    """Write times that a file stores as ISO 8601, days without midnight."""
    if not isinstance(times.dtype, np.dtype):  # They are times with a zone, or Arrow's days.
        return times.astype(object).map(str, na_action="ignore")
    texts = pd.Series(
        np.datetime_as_string(times.to_numpy("datetime64[s]")), times.index, name=times.name
    )
    return texts.str.removesuffix("T00:00:00").where(times.notna())


def true_or_false(value: object) -> bool | None:
    """Return the truth value that a cell stands for, or None.

    Example:
        >>> true_or_false("Ja"), true_or_false("0"), true_or_false("perhaps")
        (True, False, None)
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    folded = str(value).casefold()
    if folded in TRUE:
        return True
    if folded in FALSE:
        return False
    return ONE_AND_ZERO.get(folded)
