"""From a client's labels to positions: what is told of them, what clients agree on, what is learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.table import ClientTable
from fedlit.errors import DataError

__all__ = ["LabelEncoder", "agree_on_labels", "tell_labels"]


def _type_of(label: Any) -> str:
    if isinstance(label, bool | np.bool_):
        return "true/false"
    return "numbers" if isinstance(label, Real) else "text" if isinstance(label, str) else type(label).__name__


def _types(target: pd.Series) -> dict[str, Any]:
    """Type → the first label of it. Python takes True for 1: of equal labels, each type counts."""
    labels = target.dropna().tolist() if target.dtype == object else target.dropna().unique().tolist()
    first = {type(label): label for label in reversed(labels)}
    return {_type_of(label): label for label in first.values()}


def _sorted(labels: Sequence[Any], positive: Any, where: str) -> list[Any]:
    """Each once, sorted; where there are two, the positive one last."""
    labels = sorted(dict.fromkeys(labels))
    if len(labels) == 2 and positive is not None:
        if positive not in labels:
            raise DataError(f"{where}: expected the positive label to be one of {labels}, found {positive!r}")
        labels.sort(key=lambda label: bool(label == positive))
    return labels


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _labels(table: ClientTable) -> list[Any]:
    """Those of the training rows."""
    target = table.target.iloc[table.splits["train"]]
    where, types = f"client {table.name!r}, target {target.name!r}", _types(target)
    if len(types) > 1:
        found = " and ".join(f"{type_} ({label!r})" for type_, label in types.items())
        raise DataError(f"{where}: expected labels of one type, found a mixture of {found}; convert the column")
    if odd := types.keys() - {"true/false", "numbers", "text"}:
        raise DataError(
            f"{where}: expected numbers, text or true/false as labels, found {odd.pop()}; convert the column"
        )
    return _sorted([_plain(label) for label in target.unique().tolist()], table.positive, where)


def tell_labels(table: ClientTable) -> dict[str, Any]:
    """What a client tells of its labels where classes are common: those of its training rows, never how many.

    Returns:
        JSON: the target's ``name``, ``labels``, the ``positive`` one or None.

    Raises:
        DataError: labels of several types.
    """
    return {"name": str(table.target.name), "labels": _labels(table), "positive": _plain(table.positive)}


def agree_on_labels(told: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    """The classes that all clients have in common, from what each tells.

    Raises:
        DataError: labels are of one type at one client and of another at another.

    Example:
        >>> told = {"a": {"name": "y", "labels": [2], "positive": None}}
        >>> agree_on_labels(told | {"b": {"name": "y", "labels": [0, 1], "positive": None}})
        (0, 1, 2)
    """
    first: dict[str, str] = {}
    for client, own in told.items():
        for label in own["labels"]:
            first.setdefault(_type_of(label), client)
    where = f"target {next(iter(told.values()))['name']!r}"
    if len(first) > 1:
        found = " and ".join(
            f"{type_} ({', '.join(map(repr, told[client]['labels'][:3]))}) at {client!r}"
            for type_, client in first.items()
        )
        raise DataError(
            f"{where}: expected labels of one type at all clients, found a mixture: {found}; write the same labels in "
            "both tables, or leave classes apart with data.align: none or features"
        )
    positives = {own["positive"] for own in told.values()} - {None}
    labels = [label for own in told.values() for label in own["labels"]]
    return tuple(_sorted(labels, positives.pop() if len(positives) == 1 else None, where))


@dataclass(frozen=True)
class LabelEncoder:
    """Labels as positions among classes.

    Attributes:
        client: whose labels.
        name: the target's.
        classes: labels, in the order of positions.
        seen: the client's own among them.
    """

    client: str
    name: str
    classes: tuple[Any, ...]
    seen: tuple[Any, ...]

    @classmethod
    def fit(cls, table: ClientTable, common: Sequence[Any] | None) -> LabelEncoder:
        """From a table's training rows, and the common classes if there are such.

        Raises:
            DataError: labels of several types, or a single one.
        """
        seen = _labels(table)
        classes = seen if common is None else common
        if len(classes) < 2:
            raise DataError(
                f"client {table.name!r}: expected at least two classes in its training rows, found one "
                f"({classes[0]!r}); a classifier "
                "cannot be trained on it alone. Leave the client out, or give all clients the common classes "
                "with align: classes"
            )
        return cls(table.name, str(table.target.name), tuple(classes), tuple(seen))

    def transform(self, target: pd.Series) -> np.ndarray:
        """Positions (n,) int64; −1 for a label that is not among the classes.

        Raises:
            DataError: labels of another type than those that were trained on.
        """
        expected, types = _type_of(self.classes[0]), _types(target)
        if odd := [label for type_, label in types.items() if type_ != expected]:
            raise DataError(
                f"client {self.client!r}, target {self.name!r}: expected {expected} as labels, found {odd[0]!r}; "
                f"write them as those that were trained on ({', '.join(map(repr, self.classes[:3]))})"
            )
        index = {label: position for position, label in enumerate(self.classes)}
        return target.map(index).fillna(-1).to_numpy(np.int64)

    @property
    def positions(self) -> tuple[int, ...]:
        """Of the labels seen."""
        return tuple(self.classes.index(label) for label in self.seen)

    def notes(self, table: ClientTable, validation: np.ndarray) -> list[str]:
        """What a person should know about the labels, and the positions (n,) of those of validation rows."""
        rows, notes = len(table.splits["train"]), list[str]()
        if len(self.seen) > 20 and len(self.seen) > rows / 4:
            notes.append(
                f"{table.name}: {len(self.seen)} classes in {rows} training rows; is {self.name!r} the target?"
            )
        if unseen := int((validation < 0).sum()):
            notes.append(
                f"{table.name}: {unseen} validation rows have a label that no training row has; they count as wrong"
            )
        return notes

    def state_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"name": self.name, "classes": list(self.classes), "seen": list(self.seen)}

    @classmethod
    def of(cls, client: str, state: Mapping[str, Any]) -> LabelEncoder:
        """From its state."""
        return cls(client, state["name"], tuple(state["classes"]), tuple(state["seen"]))
