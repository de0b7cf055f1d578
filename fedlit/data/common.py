"""Which columns clients have in common, by name and kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlit.data.columns import Kind
from fedlit.errors import ConfigError, did_you_mean
from fedlit.sharing import can_name_a_module

__all__ = [
    "Common",
    "CommonColumns",
    "Kinds",
    "check_common",
    "find_groups",
    "is_listed",
    "of_several_kinds",
    "two_kinds",
]

# ``all``, ``groups``, a list of columns, or group → columns; what else a configuration says is refused below, in words.
Common = str | bool | int | list[Any] | dict[str, Any]
Kinds = Mapping[str, Mapping[str, Kind | None]]
"""Client → column → its kind; None for a column without any value, which says nothing about its kind."""

ONE_GROUP = "shared"
_GROUP_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class CommonColumns:
    """Clients that share columns.

    Attributes:
        name: how the group is called in names of tensors.
        columns: what all its clients have, in the order of names.
        clients: who is in it, in the order of names; at least two.
    """

    name: str
    columns: tuple[str, ...]
    clients: tuple[str, ...]

    def __str__(self) -> str:
        """For a person."""
        return f"group {self.name!r}: {', '.join(self.clients)} have in common {', '.join(self.columns)}"


def check_common(common: Common) -> None:
    """Refuse what a configuration cannot say.

    Raises:
        ConfigError: neither ``all``, ``groups``, a list of columns nor lists by name of a group.
    """
    if common not in ("all", "groups") and (not isinstance(common, list | dict) or not common):
        advice = f"; write [{common}] for one column" if isinstance(common, str) else ""
        raise ConfigError(
            "data.common: expected all, groups, a list of columns, or lists of columns by name of a group, found "
            f"{common!r}{advice}"
        )
    for name, columns in _listed(common).items():
        key = f"data.common: {name}"
        if not isinstance(columns, list) or not columns or not all(isinstance(column, str) for column in columns):
            raise ConfigError(f"{key}: expected a list of names of columns, found {columns!r}")
        if not isinstance(name, str) or not _GROUP_NAME.fullmatch(name) or not can_name_a_module(name):
            raise ConfigError(
                f"{key}: expected a group's name of letters, digits and '_' that torch does not use itself, found "
                f"{name!r}; rename the group"
            )


def _listed(common: Common | None) -> dict[str, list[str]]:
    return common if isinstance(common, dict) else {ONE_GROUP: common} if isinstance(common, list) else {}


def is_listed(common: Common | None, column: str) -> bool:
    """Whether a configuration lists a column."""
    return any(column in columns for columns in _listed(common).values())


def find_groups(kinds: Kinds, common: Common, here: Iterable[str] = ()) -> list[CommonColumns]:
    """The groups of clients that share columns.

    Args:
        kinds: what each client tells of its columns, ordered by client.
        common: ``all``: one group of all clients, with the columns that each of them has, of one kind everywhere.
            ``groups``: one group for each set of clients of which some column tells them from others, with all columns
            that they share (so where five have age and sex and a sixth age alone, there are a group of five with both
            and one of six with age). A list of columns: one group of the clients that have all of them. Group's name →
            columns: several of these.
        here: further columns' names that a message may say.

    Raises:
        ConfigError: there is no such column, no two clients that share what is asked for, or a listed column of two
            kinds.

    Example:
        >>> kinds = {"a": {"age": "numeric", "sex": "numeric", "bmi": "numeric"}, "b": {"sex": "numeric", "age": None},
        ...     "c": {"age": "numeric", "bmi2": "numeric"}}
        >>> print(*find_groups(kinds, "groups"), sep="; ")
        group 'group1': a, b, c have in common age; group 'group2': a, b have in common age, sex
    """
    if len(kinds) < 2:
        raise ConfigError(
            f"data.common: expected at least two clients, found {', '.join(kinds)} alone; leave the key out"
        )
    owners: dict[str, list[str]] = {}
    for client, own in kinds.items():
        for column in own:
            owners.setdefault(column, []).append(client)
    of_one_kind = {column for column in owners if len(_kinds(kinds, column)) <= 1}
    everyone = tuple(kinds)
    if common == "all":
        columns = tuple(sorted(column for column in of_one_kind if tuple(owners[column]) == everyone))
        if not columns:
            raise ConfigError(
                f"data.common: all: expected a column that all of {', '.join(everyone)} have, of one kind, found "
                "none; take data.common: groups, or list columns that some of them share"
            )
        return [CommonColumns(ONE_GROUP, columns, everyone)]
    if common == "groups":
        sets = {tuple(names) for column, names in owners.items() if len(names) > 1 and column in of_one_kind}
        if not sets:
            raise ConfigError(
                "data.common: groups: expected a column that two clients have, of one kind, found none; give columns "
                "that mean the same one name"
            )
        found = [
            (clients, tuple(sorted(column for column in of_one_kind if set(clients) <= set(owners[column]))))
            for clients in sets
        ]
        found.sort(key=lambda group: (-len(group[0]), group[1]))
        return [CommonColumns(f"group{number}", columns, clients) for number, (clients, columns) in enumerate(found, 1)]
    return [_find(kinds, owners, name, columns, here) for name, columns in sorted(_listed(common).items())]


def _find(
    kinds: Kinds, owners: Mapping[str, Sequence[str]], name: str, columns: Sequence[str], here: Iterable[str]
) -> CommonColumns:
    key, known = f"data.common: {name}", {*owners, *here}
    for column in columns:
        if column not in owners:
            raise ConfigError(
                f"{key}: expected the name of a column, found {column!r}; there are {', '.join(sorted(known))}."
                + did_you_mean(column, known)
            )
        if problem := two_kinds(kinds, column):
            raise ConfigError(f"{key}: {problem}")
    clients = tuple(client for client, own in kinds.items() if set(columns) <= own.keys())
    if len(clients) < 2:
        raise ConfigError(
            f"{key}: expected two clients that have all of {', '.join(columns)}, found "
            f"{', '.join(clients) or 'none'}; list fewer columns"
        )
    return CommonColumns(name, tuple(sorted(set(columns))), clients)


def of_several_kinds(kinds: Kinds) -> list[str]:
    """For a person: columns of one name that are not the same thing everywhere, and so are never found to be common."""
    lines = []
    for column in sorted({column for own in kinds.values() for column in own}):
        if len(own := _kinds(kinds, column)) > 1:
            found = ", ".join(f"{kind} at {client}" for kind, client in own.items())
            lines.append(f"{column} is not taken for common, for it is of several kinds: {found}")
    return lines


def two_kinds(kinds: Kinds, column: str) -> str:
    """What is wrong with a column that is to mean the same at all clients that have it; empty if nothing."""
    found = list(_kinds(kinds, column).items())
    if len(found) < 2:
        return ""
    (kind, first), (other, second) = found[:2]
    truth = "boolean" in (kind, other)
    advice = "write it alike in both tables (0 and 1)" if truth else "list it under categorical for both"
    return (
        f"column {column!r}: expected one kind on all clients that share it, found {kind} at {first!r} and {other} at "
        f"{second!r}; rename one of the two, or {advice}"
    )


def _kinds(kinds: Kinds, column: str) -> dict[Kind, str]:
    """Kind of a column → the first client that has it of this kind."""
    first: dict[Kind, str] = {}
    for client, own in kinds.items():
        if (kind := own.get(column)) is not None:
            first.setdefault(kind, client)
    return first
