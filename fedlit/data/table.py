"""A client's table as a source hands it over: raw columns, target, splits."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedlit.errors import ConfigError, did_you_mean
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SPLITS", "ClientTable", "Split", "TaskSettings", "choose_columns", "leave_out"]

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


TaskSettings = str | dict[str, Any]
"""A task's name, or ``{name: …}`` with its choices; for all clients, or by client's name or pattern."""


@dataclass(frozen=True, eq=False)
class ClientTable:
    """One client's rows, before any encoding.

    Attributes:
        name: the client's name.
        features: one column per feature, one row per row of the source; the index holds the row's number in the
            source file (0 is its first data row).
        target: the label of each row, in the source's own values, with the same index as ``features``.
        splits: for ``"train"``, ``"validation"`` and ``"test"`` the *positions* (int64, shape (n_split,)) of its
            rows in ``features``.
        categorical: the names of the columns that hold categories; all others hold numbers.
        positive: the label that counts as positive where there are two; the larger one if None.
        concept: which of several concepts its labels follow, where an experiment knows; only to judge by.
        task: what is predicted of the rows (``regression``), or ``{name: …}`` with the task's choices; classification
            if None.
    """

    name: str
    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()
    positive: Any = None
    concept: str | None = None
    task: TaskSettings | None = None


def choose_columns(tables: Sequence[ClientTable], patterns: Sequence[str], *, strict: bool = True) -> list[ClientTable]:
    """The tables with the columns that patterns choose, in their order.

    Args:
        tables: one per client.
        patterns: names or globs; one that starts with ``!`` takes out what an earlier one chose, or from all columns
            if it is the first.
        strict: whether each must match a column; of one client's table alone it need not.

    Raises:
        ConfigError: a pattern that matches no column of any client, or a client that is left without columns.
    """
    known = list(dict.fromkeys(str(name) for table in tables for name in table.features))
    for pattern in patterns if strict else ():
        if not fnmatch.filter(known, pattern.removeprefix("!")):
            raise ConfigError(
                f"data.columns: expected the name or pattern of a column, found {pattern!r}; there are "
                f"{shorten(known)}." + did_you_mean(pattern.removeprefix("!"), known)
            )
    kept = set(known) if patterns and patterns[0].startswith("!") else set[str]()
    for pattern in patterns:
        matched = set(fnmatch.filter(known, pattern.removeprefix("!")))
        kept = kept - matched if pattern.startswith("!") else kept | matched
    chosen = []
    for table in tables:
        columns = [name for name in table.features if name in kept]
        if not columns:
            raise ConfigError(f"data.columns: expected a column for client {table.name!r}, found none that is chosen")
        categorical = tuple(name for name in table.categorical if name in kept)
        chosen.append(replace(table, features=table.features[columns], categorical=categorical))
    return chosen


def leave_out(tables: Sequence[ClientTable], clients: Sequence[str], names: Sequence[str]) -> list[ClientTable]:
    """The tables without those of some clients.

    Args:
        tables: one per client that is here.
        clients: whom to do without.
        names: of all clients, here and elsewhere.

    Raises:
        ConfigError: a name that no client has, clients elsewhere, or nobody is left.
    """
    for name in clients:
        if name not in names:
            raise ConfigError(
                f"data.leave_out: expected the name of a client, found {name!r}; there are {shorten(names)}."
                + did_you_mean(name, names)
            )
    if clients and len(tables) < len(names):
        raise ConfigError(
            "data.leave_out: expected all clients here, found some elsewhere; drop the key, and do not start the sites "
            "that are to be left out"
        )
    kept = [table for table in tables if table.name not in clients]
    if clients and not kept:
        raise ConfigError(f"data.leave_out: expected a client that stays, found all left out ({shorten(names)})")
    return kept
