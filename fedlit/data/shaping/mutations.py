"""Faults that are injected into chosen clients' tables, to test whether a method finds them and how
much they cost.

A fault is in all rows of a client, whatever their split, because a wrong unit or flipped labels
come from how its table was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from fedlit.data.note import Note
from fedlit.data.table import ClientTable, check_client
from fedlit.data.targets import has_classes, without_classes
from fedlit.errors import ConfigError, Told, expect, must_be_known
from fedlit.seeding import derive_seed

Kind = Literal["scale", "shift", "clip", "swap", "missing", "flip"]


@dataclass(frozen=True)
class Mutation:
    """A fault to inject into one client.

    Attributes:
        kind: ``scale``, each value times ``by`` (a wrong unit); ``shift``, plus ``by`` standard
            deviations of the column over all clients' training rows (another protocol); ``clip``,
            no lower than the client's quantile ``by`` and no higher than its quantile 1 − ``by`` (a
            limited instrument); ``swap`` with another column; ``missing``, values in rows with the
            positive label (with more than two labels, the client's most frequent one) are lost with
            probability ``by``; ``flip``, the two labels are exchanged.
        client: the client that gets the fault.
        feature: a column of numbers; none for ``flip``.
        other: the column to swap with.
        by: the size of the fault; if None, 10, 2, 0.25 and 0.8 for scale, shift, clip and missing.
    """

    kind: Kind
    client: str
    feature: str | None = None
    other: str | None = None
    by: float | None = None

    def __post_init__(self) -> None:
        must_be_known("data.mutations: kind", [self.kind], _FAULTS)
        key = f"data.mutations: {self.kind}"
        fault = _FAULTS[self.kind]
        expected = f"{fault.columns} of feature and other"
        expect(len(self.columns) == fault.columns, key, expected, self.columns)
        if self.by is None:
            return
        if fault.by is None:
            raise ConfigError(f"{key}: expected no by, found {self.by!r}")
        expected = f"by above {fault.above} and at most {fault.most}"
        expect(fault.above < self.by <= fault.most, key, expected, self.by)

    @property
    def columns(self) -> list[str]:
        """The columns that change."""
        return [name for name in (self.feature, self.other) if name is not None]


def mutate(
    tables: Sequence[ClientTable],
    mutations: Sequence[Mutation],
    seed: int,
    names: Sequence[str] | None = None,
) -> tuple[list[ClientTable], list[Note]]:
    """Inject faults into tables.

    Args:
        tables: one table for each client; these are not changed.
        mutations: the faults, in this order; what is lost of a column is drawn by (seed, position
            in this list).
        seed: the run's seed.
        names: the names of all clients, if some are in other processes, which inject the faults of
            these clients.

    Returns:
        The tables with their faults, and a note on each injected fault, for its client.

    Raises:
        ConfigError: A client or column does not exist, or the labels to flip are not two.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> tables = Bundled(clients=["wine", "iris"]).tables(seed=0)
        >>> changed, planted = mutate(tables, [Mutation("scale", client="wine", feature="ash")], seed=0)
        >>> float(changed[0].features["ash"].iloc[0] / tables[0].features["ash"].iloc[0]), str(planted[0])
        (10.0, 'wine: a fault was planted: ash times 10')
    """
    original = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    everyone = sorted(names or original)
    changed = dict(original)
    planted = list[Note]()
    for position, mutation in enumerate(mutations):
        client = mutation.client
        fault = _FAULTS[mutation.kind]
        key = f"data.mutations: {mutation.kind}"
        check_client("data.mutations", client, everyone)
        if client not in original:
            continue
        # The rows of all clients are needed for the standard deviation.
        is_measurable = mutation.kind != "shift" or len(original) == len(everyone)
        advice = "take scale, or run where all tables are"
        expect(is_measurable, key, "the tables of all clients", list(original), advice)
        _check_table(mutation, original[client], key)
        by = fault.by if mutation.by is None else mutation.by
        by = by or 0.0
        rng = np.random.default_rng(derive_seed(seed, "mutation", position))
        changed[client] = _planted(mutation, changed[client], by, original, rng)
        columns = " and ".join(mutation.columns)
        text = fault.text.format(named=columns, by=by, rest=1 - by, percent=100 * by)
        planted.append(
            Note(f"a fault was planted: {text}", "fault", clients=(client,), head=client)
        )
    return [changed[table.name] for table in tables], planted


def _check_table(mutation: Mutation, table: ClientTable, key: str) -> None:
    """Refuse a table that lacks the columns or the labels of a fault."""
    client = table.name
    numbers = [str(name) for name in table.features if name not in table.categorical]
    for name in mutation.columns:
        is_column = name in numbers and mutation.columns.count(name) == 1
        advice = f"these are {', '.join(numbers)}"
        expect(is_column, key, f"a column of numbers of {client}", name, advice)
    if mutation.kind in ("flip", "missing"):
        expected = f"one of several classes a row at {client}"
        problem = Told(without_classes(table))
        expect(has_classes(table), key, expected, problem, "take another client")


def _planted(
    mutation: Mutation,
    table: ClientTable,
    by: float,
    everywhere: Mapping[str, ClientTable],
    rng: np.random.Generator,
) -> ClientTable:
    """Inject one more fault into a table, which may already have faults; ``everywhere`` are all
    tables without faults.
    """
    kind = mutation.kind
    frame = table.features
    train = table.splits["train"]
    target = everywhere[table.name].target  # An earlier fault may have flipped the table's labels.
    labels = sorted(target.unique().tolist()) if kind in ("flip", "missing") else []
    if kind == "flip":
        expected = f"two labels at {table.name}"
        advice = "take another client"
        expect(len(labels) == 2, "data.mutations: flip", expected, len(labels), advice)
        exchanged = dict(zip(labels, labels[::-1], strict=True))
        return replace(table, target=table.target.map(exchanged))
    column = mutation.columns[0]
    numbers = frame[column].astype(np.float64)
    if kind == "swap":
        new = {column: frame[mutation.columns[1]], mutation.columns[1]: frame[column]}
    elif kind == "scale":
        new = {column: numbers * by}
    elif kind == "shift":
        new = {column: numbers + by * _spread(everywhere.values(), column)}
    elif kind == "clip":
        new = {column: numbers.clip(*numbers.iloc[train].quantile([by, 1 - by]))}
    else:
        most = labels[-1] if len(labels) <= 2 else target.iloc[train].mode().iloc[0]
        positive = most if table.positive is None else table.positive
        is_lost = (target == positive).to_numpy() & (rng.random(len(target)) < by)
        new = {column: numbers.mask(is_lost)}
    return replace(table, features=frame.assign(**new))


def _spread(tables: Iterable[ClientTable], column: str) -> float:
    """Return the standard deviation of a column over the training rows of the tables that have it."""
    values = []
    for table in tables:
        if column in table.features:
            rows = table.features[column].iloc[table.splits["train"]]
            values.append(rows.to_numpy(np.float64, na_value=np.nan))
    return float(np.nanstd(np.concatenate(values)))


class _Fault(NamedTuple):
    """A kind of fault: its text, the default of ``by``, the number of its columns, and the bounds
    of ``by``.
    """

    text: str
    by: float | None = None
    columns: int = 1
    above: float = -np.inf
    most: float = np.inf


_FAULTS: dict[Kind, _Fault] = {
    "scale": _Fault("{named} times {by:g}", 10.0),
    "shift": _Fault("{named} plus {by:g} standard deviations", 2.0),
    "clip": _Fault("{named} clipped at its quantiles {by:g} and {rest:g}", 0.25, above=0, most=0.5),
    "missing": _Fault(
        "{named} missing in {percent:g} % of the rows with one label", 0.8, above=0, most=1
    ),
    "swap": _Fault("{named} swapped", columns=2),
    "flip": _Fault("labels flipped", columns=0),
}
