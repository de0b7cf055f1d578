"""Finds the columns that clients have in common, by name and kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlit.data.schema.column import Kind
from fedlit.errors import ConfigError, expect
from fedlit.sharing import can_name_a_module

# ``all``, ``groups``, a list of columns, or group → columns. The type is wider, so that other values
# are refused below with a message.
Common = str | bool | int | list[Any] | dict[str, Any]
Kinds = Mapping[str, Mapping[str, Kind | None]]
"""Client → column → its kind; None for a column without any value, whose kind is unknown."""

ONE_GROUP = "shared"
_GROUP_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class CommonColumns:
    """A group of clients and the columns that they share.

    Attributes:
        name: the name of the group in the names of tensors.
        columns: the columns that all its clients have, sorted by name.
        clients: the clients in the group, sorted by name; at least two.
    """

    name: str
    columns: tuple[str, ...]
    clients: tuple[str, ...]

    def __str__(self) -> str:
        """Describe the group in one line."""
        return (
            f"group {self.name!r}: {', '.join(self.clients)} have in common "
            f"{', '.join(self.columns)}"
        )


def check_common(common: Common) -> None:
    """Refuse an invalid value of ``data.common``.

    Raises:
        ConfigError: neither ``all``, ``groups``, a list of columns nor lists by name of a group.
    """
    is_valid = common in ("all", "groups") or (isinstance(common, list | dict) and bool(common))
    advice = ""
    if isinstance(common, str):
        advice = f"write [{common}] for one column"
    forms = "all, groups, a list of columns, or lists of columns by name of a group"
    expect(is_valid, "data.common", forms, common, advice)
    for name, columns in _listed(common).items():
        named = isinstance(name, str) and _GROUP_NAME.fullmatch(name) and can_name_a_module(name)
        texts = (
            isinstance(columns, list)
            and bool(columns)
            and all(isinstance(column, str) for column in columns)
        )
        expected = "a group's name of letters, digits and '_' that torch does not use itself"
        expect(texts, f"data.common: {name}", "a list of names of columns", columns)
        expect(bool(named), f"data.common: {name}", expected, name, "rename the group")


def _listed(common: Common | None) -> dict[str, list[str]]:
    if isinstance(common, dict):
        return common
    if isinstance(common, list):
        return {ONE_GROUP: common}
    return {}


def is_listed(common: Common | None, column: str) -> bool:
    """Return whether a configuration lists a column."""
    return any(column in columns for columns in _listed(common).values())


def find_groups(kinds: Kinds, common: Common, nameable: Iterable[str] = ()) -> list[CommonColumns]:
    """Return the groups of clients that share columns.

    Args:
        kinds: the columns and kinds that each client sends, ordered by client.
        common: ``all``: one group of all clients, with the columns that each of them has, of one
            kind everywhere. ``groups``: one group for each set of clients that are the holders of
            some column, with all columns that they share (if five clients have age and sex and a
            sixth has age alone, there are a group of five with both and a group of six with age). A
            list of columns: one group of the clients that have all of them. A group's name →
            columns: several such groups.
        nameable: further names of columns that an error message may list.

    Raises:
        ConfigError: there is no such column, no two clients share the columns, or a listed column
            is of two kinds.

    Example:
        >>> kinds = {"a": {"age": "numeric", "sex": "numeric", "bmi": "numeric"}, "b": {"sex": "numeric", "age": None},
        ...     "c": {"age": "numeric", "bmi2": "numeric"}}
        >>> print(*find_groups(kinds, "groups"), sep="; ")
        group 'group1': a, b, c have in common age; group 'group2': a, b have in common age, sex
    """
    expect(
        len(kinds) > 1, "data.common", "at least two clients", ", ".join(kinds), "leave the key out"
    )
    owners: dict[str, list[str]] = {}
    for client, client_kinds in kinds.items():
        for column in client_kinds:
            owners.setdefault(column, []).append(client)
    if not isinstance(common, str):
        return [
            _find(kinds, owners, name, columns, nameable)
            for name, columns in sorted(_listed(common).items())
        ]
    holders = {
        column: tuple(names) for column, names in owners.items() if not kind_conflict(kinds, column)
    }
    sets = {tuple(kinds)}
    if common == "groups":
        sets = {names for names in holders.values() if len(names) > 1}
    matches = [(clients, _columns_of(clients, holders)) for clients in sets]
    matches.sort(key=lambda group: (-len(group[0]), group[1]))
    if not matches or not matches[0][1]:
        who = f"all of {', '.join(kinds)}" if common == "all" else "two clients"
        raise ConfigError(
            f"data.common: {common}: expected a column that {who} have, of one kind, found none; "
            "give columns that mean the same one name, or list columns that some of them share"
        )
    if common == "all":
        names = [ONE_GROUP]
    else:
        names = [f"group{number}" for number in range(1, len(matches) + 1)]
    return [
        CommonColumns(name, columns, clients)
        for name, (clients, columns) in zip(names, matches, strict=True)
    ]


def _columns_of(clients: Sequence[str], holders: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the columns that all of these clients hold, sorted."""
    return tuple(sorted(column for column, names in holders.items() if {*clients} <= {*names}))


def _find(
    kinds: Kinds,
    owners: Mapping[str, Sequence[str]],
    name: str,
    columns: Sequence[str],
    nameable: Iterable[str],
) -> CommonColumns:
    """Return a group whose columns the configuration lists."""
    key = f"data.common: {name}"
    column_names = sorted({*owners, *nameable})
    for column in columns:
        expect(
            column in owners,
            key,
            f"a column among {', '.join(column_names)}",
            column,
            known=column_names,
        )
        if problem := kind_conflict(kinds, column):
            raise ConfigError(f"{key}: {problem}")
    clients = tuple(
        client for client, client_kinds in kinds.items() if set(columns) <= client_kinds.keys()
    )
    expected = f"two clients that have all of {', '.join(columns)}"
    expect(len(clients) > 1, key, expected, ", ".join(clients) or "none", "list fewer columns")
    return CommonColumns(name, tuple(sorted(set(columns))), clients)


def kind_conflict(kinds: Kinds, column: str) -> str:
    """Describe the conflict if a column has several kinds; return an empty text if it has one."""
    first: dict[Kind, str] = {}
    for client, client_kinds in kinds.items():
        kind = client_kinds.get(column)
        if kind is not None:
            first.setdefault(kind, client)
    if len(first) < 2:
        return ""
    conflict = " and ".join(f"{kind} at {client!r}" for kind, client in first.items())
    advice = (
        "rename one of them, or give the column one type at all clients (types, or categorical)"
    )
    return (
        f"column {column!r}: expected one kind on all clients that share it, found {conflict}; "
        f"{advice}"
    )
