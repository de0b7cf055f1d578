"""Collects the notes of all tables that this process sees, and makes findings of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.examine.checks import BLOCKING, CHECKS, COMPARISONS
from fedlit.data.examine.facts import ClientFacts, facts_of
from fedlit.data.examine.remedies import Remedies
from fedlit.data.findings import KINDS, Finding, Findings, check_known
from fedlit.data.note import Note
from fedlit.data.table import ClientTable

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

_NUMBERS = re.compile(r"\d[\d,.]*")
_ORDER = {kind: place for place, kind in enumerate(KINDS)}


def all_findings(
    tables: Sequence[ClientTable],
    clients: Sequence[ClientFacts],
    source: Source | None = None,
    known: Mapping[str, str] | None = None,
    left_out: Sequence[str] = (),
) -> Findings:
    """Return all findings about tables, alone and together.

    Args:
        tables: the tables, as a source returns them.
        clients: their summaries.
        source: the source of the tables, so that fixes fit it; :class:`fedlit.Tables` if None.
        known: maps a column to the reason why nothing has to be done about it.
        left_out: the clients that the configuration leaves out.

    Raises:
        ConfigError: a column is known that no client has.
    """
    remedies = Remedies.of(tables, source, left_out)
    check_known(known or {}, remedies.holders)
    notes = [note for check in CHECKS for note in check(tables)]
    if not remedies.in_one_file:
        notes += [note for comparison in COMPARISONS for note in comparison(clients)]
    return _collected(notes, remedies, known)


def answerable_findings(
    tables: Sequence[ClientTable], source: Source, known: Mapping[str, str] | None = None
) -> Findings:
    """Return all findings about the user's own tables, whose questions a configuration can answer;
    about others, those that block a verdict. For the arguments see :func:`all_findings`.
    """
    from fedlit.data.sources.tables import Tables

    if isinstance(source, Tables):
        return all_findings(tables, [*map(facts_of, tables)], source, known)
    return blocking_findings(tables, source, known)


def blocking_findings(
    tables: Sequence[ClientTable],
    source: Source | None = None,
    known: Mapping[str, str] | None = None,
) -> Findings:
    """Return the findings that forbid a verdict, and those of their kind that are known. This is
    much faster than to look for all. For the arguments see :func:`all_findings`; a client that is
    not here may have a column that is known.
    """
    remedies = Remedies.of(tables, source)
    notes = [note for check in BLOCKING for note in check(tables)]
    findings = _collected(notes, remedies, known)
    return Findings(tuple(own for own in findings if own.severity == "blocks"), findings.settings)


def _collected(
    notes: Iterable[Note], remedies: Remedies, known: Mapping[str, str] | None
) -> Findings:
    groups = dict[tuple[Any, ...], list[Note]]()
    for note in notes:
        same = _NUMBERS.sub("#", note.text), repr(note.fix), repr(note.alternatives)
        groups.setdefault((note.kind, note.column, *same), []).append(note)
    findings = sorted((_finding(own, remedies) for own in groups.values()), key=_rank)
    return Findings(tuple(findings), remedies.settings).with_known(known or {})


def _rank(finding: Finding) -> int:
    return _ORDER.get(finding.kind, _ORDER[""])


def _finding(notes: Sequence[Note], remedies: Remedies) -> Finding:
    """Return the finding of notes that differ in clients and numbers alone."""
    first = notes[0]
    clients = tuple(dict.fromkeys(client for note in notes for client in note.clients))
    at = tuple(dict.fromkeys(client for note in notes for client in note.at))
    counts = Counter[str]()
    for note in notes:
        counts.update(note.counts)
    sentence = first.text
    if len({note.text for note in notes}) > 1 and first.clients:
        sentence += f" (the numbers are those of {first.clients[0]})"
    severity = KINDS.get(first.kind, KINDS[""])
    if not (first.kind or first.column or first.fix or first.alternatives):
        severity = "info"
    fix = {} if severity == "info" else first.fix
    settings = [own for own in (fix, *first.alternatives) if own]
    contents = [own for each in settings if (own := remedies.content(each, at, first.column))]
    is_fix = len(contents) == 1 and not first.alternatives and not remedies.replaces(fix)
    return Finding(
        kind=first.kind,
        sentence=sentence,
        clients=clients,
        column=first.column,
        severity=severity,
        counts=dict(counts),
        fix=contents[0] if is_fix else {},
        alternatives=() if is_fix else tuple(contents),
    )
