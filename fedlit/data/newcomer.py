"""Encodes a client that joins a trained run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedlit.data.agree import Agreement
from fedlit.data.columns import NUMBERS
from fedlit.data.encoder import TableEncoder
from fedlit.data.note import Note, client_note
from fedlit.data.table import ClientTable
from fedlit.data.targets import target_facts
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError
from fedlit.show.text import shorten


def newcomer(
    table: ClientTable, terms: Terms, agreed: Agreement, clients: Iterable[str]
) -> tuple[TableEncoder, ClientTable]:
    """Return the encoder of a client that was not part of the run's agreement.

    Columns and labels that clients of the run have in common are coded as in the run, as far as the
    terms make them common. Everything else is learnt from the client's own training rows.

    Args:
        table: the client's table.
        terms: the settings of its own run.
        agreed: the agreement of the run that it joins.
        clients: the clients of that run.

    Returns:
        The encoder, and the table with notes; if inputs are common, without the columns that the
        run does not know.

    Raises:
        DataError: a column of another kind than in the run, or a label that no client of the run
            has.
        ConfigError: nothing in common.
    """
    if terms.alike:  # Common columns are coded as in the run, whatever the table's source.
        terms = replace(terms, categories=agreed.terms.categories, missing=agreed.terms.missing)
    if terms.features:
        table = _without_strange(table, agreed, shorten(list(clients)))
    agreement = agreed.with_client(table.name, terms, map(str, table.features))
    target = target_facts(table)
    encoder = TableEncoder(table.name, agreement).fit(table)
    notes = list(table.notes)
    if terms.shares(target) and all(
        facts["task"] != target["task"] for facts in agreed.targets.values()
    ):
        text = f"no client of the run has the task {target['task']}, so its outputs are its own"
        notes.append(client_note(table.name, "task", text, [str(table.target.name)]))
    for name, column in encoder.columns.items():
        count, new = column.unseen(table.features[name].iloc[table.splits["train"]])
        if count and name in agreement.columns:
            text = (
                f"{count:,} training rows have a category that the run's clients did not have "
                f"({shorten(new)})"
            )
            sentence = f"{text}; they count as unseen"
            notes.append(
                Note(
                    sentence,
                    "unseen",
                    clients=[table.name],
                    column=name,
                    head=f"{table.name}: {name}",
                )
            )
    return encoder, replace(table, notes=tuple(notes))


def _without_strange(table: ClientTable, agreed: Agreement, clients: str) -> ClientTable:
    """Drop the columns whose position among the run's inputs, or whose codes, the run does not
    know.
    """
    usable = [
        name
        for name, column in agreed.columns.items()
        if column.kind in (None, NUMBERS) or column.categories is not None
    ]
    columns = list(map(str, table.features))
    common = [name for name in columns if name in usable]
    strange = [name for name in columns if name not in usable]
    absent = [name for name in usable if name not in common]
    if not common:
        raise ConfigError(
            f"client {table.name!r}: expected a column that clients of the run have, because its "
            f"inputs are common (data.align), of {shorten(usable)}, found {shorten(columns)!r}; "
            "rename columns that mean the same"
        )
    notes = list(table.notes)
    if strange:
        text = f"left out, because it is not common to clients of the run ({clients}): "
        text += shorten(strange)
        notes.append(client_note(table.name, "left out", text, fix={"drop": strange}))
    if absent:
        text = f"has no column for inputs of the run: {shorten(absent)}"
        notes.append(client_note(table.name, "absent", text))
    return replace(table.only(common), notes=tuple(notes))
