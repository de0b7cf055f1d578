"""A client that comes later: encoded by what the clients of a trained run agreed on, without any of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedlit.data.agree import AgreedColumn, Agreement, Terms
from fedlit.data.columns import NUMBERS, ColumnEncoder, kind_of
from fedlit.data.common import CommonColumns
from fedlit.data.encoder import TableEncoder
from fedlit.data.table import ClientTable
from fedlit.data.target import target_facts
from fedlit.errors import ConfigError, DataError
from fedlit.show.text import shorten
from fedlit.tasks import TASKS, Task

__all__ = ["newcomer"]

States = Mapping[str, Mapping[str, Any]]
"""Client of the run → its encoder's state."""


def newcomer(table: ClientTable, terms: Terms, states: States) -> tuple[TableEncoder, ClientTable]:
    """The encoder of a client that the agreement of a run did not know.

    Columns that clients of the run have in common are coded as these code them, labels too, as far as the terms say
    that they are common. All else is learnt of the client's own training rows.

    Args:
        table: the client's.
        terms: of the run.
        states: of the encoders of the run's clients, by name.

    Returns:
        The encoder, and the table without the columns that the run does not know where inputs are common, with notes.

    Raises:
        DataError: a column of another kind than in the run, or a label that no client of the run has.
        ConfigError: nothing in common.
    """
    if terms.alike:  # what is common is coded as in the run, whatever sort of table this is
        terms = replace(terms, categories=next(iter(states.values()))["categories"])
    known, groups = _known(table, terms, states)
    if terms.features:
        table = _without_strange(table, known, shorten(list(states)))
    train = table.features.iloc[table.splits["train"]]
    columns = {}
    for name, own in known.items():
        if name in train:
            kind = kind_of(train[name], name in table.categorical)
            if kind not in (None, own.kind):
                raise DataError(
                    f"client {table.name!r}, column {name!r}: expected {own.kind}, as the run's clients have there, "
                    f"found {kind}; declare the column's type, rename it, or drop it"
                )
        alike = own.kind != NUMBERS and terms.alike
        moments = own.moments if terms.pooled else None
        edges = own.edges if terms.sketched else ()
        columns[name] = AgreedColumn(
            (table.name,), own.kind, own.categories if alike else None, moments, own.tail, edges
        )
    encoder = TableEncoder(table.name, Agreement(terms, tuple(columns), columns, groups)).fit(table)
    if terms.features and (expected := tuple(next(iter(states.values()))["features"])) != encoder.features:
        missing = sorted(set(expected) ^ set(encoder.features))
        raise ConfigError(
            f"client {table.name!r}: expected the inputs of the run's clients, found others: {shorten(missing)}; use "
            "the run's data.categories and data.missing"
        )
    notes = _take_task(encoder, table, terms, states)
    for name in columns:
        count, new = encoder.columns[name].unseen(train[name]) if name in encoder.columns else (0, [])
        if count:
            notes.append(
                f"{table.name}: {name}: {count:,} training rows have a category that the run's clients did not have "
                f"({shorten(new)}); they count as unseen"
            )
    return encoder, replace(table, notes=(*table.notes, *notes))


def _known(
    table: ClientTable, terms: Terms, states: States
) -> tuple[dict[str, ColumnEncoder], tuple[CommonColumns, ...] | None]:
    """The columns that are coded as in the run, and the groups of columns that the client has."""
    all_: dict[str, ColumnEncoder] = {}
    found: dict[str, list[str]] = {}
    for state in states.values():
        for name, own in state["columns"].items():
            all_.setdefault(name, ColumnEncoder.of(name, own))
        found.update(state["common"] or {})
    groups = None
    if terms.common is not None:
        groups = tuple(
            CommonColumns(name, tuple(columns), (table.name,))
            for name, columns in sorted(found.items())
            if set(columns) <= set(map(str, table.features))
        )
    if terms.features:
        return dict(sorted(all_.items())), groups
    if groups is not None:
        return {name: all_[name] for group in groups for name in group.columns}, groups
    common = {name: own for name, own in all_.items() if own.kind == NUMBERS}
    return {name: own for name, own in common.items() if terms.pooled or (terms.sketched and own.edges)}, groups


def _without_strange(table: ClientTable, known: Mapping[str, ColumnEncoder], clients: str) -> ClientTable:
    """The table with the columns that the run knows: a network with the run's inputs has no place for others."""
    own = list(map(str, table.features))
    kept, left = [name for name in own if name in known], [name for name in own if name not in known]
    if not kept:
        raise ConfigError(
            f"client {table.name!r}: expected a column that clients of the run have, for its inputs are common "
            f"(data.align), found none; they have {shorten(list(known))}. Rename columns that mean the same"
        )
    notes = list(table.notes)
    if left:
        notes.append(f"{table.name}: left out, for no client of the run ({clients}) has it: {shorten(left)}")
    if lacking := [name for name in known if name not in kept]:
        notes.append(f"{table.name}: does not have, and enters as 0 (data.align): {shorten(lacking)}")
    schema = table.schema
    if schema is not None:  # new rows need not have what is not used
        schema = replace(schema, columns={name: col for name, col in schema.columns.items() if name not in left})
    categorical = tuple(name for name in table.categorical if name in kept)
    return replace(table, features=table.features[kept], categorical=categorical, schema=schema, notes=tuple(notes))


def _take_task(encoder: TableEncoder, table: ClientTable, terms: Terms, states: States) -> list[str]:
    """Let the encoder have the run's outputs where these are common; what is to be said."""
    facts = target_facts(table)
    if not (facts["shared"] or (terms.classes and "labels" in facts)):
        return []
    tasks = {name: _task(state) for name, state in states.items()}
    same = [own for own in tasks.values() if own.name == facts["task"]]
    if not same:
        return [f"{table.name}: no client of the run has the task {facts['task']}, so its outputs are its own"]
    labels = facts.get("labels", ())
    if strange := [label for label in labels if label not in same[0].classes]:
        raise DataError(
            f"client {table.name!r}, target {table.target.name!r}: expected labels of the run's clients "
            f"({shorten(list(map(str, same[0].classes)))}), for outputs are common (data.align: {terms.align}), found "
            f"{shorten(list(map(str, strange)))}; rename them, drop these rows, or train a run in which heads are "
            "private (data.align: none)"
        )
    encoder.task = same[0]
    encoder.seen = tuple(map(encoder.task.classes.index, labels))
    return []


def _task(state: Mapping[str, Any]) -> Task:
    settings = {key: tuple(own) if isinstance(own, list) else own for key, own in state["task"].items()}
    return TASKS[str(settings.pop("name"))](**settings)
