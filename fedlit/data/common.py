"""Which columns clients have in common, by name and kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas.api.types import is_numeric_dtype

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, did_you_mean
from fedlit.sharing import can_name_a_module

__all__ = ["Common", "Group", "find_groups", "of_several_kinds", "told_of_groups", "two_kinds"]

# ``all``, ``groups``, a list of columns, or group → columns; what else a configuration says is refused below, in words.
Common = str | bool | int | list[Any] | dict[str, Any]

ONE_GROUP = "shared"
_GROUP_NAME = re.compile(r"\w+")


@dataclass(frozen=True)
class Group:
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


def find_groups(tables: Sequence[ClientTable], common: Common) -> list[Group]:
    """The groups of clients that share columns.

    Args:
        tables: one per client.
        common: ``all``: one group of all clients, with the columns that each of them has, of one kind everywhere.
            ``groups``: one group for each set of clients of which some column tells them from others, with all columns
            that they share (so where five have age and sex and a sixth age alone, there are a group of five with both
            and one of six with age). A list of columns: one group of the clients that have all of them. Group's name →
            columns: several of these.

    Raises:
        ConfigError: there is no such column, no two clients that share what is asked for, or a listed column of two
            kinds.

    Example:
        >>> import numpy as np, pandas as pd
        >>> rows = {split: np.array([0]) for split in ("train", "validation", "test")}
        >>> def table(name, *columns):
        ...     return ClientTable(name, pd.DataFrame([[0.0] * len(columns)], columns=columns), pd.Series([0]), rows)
        >>> tables = [table("a", "age", "sex", "bmi"), table("b", "sex", "age"), table("c", "age", "bmi2")]
        >>> print(*find_groups(tables, "groups"), sep="; ")
        group 'group1': a, b, c have in common age; group 'group2': a, b have in common age, sex
    """
    if common not in ("all", "groups") and (not isinstance(common, list | dict) or not common):
        advice = f"; write [{common}] for one column" if isinstance(common, str) else ""
        raise ConfigError(
            "data.common: expected all, groups, a list of columns, or lists of columns by name of a group, found "
            f"{common!r}{advice}"
        )
    if len(tables) < 2:
        raise ConfigError(
            f"data.common: expected at least two clients, found {', '.join(table.name for table in tables)} alone; "
            "leave the key out"
        )
    tables = sorted(tables, key=lambda table: table.name)
    owners: dict[str, list[str]] = {}
    for table in tables:
        for column in map(str, table.features):
            owners.setdefault(column, []).append(table.name)
    of_one_kind = {column for column in owners if len(_kinds(tables, column)) <= 1}
    everyone = tuple(table.name for table in tables)
    if common == "all":
        columns = tuple(sorted(column for column in of_one_kind if tuple(owners[column]) == everyone))
        if not columns:
            raise ConfigError(
                f"data.common: all: expected a column that all of {', '.join(everyone)} have, of one kind, found "
                "none; take data.common: groups, or list columns that some of them share"
            )
        return [Group(ONE_GROUP, columns, everyone)]
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
        return [Group(f"group{number}", columns, clients) for number, (clients, columns) in enumerate(found, 1)]
    listed = common if isinstance(common, Mapping) else {ONE_GROUP: common}
    return [_listed(tables, owners, name, columns) for name, columns in sorted(listed.items(), key=str)]


def _listed(
    tables: Sequence[ClientTable], owners: Mapping[str, Sequence[str]], name: str, columns: Sequence[str]
) -> Group:
    key = f"data.common: {name}"
    if not isinstance(columns, list) or not columns or not all(isinstance(column, str) for column in columns):
        raise ConfigError(f"{key}: expected a list of names of columns, found {columns!r}")
    if not isinstance(name, str) or not _GROUP_NAME.fullmatch(name) or not can_name_a_module(name):
        raise ConfigError(
            f"{key}: expected a group's name of letters, digits and '_' that torch does not use itself, found "
            f"{name!r}; rename the group"
        )
    for column in columns:
        if column not in owners:
            raise ConfigError(
                f"{key}: expected the name of a column, found {column!r}; there are {', '.join(sorted(owners))}."
                + did_you_mean(column, owners)
            )
        if problem := two_kinds(tables, column):
            raise ConfigError(f"{key}: {problem}")
    clients = tuple(table.name for table in tables if set(columns) <= set(map(str, table.features)))
    if len(clients) < 2:
        raise ConfigError(
            f"{key}: expected two clients that have all of {', '.join(columns)}, found "
            f"{', '.join(clients) or 'none'}; list fewer columns"
        )
    return Group(name, tuple(sorted(set(columns))), clients)


def of_several_kinds(tables: Sequence[ClientTable]) -> list[str]:
    """For a person: columns of one name that are not the same thing everywhere, and so are never found to be common."""
    lines = []
    for column in sorted({str(column) for table in tables for column in table.features}):
        if len(kinds := _kinds(tables, column)) > 1:
            found = ", ".join(f"{kind} at {client}" for kind, client in kinds.items())
            lines.append(f"{column} is not taken for common, for it is of several kinds: {found}")
    return lines


def two_kinds(tables: Sequence[ClientTable], column: str) -> str:
    """What is wrong with a column that is to mean the same at all clients that have it; empty if nothing."""
    kinds = list(_kinds(tables, column).items())
    if len(kinds) < 2:
        return ""
    (kind, first), (other, second) = kinds[:2]
    return (
        f"column {column!r}: expected one kind on all clients that share it, found {kind} at {first!r} and {other} at "
        f"{second!r}; rename one of the two, or list it under categorical for both"
    )


def _kind_of(table: ClientTable, column: str) -> str | None:
    """Numbers, or what kind of categories; None for a column without any value, which says nothing about its kind."""
    values = table.features[column]
    if values.isna().all():
        return None
    if column not in table.categorical:
        return "numbers"
    return "numeric categories" if is_numeric_dtype(values) else "text categories"


def _kinds(tables: Iterable[ClientTable], column: str) -> dict[str, str]:
    """Kind of a column → the first client that has it of this kind."""
    kinds: dict[str, str] = {}
    for table in tables:
        if column in table.features and (kind := _kind_of(table, column)) is not None:
            kinds.setdefault(kind, table.name)
    return kinds


def told_of_groups(tables: Sequence[ClientTable], groups: Sequence[Group], common: Common) -> list[dict[str, Any]]:
    """What clients tell each other so that common columns are found and coded alike (see
    :func:`fedlit.data.encoding.told_before`).
    """
    shared = {column for group in groups for column in group.columns}
    listed = not isinstance(common, str)
    names = shared if listed else {str(column) for table in tables for column in table.features}
    what = "which of these columns it has, and their kinds" if listed else "names and kinds of its columns"
    key = f"data.common: {'listed' if listed else common}"
    told = [{"what": what, "key": key, "columns": sorted(names)}]
    coded = shared & {column for table in tables for column in table.categorical}
    return told + ([{"what": "categories", "key": key, "columns": sorted(coded)}] if coded else [])
