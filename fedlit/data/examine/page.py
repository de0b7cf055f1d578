"""One page of what clients' tables hold, what is odd in them, and what to write about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedlit.data.examine.alike import same_labels, same_rows, same_values
from fedlit.data.examine.alone import alone, noted
from fedlit.data.examine.between import between, common_columns
from fedlit.data.examine.facts import ClientFacts, ColumnFacts, facts_of, last_of
from fedlit.data.examine.kinds import KINDS, named
from fedlit.data.examine.leaks import ROWS, ROWS_OF_WIDE, leaks
from fedlit.data.examine.many import MANY, summary
from fedlit.data.examine.suggest import suggested
from fedlit.data.note import Note
from fedlit.data.table import ClientTable
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import Verbatim, counted, shorten

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

__all__ = ["Page", "examine"]

_WORDS = {
    "numeric": ("number", "numbers"),
    "categorical": ("category", "categories"),
    "boolean": ("yes or no", "yes or no"),
    "ordinal": ("ordered", "ordered"),
    "date": ("date", "dates"),
}
_MOST_CLASSES = 6
_MOST_OF_A_KIND = 12  # findings of one kind that are printed
_MOST_NOTES = 12  # of one client


@dataclass(frozen=True)
class Page(Shown):
    """The findings about clients' tables.

    Attributes:
        clients: in numbers.
        findings: what to look at, the worst first.
        change: what could be written, as a configuration has it; empty where a person must decide first.
        columns: whether each column is shown.
    """

    clients: tuple[ClientFacts, ...]
    findings: tuple[Note, ...]
    change: dict[str, Any] = field(default_factory=dict)
    columns: bool = False

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        if many := len(self.clients) > MANY:
            yield from summary(self.clients)
        else:
            yield Grid(["client", *_HEADER], [[own.client, *_numbers(own)] for own in self.clients])
        for own in self.clients if self.columns or not many else ():
            yield ""
            yield from _client(own)
            if self.columns:
                yield _columns(own)
        if len(self.clients) > 1:
            yield ""
            yield _common(self.clients)
        yield ""
        yield from self._found()
        yield ""
        yield _HOW
        if self.change:
            yield ""
            yield "What to write, if you agree (in place of keys of the same name; or as a second file after yours):"
            yield Verbatim(self.yaml())

    def _found(self) -> Iterable[str]:
        if not self.findings:
            odd = any(own.notes for own in self.clients)
            yield "The notes above are all that was found." if odd else "Nothing odd was found."
            return
        yield f"To look at ({len(self.findings)}):"
        for kind, title in KINDS.items():
            own = [finding for finding in self.findings if finding.kind == kind]
            if not own:
                continue
            yield f"{title[0].upper()}{title[1:]}:"
            advice = Counter(finding.advice for finding in own)
            lines: dict[tuple[str, str], list[Note]] = {}
            for finding in own:  # of many clients, what differs in numbers alone is said once
                text = re.sub(r"\d[\d,.]*", "#", finding.text) if len(self.clients) > MANY else finding.text
                lines.setdefault((finding.column, text), []).append(finding)
            for same in list(lines.values())[:_MOST_OF_A_KIND]:
                finding = same[0]
                one = finding.kind in ("untrainable", "leak", "group", "missing", "task", "date", "positive")
                who = named([client for found in same for client in found.clients]) if one else ""
                head = ", ".join(filter(None, [who, finding.column]))
                stop = "" if finding.text.endswith("?") else "."
                said = "" if advice[finding.advice] > 1 or not finding.advice else f"{stop} {finding.advice}"
                yield f"- {head}{': ' if head else ''}{finding.text}{said}"
            if len(lines) > _MOST_OF_A_KIND:
                yield f"- … and {len(lines) - _MOST_OF_A_KIND} more (--format json has all)"
            for words, times in advice.items():
                if times > 1 and words:
                    yield f"  {words}"

    def yaml(self) -> str:
        """Return the suggested configuration as YAML."""
        import yaml

        return yaml.safe_dump(self.change, sort_keys=False, allow_unicode=True, width=72).rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "clients": [own.to_dict() for own in self.clients],
            "findings": [own.to_dict() for own in self.findings],
            "change": self.change,
        }


def examine(tables: Sequence[ClientTable], source: Source | None = None, *, columns: bool = False) -> Page:
    """Look at clients' tables, alone and beside each other.

    Columns that tell the target are looked for in a sample of training rows; quantiles are of a sample; the same rows
    at two clients can be found only where one process sees both.

    Args:
        tables: as a source gives them.
        source: whose tables they are, so that what to write is whole.
        columns: whether the page shows each column.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> page = examine(Bundled(clients=["wine"]).tables(seed=8))
        >>> page.clients[0].rows["train"], page.findings
        (106, ())
    """
    clients = tuple(map(facts_of, tables))
    found = [finding for table in tables for finding in (*leaks(table), *alone(table))]
    if getattr(source, "client_column", None) is None:  # a column of one table is one thing
        found += [*between(clients), *same_values(clients), *same_labels(clients)]
    found += same_rows(tables)
    order = list(KINDS)
    found.sort(key=lambda own: order.index(own.kind))
    names = [own.client for own in clients]
    return Page(clients, tuple(found), suggested(found, names, source), columns)


_HEADER = ["rows", "train", "validation", "test", "columns", "missing", "target"]


def _numbers(own: ClientFacts) -> list[str]:
    missing = _share(own.missing / own.cells) if own.cells else "–"
    rows = own.rows
    return [
        f"{sum(rows.values()):,}",
        *(f"{rows[split]:,}" for split in ("train", "validation", "test")),
        f"{len(own.columns):,}",
        missing,
        own.target,
    ]


def _share(part: float) -> str:
    """A share in percent; never 0 where there is something, nor 100 where not all is."""
    if 0 < part < 0.001:
        return "<0.1 %"
    return f"{100 * part:.3g} %" if part < 0.995 or part == 1 else ">99 %"


def _client(own: ClientFacts) -> Iterable[str]:
    yield f"{own.client}: predicts {_target(own)}"
    kinds = Counter(column.kind for column in own.columns.values())
    parts = [counted(number, *_WORDS[kind]) for kind, number in kinds.most_common()]
    yield f"  Columns: {', '.join(parts)}{_left_out(own)}"
    gaps = {name: column.missing for name, column in own.columns.items() if column.missing}
    if gaps:
        most = sorted(gaps, key=lambda name: -gaps[name])
        shown = shorten([f"{name} {_share(gaps[name])}" for name in most], 5)
        yield f"  Missing: {counted(own.missing, 'cell')} in {counted(len(gaps), 'column')}: {shown}"
    notes = [_plain(own.client, note) for note in own.notes if not noted(note) and not _is_left_out(note)]
    for note in notes[:_MOST_NOTES]:
        yield f"  - {note}"
    if len(notes) > _MOST_NOTES:
        yield f"  - … and {len(notes) - _MOST_NOTES} more notes (--format json has all)"


def _is_left_out(note: str) -> bool:
    return isinstance(note, Note) and note.kind == "left out"


def _plain(client: str, note: str) -> str:
    """A note below its client's name, without that name."""
    if isinstance(note, Note):
        return f"{note.column}: {note.text}" if note.column else note.text
    return note.removeprefix(f"{client}: ")


