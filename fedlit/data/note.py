"""A note tells a person something about a table. It is made where the finding is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Fix = Mapping[str, Any]
"""Keys of :class:`fedlit.Tables`, or of how a file is read, with values that settle a note."""


class Note(str):
    """A sentence with its kind, clients, column and fix. As text it begins with the client and the
    column.

    Args:
        text: the sentence.
        kind: a short word for the finding, such as ``left out``, ``missing`` or ``group``; "" for
            none.
        clients: the clients concerned; empty for the client of the table that carries the note.
        column: the column concerned; "" for none.
        fix: keys of :class:`fedlit.Tables`, or of how a file is read (``drop``, ``rename``,
            ``missing``, ``types``, ``task``, ``positive``, ``split``), that settle it; none where a
            person must decide.
        alternatives: several such fixes, where a person must choose one; ``fix`` is then empty.
        counts: the numbers of the sentence, by noun: ``{"cells": 20}``.
        at: the clients to whose settings ``fix`` belongs; all of ``clients`` if None.
        head: the text before the sentence.

    Example:
        >>> note = prefixed("age", Note("is -9 a gap?", "missing", fix={"missing": {"age": [-9]}}), column="age")
        >>> note, note.kind, note.column, note.text, note.fix
        ('age: is -9 a gap?', 'missing', 'age', 'is -9 a gap?', {'missing': {'age': [-9]}})
    """

    text: str
    kind: str
    clients: tuple[str, ...]
    column: str
    fix: Fix
    alternatives: tuple[Fix, ...]
    counts: Mapping[str, int]
    at: tuple[str, ...]

    def __new__(
        cls,
        text: str,
        kind: str = "",
        *,
        clients: Sequence[str] = (),
        column: str = "",
        fix: Fix | None = None,
        alternatives: Sequence[Fix] = (),
        counts: Mapping[str, int] | None = None,
        at: Sequence[str] | None = None,
        head: str = "",
    ) -> Note:
        """See the class."""
        note = super().__new__(cls, f"{head}: {text}" if head else text)
        note.text = text
        note.kind = kind
        note.column = column
        note.fix = dict(fix or {})
        note.alternatives = tuple(alternatives)
        note.counts = dict(counts or {})
        note.clients = tuple(clients)
        note.at = tuple(clients)
        if at is not None:
            note.at = tuple(at)
        return note

    def copied(self, *, clients: Sequence[str] = (), column: str = "", head: str = "") -> Note:
        """Return the same note of other clients, of a column, with another text before it."""
        return Note(
            self.text,
            self.kind,
            clients=clients,
            column=column,
            fix=self.fix,
            alternatives=self.alternatives,
            counts=self.counts,
            head=head,
        )


def client_note(
    client: str,
    kind: str,
    text: str,
    columns: Sequence[str] = (),
    fix: Fix | None = None,
) -> Note:
    """Make a note on one client's table; it names the column if there is only one."""
    column = columns[0] if len(columns) == 1 else ""
    return Note(text, kind, clients=[client], column=column, fix=fix, head=client)


def prefixed(head: str, note: str, *, column: str = "") -> Note:
    """Put a client, a column or a place before a note.

    Args:
        head: the word.
        note: a note, or a plain sentence.
        column: the column that the note concerns, if the note does not know it yet.
    """
    if not isinstance(note, Note):
        return Note(note, column=column, head=head)
    before = note.removesuffix(note.text).removesuffix(": ")
    whole = head
    if before:
        whole = f"{head}: {before}"
    return note.copied(column=note.column or column, head=whole)


def similar(notes: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Group notes that differ only in numbers, so that each is shown once with the clients that
    have it.

    Args:
        notes: client and note.

    Returns:
        The first one's text, and the clients; the most frequent first.

    Example:
        >>> similar([("a", "a: 4 rows doubled"), ("b", "b: 5 rows doubled"), ("b", "b: no header")])
        [('4 rows doubled', ['a', 'b']), ('no header', ['b'])]
    """
    groups: dict[str, tuple[str, list[str]]] = {}
    for client, note in notes:
        text = note.removeprefix(f"{client}: ")
        if isinstance(note, Note):
            text = note.text
            if note.column:
                text = f"{note.column}: {text}"
            if note == note.text:
                client = ""  # A note without a name at its beginning concerns all clients.
        groups.setdefault(re.sub(r"\d[\d,.]*", "#", text), (text, []))[1].append(client)
    return sorted(groups.values(), key=lambda group: -len(group[1]))
