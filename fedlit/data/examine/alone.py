"""What is odd in one client's table: a list of small checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedlit.data.examine.facts import ClientFacts
from fedlit.data.note import Note

__all__ = ["noted", "untrainable"]


def noted(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """What reading, schema, labels and splitting found."""
    for own in clients:
        for note in own.table.notes:
            if not isinstance(note, Note):
                note = Note(note.removeprefix(f"{own.client}: "), head=own.client)
            who = () if note == note.text else (own.client,)  # without a name before it, it is of all
            yield Note(note.text, note.kind, clients=who, column=note.column, fix=note.fix)


def untrainable(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Training rows from which nothing can be learnt."""
    for own in clients:
        rows = own.table.target.iloc[own.table.splits["train"]].dropna()
        values = [set(column) - {None} for column in zip(*rows, strict=True)] if own.labels else [set(rows)]
        if not len(rows):
            text = "no training row has a value to predict"
        elif own.task in ("classification", "multi_label") and all(len(held) < 2 for held in values):
            text = f"one value in all {len(rows):,} training rows: a classifier cannot be trained on it"
        elif own.task == "counts" and values[0] == {0}:
            text = f"0 in all {len(rows):,} training rows: no rate can be learnt from it"
        else:
            continue
        yield Note(text, "untrainable", clients=(own.client,), column=own.target)
