"""Encodes a client that joins later, by what the clients of a trained run agreed on and without asking them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedlit.data.agree import Agreement, Terms
from fedlit.data.encoder import TableEncoder
from fedlit.data.note import Note, client_note
from fedlit.data.schema.column import kind_of
from fedlit.data.table import ClientTable
from fedlit.data.target import agree_on_task, target_facts
from fedlit.errors import DataError, expect
from fedlit.show.text import shorten


def newcomer(
    table: ClientTable, terms: Terms, agreed: Agreement, clients: Iterable[str]
) -> tuple[TableEncoder, ClientTable]:
    """Return the encoder of a client that was not part of the run's agreement.

    Columns that clients of the run have in common are coded as these code them, labels too, as far as the terms say
    that they are common. All else is learnt of the client's own training rows.

    Args:
        table: the client's table.
        terms: the settings of its own run.
        agreed: the agreement of the run that it joins.
        clients: the clients of that run.

    Returns:
        The encoder, and the table without the columns that the run does not know where inputs are common, with notes.

    Raises:
        DataError: a column of another kind than in the run, or a label that no client of the run has.
        ConfigError: nothing in common.
    """
    if terms.alike:  # what is common is coded as in the run, whatever sort of table this is
        terms = replace(terms, categories=agreed.terms.categories)
    if terms.features:
        table = _without_strange(table, agreed, shorten(list(clients)))
    agreement = agreed.with_client(table.name, terms, map(str, table.features))
    for name in map(str, table.features):
        train = table.features[name].iloc[table.splits["train"]]
        wanted = agreement.columns[name].kind if name in agreement.columns else None
        found = kind_of(train, name in table.categorical)
        if wanted and found and found != wanted:
            raise DataError(
                f"client {table.name!r}, column {name!r}: expected {wanted}, as the run's clients have there, found "
                f"{found}; declare the column's type, rename it, or drop it"
            )
    encoder = TableEncoder(table.name, replace(agreement, targets={})).fit(table)
    met = {name: own for name, own in encoder.columns.items() if name in agreement.columns}
    other = sorted({*(agreed.features or ())} ^ {*encoder.features}) if terms.features else []
    advice = "use the run's data.categories and data.missing"
    expect(not other, f"client {table.name!r}", "the inputs of the run's clients", shorten(other), advice)
    notes = _take_task(encoder, table, terms, agreed)
    for name, own in met.items():
        count, new = own.unseen(table.features[name].iloc[table.splits["train"]])
        if count:
            text = f"{count:,} training rows have a category that the run's clients did not have ({shorten(new)})"
            said = f"{text}; they count as unseen"
            notes.append(Note(said, "unseen", clients=[table.name], column=name, head=f"{table.name}: {name}"))
    return encoder, replace(table, notes=(*table.notes, *notes))


def _without_strange(table: ClientTable, agreed: Agreement, clients: str) -> ClientTable:
    """Drop the columns that the run does not know, because a network with the run's inputs has no place for them."""
    known, own = agreed.columns, list(map(str, table.features))
    kept, left = [name for name in own if name in known], [name for name in own if name not in known]
    wanted = f"a column that clients of the run have, for its inputs are common (data.align), of {shorten(list(known))}"
    expect(bool(kept), f"client {table.name!r}", wanted, shorten(own), "rename columns that mean the same")
    notes = list(table.notes)
    if left:
        text = f"left out, for no client of the run ({clients}) has it: {shorten(left)}"
        notes.append(client_note(table.name, "left out", text, fix={"drop": left}))
    if lacking := [name for name in known if name not in kept]:
        text = f"does not have, and enters as 0 (data.align): {shorten(lacking)}"
        notes.append(client_note(table.name, "absent", text))
    return replace(table.only(kept), notes=tuple(notes))


def _take_task(encoder: TableEncoder, table: ClientTable, terms: Terms, agreed: Agreement) -> list[Note]:
    """Give the encoder the run's outputs if these are common; return notes."""
    facts = target_facts(table)
    if not (facts["shared"] or (terms.classes and "labels" in facts)):
        return []
    same = [client for client, target in agreed.targets.items() if target["task"] == facts["task"]]
    if not same:
        text = f"no client of the run has the task {facts['task']}, so its outputs are its own"
        return [client_note(table.name, "task", text, [str(table.target.name)])]
    task, labels = agree_on_task(same[0], agreed.targets, classes=terms.classes), facts.get("labels", ())
    if strange := [label for label in labels if label not in task.classes]:
        raise DataError(
            f"client {table.name!r}, target {table.target.name!r}: expected labels of the run's clients "
            f"({shorten(list(map(str, task.classes)))}), for outputs are common (data.align: {terms.align}), found "
            f"{shorten(list(map(str, strange)))}; rename them, drop these rows, or train a run in which heads are "
            "private (data.align: none)"
        )
    encoder.task, encoder.seen = task, tuple(map(task.classes.index, labels))
    return []