def _left_out(own: ClientFacts) -> str:
    if not own.left_out:
        return ""
    by: dict[str, list[str]] = {}
    for name, why in own.left_out.items():
        by.setdefault(why, []).append(name)
    return ". Left out: " + "; ".join(f"{shorten(names, 6)} ({why})" for why, names in by.items())


def _target(own: ClientFacts) -> str:
    if own.quantiles:
        low, _, first, middle, third, _, high = own.quantiles
        return (
            f"{own.target}, a number ({own.task}): {low:.4g} to {high:.4g}, half of it in {first:.4g} to {third:.4g}, "
            f"median {middle:.4g}"
        )
    if own.labels:
        rows = sum(own.rows.values())
        return f"{own.target} ({own.task}): {'; '.join(_label(name, held, rows) for name, held in own.labels.items())}"
    if not own.classes:
        return f"{own.target} ({own.task})"
    rows = sum(own.classes.values())
    labels = list(own.classes.items())
    shown = [f"{label} ({counted(count, 'row')}, {_share(count / rows)})" for label, count in labels[:_MOST_CLASSES]]
    more = f", … ({len(labels)} classes)" if len(labels) > _MOST_CLASSES else ""
    positive = f"; positive is {own.positive}" if own.positive is not None else ""
    return f"{own.target}: {', '.join(shown)}{more}{positive}"


def _label(name: str, held: Mapping[Any, int], rows: int) -> str:
    """Describe one of several labels: how often it is true, and in how many rows it is unknown."""
    known = sum(held.values())
    gaps = f", not known of {counted(rows - known, 'row')}" if known < rows else ""
    if len(held) < 2:
        return f"{name} {f'always {next(iter(held))}' if held else 'never known'}{gaps}"
    positive = 1 if set(held) <= {0, 1} else last_of(held)
    return (
        f"{name} {positive} in {held[positive]:,} of {counted(known, 'row')} ({_share(held[positive] / known)}){gaps}"
    )


def _columns(own: ClientFacts) -> Grid:
    rows = [
        [name, column.kind, _share(column.missing) if column.missing else "–", f"{column.different:,}", _held(column)]
        for name, column in own.columns.items()
    ]
    return Grid(["column", "holds", "missing", "different", "values"], rows)


def _held(column: ColumnFacts) -> str:
    if column.values is not None:
        return shorten([value if len(value) <= 24 else f"{value[:23]}…" for value in column.values], 4)
    if not column.quantiles:
        return "none"
    if column.kind == "date":
        import pandas as pd

        low, high = (pd.Timestamp(0) + pd.Timedelta(days=own) for own in (column.low, column.high))
        return f"{low.date()} to {high.date()}" if column.high > 4000 else f"{column.low:g} to {column.high:g}"
    return f"from {column.low:.4g} to {column.high:.4g}, median {column.quantiles[2]:.4g}"


def _common(clients: Sequence[ClientFacts]) -> str:
    shared = common_columns(clients)
    if not shared:
        return "No column stands at two clients. They can share a core, and no columns."
    everywhere = [name for name, who in shared.items() if len(who) == len(clients)]
    some = {name: len(who) for name, who in shared.items() if len(who) < len(clients)}
    text = f"Columns of all {len(clients)} clients: {shorten(everywhere, 12) or 'none'}."
    if some:
        text += f" Of several: {shorten([f'{name} ({number})' for name, number in some.items()], 12)}."
    if alone := [own.client for own in clients if not set(own.columns) & set(shared)]:
        text += f" With none of another: {named(alone)}."
    return text


_HOW = (
    f"Columns that alone tell the target were looked for in up to {ROWS:,} training rows of each client "
    f"({ROWS_OF_WIDE:,} where it is wide). Rows of two clients can be compared only here, where one process sees both."
)
