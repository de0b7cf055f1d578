"""The page of ``fedlit check``: what clients' tables hold, what is odd in them, and how to fix it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.examine.checks import MOST_PAIRS, OF_EACH, OF_SEVERAL
from fedlit.data.examine.facts import ClientFacts, ColumnFacts, facts_of, owners
from fedlit.data.examine.leaks import ROWS, ROWS_OF_WIDE
from fedlit.data.note import Note
from fedlit.data.table import ClientTable
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import Verbatim, counted, shorten

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

KINDS = {
    "untrainable": ("a client that cannot be trained", "Name another target, or leave the client out."),
    "leak": ("a column predicts the target", "Is it known when the prediction is made? If not, drop it."),
    "rows": (
        "the same rows at two clients",
        "If they are the same people, scores are too good: leave them out at one client.",
    ),
    "people": (
        "the same identifiers at two clients",
        "If they are the same people, leave them out at one client. If each client counts its own, nothing is wrong.",
    ),
    "group": ("several rows of one person or thing", ""),
    "missing": ("values that may stand for a missing value", ""),
    "task": ("a target whose task is unclear", ""),
    "date": ("numbers that look like dates", ""),
    "positive": ("the positive class", ""),
    "name": ("two names for what looks the same", "If it is the same thing, give it one name, in one unit."),
    "scale": ("one name, but numbers of different size", "If the units differ, convert one."),
    "kind": ("one name, but values of different kinds", "Columns are common by name and kind."),
    "values": ("two spellings of what looks like one category", "If they are the same, write them in the same way."),
    "labels": ("labels that look alike", "Write them in the same way if classes are to be shared (data.align)."),
    "": ("further remarks", ""),
    "read": ("how files were read", ""),
}
"""What is looked for, the worst first: kind → a heading, and what to do. Other kinds are printed under ``""``."""
_INFORMS = ("left out", "read")  # kinds that say what was done, where nothing has to be decided
_OF_FILES = ("rename", "missing", "types", "names", "sep", "encoding")
_PAIRS = ("name", "scale", "kind", "values", "labels")  # kinds whose sentences name the clients
_MANY = 12  # clients up to which each has a paragraph of its own
_MOST, _FEW = 10, 3  # notes of one kind that are printed, and clients of whom is printed what to write
_NUMBERS = re.compile(r"\d[\d,.]*")
_KIND_WORDS = {
    "numeric": ("number", ""), "categorical": ("category", "categories"), "boolean": ("yes or no", "yes or no"),
    "ordinal": ("ordered", "ordered"), "date": ("date", ""),
}  # fmt: skip
_HOW = (
    f"The search for columns that alone predict the target used up to {ROWS:,} training rows of each client "
    f"({ROWS_OF_WIDE:,} if the table is wide). Rows of two clients can only be compared where one process sees both"
)


@dataclass(frozen=True)
class Page(Shown):
    """What clients' tables hold, with notes on them.

    Attributes:
        clients: the summary of each client.
        notes: the notes on all tables, the most important first.
        own_tables: whether ``fix`` of notes are keys of :class:`fedlit.Tables`; of other sources columns can be left
            out by ``data.columns``.
    """

    clients: tuple[ClientFacts, ...]
    notes: tuple[Note, ...]
    own_tables: bool = True

    @property
    def odd(self) -> list[Note]:
        """The notes that ask the user for something."""
        return [note for note in self.notes if note.kind not in _INFORMS]

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        many = len(self.clients) > _MANY
        yield _together(self.clients) if many else _table_of(self.clients)
        for own in () if many else self.clients:
            yield ""
            yield from _paragraph(own)
        if len(self.clients) > 1:
            yield ""
            yield _common_columns(self.clients)
        yield ""
        shown = [note for note in self.notes if many or note.kind != "left out"]
        yield f"To review ({len(shown)}):" if shown else "No problems were found."
        for kind in KINDS:
            yield from self._kind(kind, [own for own in shown if _heading(own) == kind])
        yield ""
        pairs = len(self.clients) * (len(self.clients) - 1) // 2
        yield _HOW + (f", and {MOST_PAIRS:,} of {pairs:,} pairs were compared." if pairs > MOST_PAIRS else ".")

    def _kind(self, kind: str, notes: Sequence[Note]) -> Iterable[str]:
        """Yield the notes of one kind. Those that differ only in numbers are shown once, with their clients."""
        (title, advice), groups = KINDS[kind], dict[str, list[Note]]()
        for note in notes:
            same = _NUMBERS.sub("#", note.text) if len(self.clients) > _MANY else note.text
            groups.setdefault(f"{note.column}: {same}", []).append(note)
        if notes:
            yield f"{title[0].upper()}{title[1:]}:"
        for group in sorted(groups.values(), key=lambda own: -len(own))[:_MOST]:
            clients = list(dict.fromkeys(client for note in group for client in note.clients))
            who = shorten(clients, 4) if clients and group[0].kind not in _PAIRS else ""
            yield f"- {': '.join(filter(None, [who, group[0].column, group[0].text]))}"
            if kind not in _INFORMS:
                yield from self._fixes(group)
        if len(groups) > _MOST:
            yield f"- … and {len(groups) - _MOST} more (--format json has all)"
        if notes and advice:
            yield f"  {advice}"

    def _fixes(self, notes: Sequence[Note]) -> Iterable[str]:
        """Yield what settles notes, as YAML: keys of Tables, or of a file's entry."""
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
        """Return plain data."""
        return {"clients": [own.to_dict() for own in self.clients], "notes": [own.to_dict() for own in self.notes]}


