"""Finds the two values of a yes/no label, and which of them means yes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedlit.errors import DataError
from fedlit.tasks.classification import type_of

if TYPE_CHECKING:
    import pandas as pd

_SAID = (("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("nein", "ja"), ("non", "oui"), ("-", "+"))
_WORDS = {word: pair for pair in _SAID for word in pair}


def columns_of(target: pd.Series) -> dict[str, tuple[Any, ...]]:
    """Map each label to its value in each row, or None if it is unknown."""
    if not isinstance(target.name, tuple):
        raise DataError(
            f"target {target.name!r}: expected several columns for task: multi_label, found one; list the columns "
            f"(target: [{target.name}, …]), or take task: classification"
        )
    rows = [(None,) * len(target.name) if row is None else row for row in target.tolist()]
    values = list(zip(*rows, strict=True)) or [()] * len(target.name)
    return dict(zip(map(str, target.name), values, strict=True))


def among(value: Any, pair: Sequence[Any]) -> bool:
    """Return whether a value is one of the two, or unknown. The number 1 is not the same as true."""
    return value is None or (value in pair and type_of(value) == type_of(pair[0]))


def check_values(label: str, values: Sequence[Any], rows: str) -> None:
    """Refuse values that cannot belong to a yes/no label."""
    types = {type_of(value): value for value in values}
    found = ""
    if not values:
        found = "none"
    elif len(types) > 1:
        found = "a mixture of " + " and ".join(f"{type_} ({value!r})" for type_, value in types.items())
    elif odd := types.keys() - {"true/false", "numbers", "text"}:
        found = odd.pop()
    elif len(values) > 2:
        found = f"{len(values)}, such as {', '.join(map(repr, values[:3]))}"
    elif "text" in types and len({value.strip().casefold() for value in values}) < len(values):
        found = f"{' and '.join(map(repr, values))}, which differ by letters' case or spaces alone"
    if found:
        raise DataError(
            f"target {label!r}: expected two values (0 and 1, true and false, or two of one type) in the training rows "
            f"({rows}) for task: multi_label, found {found}; mend the column, or leave it out of the target"
        )


def pair_of(label: str, facts: Mapping[str, Mapping[str, Any]], positive: set[Any]) -> list[Any]:
    """Return the value that means no and the one that means yes, given the values of all clients that
    have the label.
    """
    told = {name: own["values"][label] for name, own in facts.items() if label in own["values"]}
    values = [value for own in told.values() for value in own]
    if len({type_of(value) for value in values}) > 1 or len(set(values)) > 2:
        found = "; ".join(f"{', '.join(map(repr, own))} at {name!r}" for name, own in told.items())
        raise DataError(
            f"target {label!r}: expected the same two values at all clients, found {found}; write them alike, or leave "
            "labels apart with data.align: none or features"
        )
    pair = ordered(set(values))
    if len(pair) == 1:
        pair = _completed(pair[0])
    if len(pair) == 1:
        raise DataError(
            f"target {label!r}: expected two values in training rows, found {pair[0]!r} alone at "
            f"{', '.join(map(repr, told))}, which does not say whether it means yes or no; write 0 and 1, "
            "or leave the column out of the target"
        )
    return pair[::-1] if positive & {pair[0]} else pair


def ordered(values: Iterable[Any]) -> list[Any]:
    """Return the values with the one that means no first; if they are no such words, with the smaller one first."""
    pairs = {_WORDS.get(value.casefold()) if isinstance(value, str) else None for value in values}
    pair = pairs.pop()
    if pair is None or pairs:
        return sorted(values)
    return sorted(values, key=lambda word: (pair.index(word.casefold()), word))


def _completed(value: Any) -> list[Any]:
    """Return both values of a label of which only one is known, or that value alone if the other cannot be inferred."""
    if not isinstance(value, str):
        return [False, True] if type_of(value) == "true/false" else [0, 1] if value in (0, 1) else [value]
    pair = _WORDS.get(value.casefold(), (value,))
    alike = str.upper if value.isupper() else str.title if value.istitle() else str
    return [alike(word) for word in pair] if len(pair) > 1 else [value]
