"""One page of what clients' tables hold, what is odd in them, and what would settle it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlit.data.examine.checks import MOST_PAIRS, OF_EACH, OF_SEVERAL
from fedlit.data.examine.facts import ClientFacts, facts_of, named
from fedlit.data.examine.leaks import ROWS, ROWS_OF_WIDE
from fedlit.data.examine.paragraphs import column_table, common_columns, each, flow, table_of, together
from fedlit.data.note import Note
from fedlit.data.table import ClientTable
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import Verbatim

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

__all__ = ["KINDS", "Page", "examine"]

KINDS = {
    "untrainable": ("a client that cannot be trained", "Name another target, or leave the client out."),
    "leak": ("a column tells the target", "Is it known when the prediction is made? If not, drop it."),
    "rows": ("the same rows at two clients", "The same people? Then scores flatter: leave them out at one client."),
    "group": ("several rows of one person or thing", ""),
    "missing": ("values that may mean that there is no value", ""),
    "task": ("a target that may be meant otherwise", ""),
    "date": ("numbers that look like dates", ""),
    "positive": ("which of two classes counts as positive", ""),
    "name": ("two names for what looks the same", "If it is the same thing, give it one name, in one unit."),
    "scale": ("one name, numbers of another size", "If the units differ, convert one."),
    "kind": ("one name, values of another kind", "Columns are common by name and kind."),
    "values": ("two spellings of what looks like one category", "If they are the same, write them alike."),
    "labels": ("labels that look alike", "Write them alike if classes are to be shared (data.align)."),
    "": ("also of the tables", ""),
    "read": ("how files were read", ""),
}
"""What is looked for, the worst first: kind → a heading, and what to do. Other kinds are printed under ``""``."""
_INFORMS = ("left out", "read")  # kinds that say what was done, where nothing has to be decided
_OF_FILES = ("rename", "missing", "types")
_PAIRS = ("rows", "name", "scale", "kind", "values", "labels")  # kinds whose sentences name the clients
_MANY = 12  # clients up to which each has a paragraph of its own
_MOST, _FEW = 10, 3  # notes of one kind that are printed, and clients of whom is printed what to write
_NUMBERS = re.compile(r"\d[\d,.]*")
_HOW = (
    f"Columns that alone tell the target were looked for in up to {ROWS:,} training rows of each client "
    f"({ROWS_OF_WIDE:,} where it is wide). Rows of two clients can be compared only here, where one process sees both"
)


@dataclass(frozen=True)
class Page(Shown):
    """What clients' tables hold, and notes on it.

    Attributes:
        clients: in numbers.
        notes: of all tables, the worst first.
        own_tables: whether ``fix`` of notes are keys of :class:`fedlit.Tables`; of other sources columns can be left
            out by ``data.columns``.
        columns: whether each column is shown.
    """

    clients: tuple[ClientFacts, ...]
    notes: tuple[Note, ...]
    own_tables: bool = True
    columns: bool = False

    @property
    def odd(self) -> list[Note]:
        """The notes that ask for something."""
        return [note for note in self.notes if note.kind not in _INFORMS]

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        many = len(self.clients) > _MANY
        yield from together(self.clients) if many else [table_of(self.clients)]
        for own in self.clients if self.columns or not many else ():
            yield ""
            yield from each(own)
            if self.columns:
                yield column_table(own)
        if len(self.clients) > 1:
            yield ""
            yield common_columns(self.clients)
        yield ""
        shown = [note for note in self.notes if note.kind != "left out"]
        if not self.notes:
            yield "Nothing odd was found."
        elif shown:
            yield f"To look at ({len(shown)}):"
        for kind in KINDS:
            yield from self._kind(kind, [own for own in shown if _heading(own) == kind])
        yield ""
        pairs = len(self.clients) * (len(self.clients) - 1) // 2
        yield _HOW + (f", and of {MOST_PAIRS:,} of {pairs:,} pairs were." if pairs > MOST_PAIRS else ".")

    def _kind(self, kind: str, notes: Sequence[Note]) -> Iterable[str]:
        """The notes of one kind; those that differ in numbers alone are printed once, with their clients."""
        (title, advice), groups = KINDS[kind], dict[str, list[Note]]()
        for note in notes:
            same = _NUMBERS.sub("#", note.text) if len(self.clients) > _MANY else note.text
            groups.setdefault(f"{note.column}: {same}", []).append(note)
        if notes:
            yield f"{title[0].upper()}{title[1:]}:"
        for group in sorted(groups.values(), key=lambda own: -len(own))[:_MOST]:
            clients = list(dict.fromkeys(client for note in group for client in note.clients))
            who = named(clients) if clients and group[0].kind not in _PAIRS[1:] else ""
            yield f"- {': '.join(filter(None, [who, group[0].column, group[0].text]))}"
            if kind not in _INFORMS:
                yield from self._fixes(group)
        if len(groups) > _MOST:
            yield f"- … and {len(groups) - _MOST} more (--format json has all)"
        if notes and advice:
            yield f"  {advice}"

    def _fixes(self, notes: Sequence[Note]) -> Iterable[str]:
        """What settles notes, as YAML: keys of Tables, those of a file in its entry."""
        fix, clients = notes[0].fix, [client for note in notes for client in note.at]
        if not self.own_tables and "drop" in fix:
            yield Verbatim(f"  Write: data: {{columns: {flow([f'!{name}' for name in fix['drop']])}}}")
        for client in clients[:_FEW] if fix and self.own_tables else ():
            for key, value in fix.items():
                own = {"files": {client: {key: value}}} if key in _OF_FILES else {key: {client: value}}
                yield Verbatim(f"  Write: {flow(own)[1:-1]}")
        if fix and self.own_tables and len(clients) > _FEW:
            yield f"  … and at {len(clients) - _FEW:,} more clients"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"clients": [own.to_dict() for own in self.clients], "notes": [own.to_dict() for own in self.notes]}


def examine(tables: Sequence[ClientTable], source: Source | None = None, *, columns: bool = False) -> Page:
    """Look at clients' tables, alone and beside each other.

    Columns that tell the target are looked for in a sample of training rows; quantiles are of a sample; the same rows
    at two clients can be found only where one process sees both.

    Args:
        tables: as a source gives them.
        source: whose tables they are, so that what to write fits it; :class:`fedlit.Tables` if None.
        columns: whether the page shows each column.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> page = examine(Bundled(clients=["wine"]).tables(seed=8))
        >>> page.clients[0].rows["train"], page.notes
        (106, ())
    """
    from fedlit.data.sources.tables import Tables

    clients = tuple(map(facts_of, tables))
    one_table = getattr(source, "client_column", None) is not None
    notes = [note for check in (OF_EACH if one_table else OF_EACH + OF_SEVERAL) for note in check(clients)]
    order = list(KINDS)
    notes.sort(key=lambda own: order.index(_heading(own)))
    return Page(clients, tuple(notes), source is None or isinstance(source, Tables), columns)


def _heading(note: Note) -> str:
    return note.kind if note.kind in KINDS else ""