def examine(tables: Sequence[ClientTable], source: Source | None = None) -> Page:
    """Examine clients' tables, alone and together.

    Columns that predict the target are looked for in a sample of training rows; quantiles are of a sample; the same
    rows at two clients can be found only where one process sees both.

    Args:
        tables: the tables, as a source returns them.
        source: the source of the tables, so that the proposed keys fit it; :class:`fedlit.Tables` if None.

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
    return Page(clients, tuple(notes), source is None or isinstance(source, Tables))


def _heading(note: Note) -> str:
    return note.kind if note.kind in KINDS else ""


def flow(value: Any) -> str:
    """Return plain data as YAML in one line."""
    import yaml

    plain = json.loads(json.dumps(value, default=str))  # nothing twice the same object: no anchors
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.removesuffix("...\n").strip()


# ---------------------------------------------------------------------- clients in tables and sentences


def _numbers(own: ClientFacts) -> dict[str, float]:
    missing = 100 * sum(column.missing for column in own.columns.values()) / max(len(own.columns), 1)
    return {"rows": sum(own.rows.values()), **own.rows, "columns": len(own.columns), "missing %": missing}


def _table_of(clients: Sequence[ClientFacts]) -> Grid:
    rows = [[own.client, *(f"{number:,.4g}" for number in _numbers(own).values()), own.target] for own in clients]
    return Grid(["client", *_numbers(clients[0]), "target"], rows)


def _together(clients: Sequence[ClientFacts]) -> Grid:
    """Summarise many clients: the least, the median and the most of each number."""
    held = [_numbers(own) for own in clients]
    rows = [[key, *(f"{pick([own[key] for own in held]):,.4g}" for pick in (min, np.median, max))] for key in held[0]]
    return Grid([f"{len(clients):,} clients", "least", "median", "most"], rows)


def _paragraph(own: ClientFacts) -> Iterable[str]:
    """Yield a client's targets, columns and missing cells."""
    yield f"{own.client}: predicts {'; '.join(_target(own, name, held) for name, held in own.targets.items())}"
    kinds = Counter(column.kind for column in own.columns.values()).most_common()
    parts, reasons = [counted(number, *_KIND_WORDS[kind]) for kind, number in kinds], dict[str, list[str]]()
    for name, why in own.left_out.items():
        reasons.setdefault(why, []).append(name)
    left = "; ".join(f"{shorten(names, 6)} ({why})" for why, names in reasons.items())
    yield f"  Columns: {', '.join(parts)}" + (f". Left out: {left}" if left else "")
    if gaps := sorted((column.missing, name) for name, column in own.columns.items() if column.missing)[::-1]:
        shown = shorten([f"{name} {_share(share)}" for share, name in gaps], 5)
        cells = round(sum(share for share, _ in gaps) * len(own.table.features))
        yield f"  Missing: {counted(cells, 'cell')} in {counted(len(gaps), 'column')}: {shown}"


def _share(share: float) -> str:
    return f"{100 * share:.3g} %" if share >= 0.001 else "<0.1 %"


def _target(own: ClientFacts, name: str, held: ColumnFacts) -> str:
    if held.values is None:
        if not held.quantiles:
            return f"{name} ({own.task})"
        low, _, middle, _, high = held.quantiles
        return f"{name}, a number ({own.task}): from {low:.4g} to {high:.4g}, median {middle:.4g}"
    rows, known = sum(own.rows.values()), sum(held.values.values())
    shown = [f"{label} ({counted(n, 'row')}, {_share(n / known)})" for label, n in held.values.items()]
    shown += [f"not known ({counted(rows - known, 'row')})"] if known < rows else []
    positive = "" if own.table.positive is None else f"; positive is {own.table.positive}"
    return f"{name}: {shorten(shown, 6)}{positive}"


def _common_columns(clients: Sequence[ClientFacts]) -> str:
    """Say which columns several clients have."""
    shared = {name: len(who) for name, who in owners(clients).items() if len(who) > 1}
    if not shared:
        return "No two clients have a column in common. They can share a core, but no columns."
    everywhere = [name for name, number in shared.items() if number == len(clients)]
    some = [f"{name} ({number})" for name, number in shared.items() if number < len(clients)]
    alone = [own.client for own in clients if not set(own.columns) & set(shared)]
    text = f"Columns of all {len(clients):,} clients: {shorten(everywhere, 12) or 'none'}."
    text += f" Of several: {shorten(some, 12)}." if some else ""
    return text + (f" Clients without a common column: {shorten(alone, 4)}." if alone else "")
