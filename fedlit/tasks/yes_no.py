"""The two values of a yes/no label: which of them means yes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from fedlit.errors import DataError
from fedlit.tasks.base import Facts
from fedlit.tasks.label_values import type_of
from fedlit.types import Label

if TYPE_CHECKING:
    import pandas as pd


_PAIRS = (
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("f", "t"),
    ("nein", "ja"),
    ("non", "oui"),
    ("-", "+"),
)


_WORDS = {no: (no, yes) for no, yes in _PAIRS} | {yes: (no, yes) for no, yes in _PAIRS}


def columns_of(target: pd.Series) -> dict[str, tuple[Label | None, ...]]:
    """Map each label to its value in each row, or None if it is unknown."""
    if not isinstance(target.name, tuple):
        raise DataError(
            f"target {target.name!r}: expected several columns for task: multi_label, found one; "
            f"list the columns (target: [{target.name}, …]), or take task: classification"
        )
    unknown = (None,) * len(target.name)
    rows = [unknown if row is None else row for row in target.tolist()]
    values = list(zip(*rows, strict=True)) or [()] * len(target.name)
    return dict(zip(map(str, target.name), values, strict=True))


def among(value: Label | None, pair: Sequence[Label]) -> bool:
    """Return whether a value is one of the two, or unknown. The number 1 is not the same as
    true.
    """
    return value is None or (value in pair and type_of(value) == type_of(pair[0]))


def check_values(label: str, values: Sequence[Label], rows: str) -> None:
    """Refuse values that cannot belong to a yes/no label: of several types, or more than two, or
    two that differ by letters' case or spaces alone.
    """
    types = {type_of(value) for value in values}
    repeated = len({str(value).strip().casefold() for value in values}) < len(values)
    if (
        len(types) != 1
        or not types <= {"true/false", "numbers", "text"}
        or len(values) > 2
        or repeated
    ):
        examples = "none"
        if values:
            examples = f"{len(values)}, such as {', '.join(map(repr, values[:3]))}"
        raise DataError(
            f"target {label!r}: expected two values (0 and 1, true and false, or two of one type) "
            f"in the training rows ({rows}) for task: multi_label, found {examples}; mend the column, "
            "or leave it out of the target"
        )


def pair_of(label: str, facts: Mapping[str, Facts], positive: set[Label]) -> list[Label]:
    """Return the value that means no and the one that means yes, given the values of all clients
    that have the label.
    """
    values_of = {
        name: client_facts["values"][label]
        for name, client_facts in facts.items()
        if label in client_facts["values"]
    }
    values = list(chain.from_iterable(values_of.values()))
    if len({type_of(value) for value in values}) > 1 or len(set(values)) > 2:
        spellings = "; ".join(
            f"{', '.join(map(repr, spelling))} at {name!r}" for name, spelling in values_of.items()
        )
        raise DataError(
            f"target {label!r}: expected the same two values at all clients, found {spellings}; use "
            "one spelling, or leave labels apart with data.align: none or features"
        )
    pair = ordered(set(values))
    if len(pair) == 1:
        pair = _completed(pair[0])
    if len(pair) == 1:
        raise DataError(
            f"target {label!r}: expected two values in training rows, found {pair[0]!r} alone at "
            f"{', '.join(map(repr, values_of))}, which does not say whether it means yes or no; write 0 "
            "and 1, or leave the column out of the target"
        )
    if pair[0] in positive:
        return pair[::-1]
    return pair


def ordered(values: Iterable[Label]) -> list[Label]:
    """Return the values with the one that means no first; if they are no such words, with the
    smaller one first.
    """
    pairs = {_words_like(value) for value in values}
    pair = pairs.pop()
    if pair is None or pairs:
        return sorted(values)
    return sorted(values, key=lambda text: (pair.index(str(text).casefold()), text))


def _words_like(value: Label) -> tuple[str, str] | None:
    """Return the words that mean no and yes of which a value is one; None if it is no such word."""
    if not isinstance(value, str):
        return None
    return _WORDS.get(value.casefold())


def _completed(value: Label) -> list[Label]:
    """Return both values of a label of which only one is known, or that value alone if the other
    cannot be inferred.
    """
    if not isinstance(value, str):
        if type_of(value) == "true/false":
            return [False, True]
        if value in (0, 1):
            return [0, 1]
        return [value]
    pair = _words_like(value)
    if pair is None:
        return [value]
    spell: Callable[[str], str] = str
    if value.isupper():
        spell = str.upper
    elif value.istitle():
        spell = str.title
    return [spell(text) for text in pair]
