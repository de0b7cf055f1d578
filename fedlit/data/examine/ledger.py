"""Collects the notes of all tables that this process sees, and makes findings of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
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
_ORDER = {kind: position for position, kind in enumerate(KINDS)}


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
    notes = [*chain(*(check(tables) for check in CHECKS))]
    if not remedies.in_one_file:
        notes += chain(*(comparison(clients) for comparison in COMPARISONS))
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
    """Return the findings that forbid a verdict, and those of the same kinds that ``known`` settles.
    This is much faster than :func:`all_findings`, whose arguments it takes. A known column may
    belong to a client of another process.
    """
    remedies = Remedies.of(tables, source)
    notes = chain(*(check(tables) for check in BLOCKING))
    findings = _collected(notes, remedies, known)
    blocks = tuple(finding for finding in findings if finding.severity == "blocks")
    return Findings(blocks, findings.settings)


def _collected(
    notes: Iterable[Note], remedies: Remedies, known: Mapping[str, str] | None
) -> Findings:
    groups = dict[tuple[Any, ...], list[Note]]()
    for note in notes:
        same = _NUMBERS.sub("#", note.text), repr(note.fix), repr(note.alternatives)
        groups.setdefault((note.kind, note.column, *same), []).append(note)
    findings = sorted((_finding(same_notes, remedies) for same_notes in groups.values()), key=_rank)
    return Findings(tuple(findings), remedies.settings).with_known(known or {})


def _rank(finding: Finding) -> int:
    return _ORDER.get(finding.kind, _ORDER[""])


def _finding(notes: Sequence[Note], remedies: Remedies) -> Finding:
    """Return the finding of notes that differ in clients and numbers alone."""
    first = notes[0]
    clients = tuple(dict.fromkeys(chain(*(note.clients for note in notes))))
    at = tuple(dict.fromkeys(chain(*(note.at for note in notes))))
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
    contents = [
        remedies.content(settings, at, first.column)
        for settings in (fix, *first.alternatives)
        if settings
    ]
    choices = tuple(content for content in contents if content)
    is_fix = len(choices) == 1 and not first.alternatives and not remedies.replaces(fix)
    finding = Finding(
        kind=first.kind,
        sentence=sentence,
        clients=clients,
        column=first.column,
        severity=severity,
        counts=dict(counts),
    )
    if is_fix:
        return replace(finding, fix=choices[0])
    return replace(finding, alternatives=choices)
