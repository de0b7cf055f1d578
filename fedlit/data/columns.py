"""How columns become inputs of a network: their categories and indicators, and the encoder of raw
rows. It does not import PyTorch.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from fedlit.data.grouped import MOST_CELLS
from fedlit.data.moments import Moments, standardise
from fedlit.data.schema.cells import plain_text
from fedlit.data.schema.column import TYPES, Kind, type_of
from fedlit.errors import DataError
from fedlit.inputs import Input

Scaling = Literal["client", "pooled", "none"]
Categories = Literal["codes", "indicators", "auto"]
Tail = Literal["", "other", "hashed"]
Item = TypeVar("Item")
NUMBERS: Kind = "numeric"
MOST_INDICATORS = 32
"""Largest number of categories of a column that get an input each."""
BUCKETS = 32
"""Number of inputs that all further categories share."""


def plain_values(values: pd.Series, kind: Kind, where: str) -> np.ndarray:
    """Return the values of a column (n,) as objects if it holds text, otherwise as float64 (true is
    1). Missing values are NaN.

    Raises:
        DataError: text or true/false where another type is expected; begins with ``where``.
    """
    values = values.infer_objects()
    missing = values.isna().to_numpy()
    if missing.all():
        return np.full(len(values), np.nan)
    expected = TYPES[kind]
    value_type = type_of(values)
    if expected == "text":
        # A gap elsewhere may have turned whole numbers into floats; their text is restored.
        if value_type == "numbers":
            texts = values.map(plain_text, na_action="ignore")
        else:
            texts = values.astype(object).astype(str)
        return np.where(missing, np.nan, texts.to_numpy(object))
    if value_type != expected:
        raise DataError(
            f"{where}: expected {expected}, found {value_type} such as {values[~missing].iloc[0]!r}; "
            "write the values as those that were trained on, or mark them as missing"
        )
    if value_type == "true/false":
        values = values.astype("boolean")
    return values.to_numpy(np.float64, na_value=np.nan)


def plain_numbers(frame: pd.DataFrame, names: Sequence[str], where: str) -> np.ndarray:
    """Return columns of numbers as one float64 array (columns, n), NaN where missing.

    Args:
        frame: the rows.
        names: the columns.
        where: the beginning of messages.

    Raises:
        DataError: a column holds something else.

    Example:
        >>> rows = pd.DataFrame({"age": [40, 50], "sex": ["m", "f"], "dose": [1.5, None]})
        >>> plain_numbers(rows, ["age", "dose"], "here")
        array([[40. , 50. ],
               [ 1.5,  nan]])
    """
    columns = frame
    if len(names) < frame.shape[1] or names != frame.columns.tolist():
        columns = frame[[*names]]
    if all(dtype.kind in "iuf" for dtype in columns.dtypes.tolist()):
        return np.ascontiguousarray(columns.to_numpy(np.float64, na_value=np.nan).T)
    numbers = np.empty((len(names), len(frame)))
    for position, name in enumerate(names):
        numbers[position] = plain_values(columns[name], NUMBERS, f"{where}, column {name!r}")
    return numbers


def blocks_of(names: Sequence[Item], rows: int) -> Iterator[Sequence[Item]]:
    """Yield the names of columns in blocks that are encoded at once: as many columns as keep the
    float64 copy of their rows small.

    Example:
        >>> [*blocks_of(["a", "b", "c"], 2_000_000)]
        [['a', 'b'], ['c']]
    """
    width = max(1, MOST_CELLS // max(1, rows))
    for start in range(0, len(names), width):
        yield names[start : start + width]


def categories_of(values: pd.Series, kind: Kind) -> list[Any]:
    """Return the sorted categories of a column, as floats or text. A pandas categorical of text
    counts with all its declared categories, whether or not a row has them.

    Example:
        >>> categories_of(pd.Series(["C", "A"], dtype=pd.CategoricalDtype(["A", "C", "G", "T"])), "categorical")
        ['A', 'C', 'G', 'T']
    """
    if is_declared(values, kind):
        return sorted(map(str, values.cat.categories))
    plain = plain_values(values, kind, str(values.name))
    return sorted(set(plain[~pd.isna(plain)].tolist()))


def named_categories(values: pd.Series, kind: Kind, least: int = 1) -> list[Any]:
    """Return the sorted categories of a column (n,) that may have a name outside the client: those
    that ``least`` rows have, and all that are declared, which say nothing about rows.

    Example:
        >>> named_categories(pd.Series(["Bonn", "Bonn", "Ulm"]), "categorical", 2)
        ['Bonn']
    """
    if least == 1 or is_declared(values, kind):
        return categories_of(values, kind)
    return [label for label, rows in category_rows(values, kind).items() if rows >= least]


def is_declared(values: pd.Series, kind: Kind) -> bool:
    """Return whether a column comes with a list of its categories. Only a source that knows them
    without looking at rows gives it one.
    """
    return isinstance(values.dtype, pd.CategoricalDtype) and kind == "categorical"


def category_rows(values: pd.Series, kind: Kind) -> dict[Any, int]:
    """Map each category of a column (n,), sorted (see :func:`categories_of`), to the number of rows
    that have it.

    Example:
        >>> category_rows(pd.Series(["C", "C"], dtype=pd.CategoricalDtype(["A", "C"])), "categorical")
        {'A': 0, 'C': 2}
    """
    plain = plain_values(values, kind, str(values.name))
    rows = Counter(plain[~pd.isna(plain)].tolist())
    return {label: rows[label] for label in categories_of(values, kind)}


def frequent(
    values: pd.Series, kind: Kind, least: int = 1
) -> tuple[tuple[Any, ...], Tail, tuple[Any, ...]]:
    """Choose the categories of a column (n,) that get an input of their own if coding is ``auto``.

    With up to 32 categories, these are the categories in at least 5 rows (in a table of fewer than
    500 rows, in 1 % of the rows, but at least 2); if only one category is rarer, it gets an input,
    too. With more than 32, these are the 31 most frequent, without those that are rarer than this.
    None of them is in fewer than ``least`` rows.

    Returns:
        The categories that get an input, sorted; how the others are encoded ("" if none are rare);
        and the others, sorted, if there are at most 32 categories in all.

    Example:
        >>> frequent(pd.Series(["a", "a", "b", "b", "c", "d"]), "categorical")
        (('a', 'b'), 'other', ('c', 'd'))
        >>> frequent(pd.Series(["a", "a", "b", "b", "c"]), "categorical", least=2)
        (('a', 'b'), 'other', ('c',))
    """
    plain = plain_values(values, kind, str(values.name))
    labels, counts = np.unique(plain[~pd.isna(plain)].astype(object), return_counts=True)
    often = counts >= max(least, min(5, max(2, len(plain) // 100)))
    if len(labels) <= MOST_INDICATORS:
        if (~often).sum() < 2 and (counts >= least).all():  # One rare category is no group.
            return tuple(labels.tolist()), "", ()
        return tuple(labels[often].tolist()), "other", tuple(labels[~often].tolist())
    first = np.argsort(-counts, kind="stable")[: MOST_INDICATORS - 1]
    return tuple(sorted(labels[first[often[first]]].tolist())), "hashed", ()


def _bucket(label: Any) -> int:
    return zlib.crc32(plain_text(label).encode()) % BUCKETS


def input_names(inputs: Mapping[str, Sequence[str]], where: str = "") -> tuple[str, ...]:
    """Return the names of all inputs.

    Args:
        inputs: maps each column to its inputs.
        where: the beginning of messages.

    Raises:
        DataError: two inputs have the same name.
    """
    taken = Counter(chain(*inputs.values()))
    for column, names in inputs.items():
        clash = sorted(name for name in names if taken[name] > 1)
        if clash:
            raise DataError(
                f"{where}column {column!r}: expected indicators of names that no other column has, "
                f"found {clash!r}; rename one of the two columns"
            )
    return tuple(taken)


@dataclass(frozen=True)
class ColumnEncoder:
    """How one column is encoded, as learnt from training rows.

    Attributes:
        name: the name of the column.
        kind: the kind of the column.
        moments: the moments of its numbers; None if no client has any: the numbers become 0.
        categories: in the order of their codes; one that is not among them counts as missing (as
            none of them, where there are three indicators or more, or coding is ``auto``).
        tail: the encoding of other categories if coding is ``auto``. They share one input
            (``other``), or 32 by a hash of their names (``hashed``), or have none.
        rare: known categories without an input of their own; without a tail they count as unseen.
        gap: whether a missing value has an input of its own.

    Example:
        >>> town = ColumnEncoder("town", "categorical", None, ("Aachen", "Bonn", "Köln"))
        >>> town.inputs("codes"), town.inputs("indicators")
        (['town'], ['town=Aachen', 'town=Bonn', 'town=Köln'])
        >>> town.transform(pd.Series(["Köln", "Ulm"]), "client", "codes", "here")[0].tolist()
        [2, -1]
    """

    name: str
    kind: Kind
    moments: Moments | None = None
    categories: tuple[Any, ...] = ()
    tail: Tail = ""
    rare: tuple[Any, ...] = ()
    gap: bool = False

    def inputs(self, categories: Categories) -> list[str]:
        """Return the names of the inputs that the column becomes."""
        is_binary = len(self.categories) <= 2 and not self.tail
        if self.kind == NUMBERS or categories == "codes" or is_binary:
            suffixes = [""]
        else:
            suffixes = [f"={plain_text(label)}" for label in self.categories]
            if self.tail == "other":
                suffixes.append("=(other)")
            elif self.tail == "hashed":
                suffixes += [f"#{bucket}" for bucket in range(BUCKETS)]
        if self.gap:
            suffixes.append("=(missing)")
        return [f"{self.name}{suffix}" for suffix in suffixes]

    def transform(
        self, values: pd.Series, scaling: Scaling, categories: Categories, where: str
    ) -> list[np.ndarray]:
        """Encode values (n,) and return one array (n,) for each input.

        Raises:
            DataError: values of another type; begins with ``where``.
        """
        declared = values.dtype.categories if isinstance(values.dtype, pd.CategoricalDtype) else ()
        if categories == "codes" and self.categories and tuple(declared) == self.categories:
            # Same result as below in a tenth of the time: sequences have a column per position.
            codes = values.cat.codes.to_numpy()
            return [codes, *([codes < 0] if self.gap else [])]
        plain = self._as_known(plain_values(values, self.kind, where))
        missing = pd.isna(plain)
        gap = [missing] if self.gap else []
        if self.kind == NUMBERS:
            return [self.numbers(plain, scaling), *gap]
        codes = pd.Index(self.categories, dtype=object).get_indexer(pd.Index(plain, dtype=object))
        if categories == "codes":
            return [codes, *gap]
        # A category that training rows do not have is neither of the two.
        if len(self.categories) <= 2 and not self.tail:
            return [
                np.where(codes < 0, 0.5, (codes == len(self.categories) - 1).astype(np.float64)),
                *gap,
            ]
        indicators = [codes == code for code in range(len(self.categories))]
        if categories == "indicators":
            return [np.where(missing, 0.5, has) for has in indicators]
        is_other = ~missing & (codes < 0)
        if self.tail == "other":
            indicators.append(is_other)
        elif self.tail == "hashed":
            buckets = (
                pd.Series(plain, dtype=object)
                .where(is_other)
                .map(_bucket, na_action="ignore")
                .to_numpy(np.float64)
            )
            indicators += [buckets == bucket for bucket in range(BUCKETS)]
        return [*indicators, *gap]

    def unseen(self, values: pd.Series) -> tuple[int, list[str]]:
        """Count and list the values (n,) that no training row had. Numbers and hashed columns have
        none.
        """
        if self.kind == NUMBERS or self.tail == "hashed":
            return 0, []
        plain = pd.Series(
            self._as_known(plain_values(values, self.kind, self.name)), dtype=object
        ).dropna()
        new = plain[~plain.isin([*self.categories, *self.rare])]
        return len(new), [plain_text(label) for label in new.unique()]

    def _as_known(self, values: np.ndarray) -> np.ndarray:
        """Replace text (n,) that differs from exactly one known category only in case or
        surrounding blanks by that category.
        """
        if self.kind != "categorical" or self.tail == "hashed":
            return values
        categories = {*self.categories, *self.rare}
        new = [
            text for text in pd.unique(values) if isinstance(text, str) and text not in categories
        ]
        if not new:
            return values
        spelt = dict[str, list[str]]()
        for label in categories:
            spelt.setdefault(label.strip().casefold(), []).append(label)
        spellings = dict[str, str]()
        for text in new:
            candidates = spelt.get(text.strip().casefold(), [])
            if len(candidates) == 1:
                spellings[text] = candidates[0]
        return np.array([spellings.get(text, text) for text in values], object)

    def numbers(self, values: np.ndarray, scaling: Scaling) -> np.ndarray:
        """Standardise numbers (n,); missing ones become the mean."""
        sizes = np.array([len(values)])
        (standardised,) = standardise([[self.moments]], values[np.newaxis], sizes, scaling)
        numbers: np.ndarray = standardised
        return numbers

    def describe(
        self, categories: Categories, edges: Mapping[str, tuple[float, ...]]
    ) -> list[Input]:
        """Return the description of each input, with the edges of its bins, if it has any."""
        coded = categories == "codes" and self.kind != NUMBERS
        values = dict[str, tuple[str, ...]]()
        if coded:
            values[self.name] = tuple(map(plain_text, self.categories))
        return [
            Input(name, self.name, values.get(name, ()), edges.get(name, ()))
            for name in self.inputs(categories)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the encoder as plain data."""
        state: dict[str, Any] = {"kind": self.kind}
        if self.kind == NUMBERS:
            state["moments"] = self.moments and self.moments.to_list()
        else:
            state["categories"] = list(self.categories)
            if self.tail or self.rare:
                state |= {"tail": self.tail, "rare": list(self.rare)}
        if self.gap:
            state["gap"] = True
        return state

    @classmethod
    def of(cls, name: str, state: Mapping[str, Any]) -> ColumnEncoder:
        """Restore an encoder from its state."""
        lists = {key: tuple(values) for key, values in state.items() if isinstance(values, list)}
        moments = Moments(*state["moments"]) if state.get("moments") else None
        return cls(name, **{**state, **lists, "moments": moments})
