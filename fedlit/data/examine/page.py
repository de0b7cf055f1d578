"""The page of ``fedlit check``: what clients' tables hold, what is odd in them, and how to fix it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fedlit import yaml_text
from fedlit.data.examine.checks import CHECKS, COMPARISONS, MOST_PAIRS
from fedlit.data.examine.facts import ClientFacts, ColumnFacts, by_name, facts_of
from fedlit.data.note import Note
from fedlit.data.table import SPLITS, ClientTable
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, Verbatim, counted, more, shorten

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

_BETWEEN = ("name", "scale", "kind", "values", "labels")  # kinds whose sentences name the clients
_INFORMS = ("left out", "read")  # kinds that say what was done, where nothing has to be decided
_KINDS = (
    "untrainable", "leak", "rows", "people", "group", "missing", "task", "date", "positive", *_BETWEEN, "", *_INFORMS,
)  # fmt: skip
"""The worst first; other kinds count as ``""``."""
_OF_FILES = ("rename", "missing", "types", "names", "sep", "encoding")
_MANY = 12  # clients up to which each has a paragraph of its own
_FEW = 3  # clients of whom is printed what to write
_NUMBERS = re.compile(r"\d[\d,.]*")
_HEADER = ("client", "rows", *SPLITS, "columns", "missing %", "target")
_HOW = (
    "Columns that predict the target were looked for in a sample of each client's training rows. Rows of two clients "
    f"can only be compared where one process sees both, and for at most {MOST_PAIRS} pairs of clients."
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

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        many = len(self.clients) > _MANY
        yield Grid(_HEADER, [*map(_row, self.clients[:MOST_ROWS])])
        yield from more(self.clients, "clients (--format json has all)")
        for own in () if many else self.clients:
            yield ""
            yield from _paragraph(own)
        if len(self.clients) > 1:
            yield ""
            yield _common_columns(self.clients)
        yield ""
        shown = [note for note in self.notes if many or note.kind != "left out"]
        yield "To review:" if shown else "Nothing else to review." if self.notes else "No problems were found."
        for _, notes in groupby(shown, key=_rank):
            yield from self._bullets(list(notes))
        yield ""
        yield _HOW

    def _bullets(self, notes: Sequence[Note]) -> Iterable[str]:
        """Yield notes of one kind. Of many clients those that differ only in numbers are shown once."""
        groups = dict[str, list[Note]]()
        for note in notes:
            same = _NUMBERS.sub("#", note.text) if len(self.clients) > _MANY else note.text
            groups.setdefault(f"{note.column}: {same}", []).append(note)
        for group in sorted(groups.values(), key=lambda own: -len(own))[:MOST_ROWS]:
            first, clients = group[0], list(dict.fromkeys(client for note in group for client in note.clients))
            who = shorten(clients, 4) if first.kind not in _BETWEEN else ""
            yield f"- {': '.join(filter(None, [who, first.column, first.text]))}"
            if self.own_tables and first.kind not in _INFORMS:
                yield from _fixes(first, [client for note in group for client in note.at])
        if len(groups) > MOST_ROWS:
            yield f"- … and {len(groups) - MOST_ROWS} more (--format json has all)"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"clients": [asdict(own) for own in self.clients], "notes": [own.to_dict() for own in self.notes]}


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
    notes = [note for check in CHECKS for note in check(tables)]
    if getattr(source, "client_column", None) is None:
        notes += [note for comparison in COMPARISONS for note in comparison(clients)]
    return Page(clients, tuple(sorted(notes, key=_rank)), source is None or isinstance(source, Tables))


def _rank(note: Note) -> int:
    return _KINDS.index(note.kind if note.kind in _KINDS else "")


def _fixes(note: Note, clients: Sequence[str]) -> Iterable[str]:
    """Yield what settles a note, as YAML: keys of Tables, or of a file's entry."""
    for client in clients[:_FEW]:
        for key, value in note.fix.items():
            own = {"files": {client: {key: value}}} if key in _OF_FILES else {key: {client: value}}
            plain = json.loads(json.dumps(own, default=str))
            text = yaml_text.dump(plain, default_flow_style=True, width=10**9)
            yield Verbatim(f"  Write: {text.strip()[1:-1]}")


# ---------------------------------------------------------------------- clients in tables and sentences


def _row(own: ClientFacts) -> list[str]:
    missing = 100 * sum(column.missing for column in own.columns.values()) / max(len(own.columns), 1)
    numbers = (sum(own.rows.values()), *own.rows.values(), len(own.columns), missing)
    return [own.client, *(f"{number:,.4g}" for number in numbers), ", ".join(own.targets)]


def _paragraph(own: ClientFacts) -> Iterable[str]:
    """Yield a client's targets, columns and missing cells."""
    yield f"{own.client}: predicts {'; '.join(_target(own, name, held) for name, held in own.targets.items())}"
    kinds = Counter(column.kind for column in own.columns.values()).most_common()
    reasons = dict[str, list[str]]()
    for name, why in own.left_out.items():
        reasons.setdefault(why, []).append(name)
    left = "; ".join(f"{shorten(names, 6)} ({why})" for why, names in reasons.items())
    yield f"  Columns: {', '.join(f'{number:,} {kind}' for kind, number in kinds)}" + (left and f". Left out: {left}")
    gaps = sorted(((column.missing, name) for name, column in own.columns.items() if column.missing), reverse=True)
    if gaps:
        yield f"  Missing: {shorten([f'{name} {_share(share)}' for share, name in gaps], 5)}"


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _target(own: ClientFacts, name: str, held: ColumnFacts) -> str:
    if held.values is None:
        if not held.quantiles:
            return f"{name} ({own.task})"
        low, _, middle, _, high = held.quantiles
        return f"{name}, a number ({own.task}): from {low:.4g} to {high:.4g}, median {middle:.4g}"
    rows, known = sum(own.rows.values()), sum(held.values.values())
    shown = [f"{label} ({counted(n, 'row')}, {_share(n / known)})" for label, n in held.values.items()]
    shown += [f"not known ({counted(rows - known, 'row')})"] if known < rows else []
    positive = "" if own.positive is None else f"; positive is {own.positive}"
    return f"{name}: {shorten(shown, 6)}{positive}"


def _common_columns(clients: Sequence[ClientFacts]) -> str:
    """Say which columns several clients have."""
    number = {name: len(who) for name, who in by_name(clients).items()}
    everywhere = [name for name, held in number.items() if held == len(clients)]
    some = [f"{name} ({held})" for name, held in number.items() if 1 < held < len(clients)]
    text = f"Columns of all {len(clients):,} clients: {shorten(everywhere, 12) or 'none'}."
    return text + (f" Of several: {shorten(some, 12)}." if some else "")
