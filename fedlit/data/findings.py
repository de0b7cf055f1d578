"""Findings about the tables of a federation, with their severity and the settings that settle
them.

A reader or a check makes a :class:`fedlit.data.note.Note` where it sees something. Notes of all
tables that one process sees become findings. A finding lists all clients that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, Literal, overload

from fedlit import yaml_text
from fedlit.data.merging import Content, merged
from fedlit.errors import expect
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, Verbatim, shorten

Severity = Literal["blocks", "review", "info"]
SEVERITIES: tuple[Severity, ...] = ("blocks", "review", "info")

KINDS: Mapping[str, Severity] = {
    "leak": "blocks",
    "untrainable": "review",
    "rows": "review",
    "people": "review",
    "group": "review",
    "missing": "review",
    "far": "review",
    "codes": "review",
    "identifier": "review",
    "task": "review",
    "date": "review",
    "positive": "review",
    "name": "review",
    "collision": "review",
    "scale": "review",
    "unit": "review",
    "kind": "review",
    "total": "review",
    "values": "review",
    "labels": "review",
    "duplicate": "review",
    "header": "review",
    "": "review",
    "split": "info",
    "rare class": "info",
    "one value": "info",
    "unique": "info",
    "twins": "info",
    "level": "info",
    "predicts": "info",
    "spelling": "info",
    "gaps": "info",
    "converted": "info",
    "recoded": "info",
    "rows left out": "info",
    "tail": "info",
    "few rows": "info",
    "unlabelled": "info",
    "small clients": "info",
    "left out": "info",
    "read": "info",
    "not looked for": "info",
    "left its stack": "info",
}
"""The severity of each kind of finding, the worst first. Other kinds count as ``""``."""
_BETWEEN = frozenset({"name", "scale", "kind", "values", "labels"})
"""Kinds whose sentences name the clients."""
_HEADINGS: Mapping[str, str] = {
    "blocks": "Blocks a verdict:",
    "review": "To review:",
    "info": "For information:",
}
CHOOSE = "# choose: "
"""The beginning of a comment that asks a question."""
BEFORE = "no verdict before this is settled: "
"""The beginning of a sentence on a finding that blocks a verdict."""
AT = " at "
"""The text between a kind of finding and its clients, in a key of ``data.known``."""
_REASON = "REASON"
_FEW_CLIENTS = 3
_MOST_ASKED = 8
_WIDE = 10**9
_DEPTHS: Mapping[str, int] = {"read": 3, "types": 2, "convert": 3}
"""Settings of tables of which a part is a key of its own; to others, a choice adds its part."""


@dataclass(frozen=True)
class Finding:
    """Something seen about the tables of a federation.

    Attributes:
        kind: a stable word for it, see :data:`KINDS`.
        sentence: what was seen.
        clients: the clients concerned; empty for all.
        column: the column or target concerned; "" for none.
        severity: whether it forbids a verdict (``blocks``), asks for a decision (``review``) or
            informs.
        counts: the numbers of the sentence, by noun.
        fix: content of a configuration that settles it when it is merged; empty if a person must
            decide.
        alternatives: several such contents to choose from.
        reason: the reason in ``data.known`` why nothing has to be done; "" if the finding is open.
    """

    kind: str
    sentence: str
    clients: tuple[str, ...] = ()
    column: str = ""
    severity: Severity = "review"
    counts: Mapping[str, int] = field(default_factory=dict)
    fix: Content = field(default_factory=dict)
    alternatives: tuple[Content, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        parts = [self.column, self.sentence]
        if self.kind not in _BETWEEN:
            parts.insert(0, shorten(self.clients, 4))
        text = ": ".join(filter(None, parts))
        if self.reason:
            return f"{text}. Known: {self.reason}"
        return text

    @property
    def subject(self) -> str:
        """The key of ``data.known`` that settles it: the column; without a column the kind, with its
        clients if they are few.
        """
        if self.column:
            return self.column
        if 0 < len(self.clients) <= _FEW_CLIENTS:
            return f"{self.kind}{AT}{', '.join(self.clients)}"
        return self.kind

    @property
    def choices(self) -> tuple[Content, ...]:
        """The contents to choose from if the finding has no fix. The last one declares it known."""
        if self.fix or self.reason or self.severity == "info":
            return ()
        return (*self.alternatives, {"data": {"known": {self.subject: _REASON}}})

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, content: Content) -> Finding:
        """Restore a finding from its plain data."""
        tuples = {key: tuple(content[key]) for key in ("clients", "alternatives")}
        return cls(**{**content, **tuples})


@dataclass(frozen=True, repr=False)
class Findings(Shown, Sequence[Finding]):
    """All findings about the tables of a federation, the worst first.

    Attributes:
        items: the findings.
        settings: the parts of the configuration to which fixes are added.

    Example:
        >>> leak = Finding("leak", "alone predicts outcome", column="code", severity="blocks",
        ...                fix={"data": {"source": {"init_args": {"drop": ["code"]}}}})
        >>> found = Findings((leak,))
        >>> print(found.block())
        data:
          source:
            init_args:
              drop: [code]
        <BLANKLINE>
        >>> len(found.blocks), len(found.with_known({"code": "is known at admission"}).blocks)
        (1, 0)
    """

    items: tuple[Finding, ...] = ()
    settings: Content = field(default_factory=dict)

    @overload
    def __getitem__(self, index: int) -> Finding: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...

    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def blocks(self) -> tuple[Finding, ...]:
        """The open findings that forbid a verdict."""
        return tuple(
            finding for finding in self.items if finding.severity == "blocks" and not finding.reason
        )

    def blocked(self, clients: Iterable[str]) -> set[str]:
        """Return the clients that have no verdict because of an open finding."""
        return blocked_clients(self.blocks, clients)

    @property
    def known(self) -> tuple[Finding, ...]:
        """The findings that ``data.known`` settles."""
        return tuple(finding for finding in self.items if finding.reason)

    @property
    def asking(self) -> tuple[Finding, ...]:
        """The findings that ask for a choice."""
        return tuple(finding for finding in self.items if finding.choices)

    @property
    def fix(self) -> dict[str, Any]:
        """All fixes together, as content that :func:`fedlit.data.merging.merged` adds to a
        configuration.
        """
        return reduce(merged, (finding.fix for finding in self.items if not finding.reason), {})

    def with_known(self, reasons: Mapping[str, str]) -> Findings:
        """Return the findings, settled where their column is known.

        Args:
            reasons: maps a column, or what :attr:`Finding.subject` says, to the reason why nothing
                has to be done.
        """
        items = list[Finding]()
        for finding in self.items:
            if finding.subject in reasons and finding.severity != "info":
                finding = replace(finding, reason=reasons[finding.subject], fix={}, alternatives=())
            items.append(finding)
        return replace(self, items=tuple(items))

    def block(self) -> str:
        """Return the YAML of all fixes: the keys with their whole values, today's values included."""
        content = _touched(self.settings, self.fix)
        if not content:
            return ""
        return yaml_text.dump(content, default_flow_style=None, width=_WIDE)

    def questions(self) -> Iterator[str]:
        """Yield comments: each question, followed by the keys to choose from. A comment becomes a key
        of the configuration when its ``#`` is removed.
        """
        for finding in self.asking:
            yield f"{CHOOSE}{finding}"
            for choice in finding.choices:
                for key, value in _keys(_touched(self.settings, choice), choice):
                    yield f"# {yaml_text.dump_line({key: value})}"

    def parts(self) -> Iterable[str | Grid]:
        """See :class:`fedlit.show.shown.Shown`."""
        for severity in SEVERITIES:
            open_ones = [
                finding
                for finding in self.items
                if finding.severity == severity and not finding.reason
            ]
            yield from _bullets(_HEADINGS[severity], open_ones)
        yield from _bullets("Already explained in data.known:", self.known)

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each finding that blocks a verdict, then for each that is known."""
        yield from (f"{BEFORE}{finding}" for finding in self.blocks)
        yield from map(str, self.known)

    def open_questions(self, config: str) -> Iterator[str]:
        """Yield a sentence on the open decisions that do not block a verdict, if there are any.

        Args:
            config: the configuration that ``fedlit check`` reads.
        """
        columns = dict[str, list[str]]()
        for finding in self.items:
            asks = finding.choices or finding.fix
            if finding.severity == "review" and asks and not finding.reason:
                kinds = columns.setdefault(finding.column or finding.subject, [])
                if finding.column and finding.kind:
                    kinds.append(finding.kind)
        if columns:
            subjects = []
            for column, kinds in columns.items():
                if kinds:
                    column += f" ({', '.join(dict.fromkeys(kinds))})"
                subjects.append(column)
            yield (
                f"questions about the tables are open, and their answers may change what is below: "
                f"{shorten(subjects, _MOST_ASKED)}; read them with fedlit check --config {config}"
            )

    def remedies(self) -> Iterator[str]:
        """Yield the YAML of all fixes, then the questions as comments."""
        lines = [*self.block().splitlines(), *self.questions()]
        yield from map(Verbatim, lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: each finding, and all fixes together."""
        return {"findings": [finding.to_dict() for finding in self.items], "fix": self.fix}


def blocked_clients(blocks: Iterable[Finding], clients: Iterable[str]) -> set[str]:
    """Return the clients that a blocking finding concerns.

    Example:
        >>> blocked_clients([Finding("leak", "…", ("north",))], ["north", "south"])
        {'north'}
    """
    names = {*clients}
    blocked = set[str]()
    for finding in blocks:
        if not finding.clients:
            return names
        blocked |= names & {*finding.clients}
    return blocked


def _bullets(heading: str, findings: Sequence[Finding]) -> Iterator[str]:
    if findings:
        yield heading
    for finding in findings[:MOST_ROWS]:
        yield f"- {finding}"
    if len(findings) > MOST_ROWS:
        yield f"- … and {len(findings) - MOST_ROWS} more (--format json has all)"


def _touched(settings: Content, change: Content) -> dict[str, Any]:
    """Return the keys that a change touches, with their whole values after it."""
    content = dict[str, Any]()
    for key, value in change.items():
        before = settings.get(key)
        if key in ("data", "source", "init_args") and isinstance(value, Mapping):
            content[key] = _touched(before or {}, value)
        else:
            earlier = {}
            if before is not None:
                earlier[key] = before
            content[key] = merged(earlier, {key: value})[key]
    return content


def _keys(content: Content, choice: Content) -> Iterator[tuple[str, Any]]:
    """Yield a choice as dotted keys, which can stand at the end of any configuration, with values."""
    for key, value in choice["data"].items():
        if key != "source":
            depth = 1 if key == "known" else 0
            yield from _dotted(f"data.{key}", content["data"][key], value, depth)
            continue
        settings = content["data"]["source"]["init_args"]
        for name, part in value["init_args"].items():
            yield from _dotted(
                f"data.source.{name}", settings[name], part, _DEPTHS.get(name, 1) - 1
            )


def _dotted(
    key: str, whole: Any, part: Any, depth: int, adds: bool = True
) -> Iterator[tuple[str, Any]]:
    """Yield the key of a part of a value, down to a depth, unless it has many parts. A key that
    adds to a value may stand in a file for each of several choices.
    """
    deeper = (
        depth
        and isinstance(part, Mapping)
        and isinstance(whole, Mapping)
        and len(part) <= _MOST_ASKED
        and not any("." in name for name in part)
    )
    if deeper:
        for name, value in part.items():
            yield from _dotted(f"{key}.{name}", whole[name], value, depth - 1, adds=depth > 1)
    elif adds and isinstance(part, Mapping | list):
        yield f"{key}+", part
    else:
        yield key, whole


def check_known(reasons: Mapping[str, str], columns: Iterable[str]) -> None:
    """Refuse reasons for columns that no client has. A finding about no column is named by its
    kind.

    Raises:
        ConfigError: naming the column.
    """
    names = sorted({*columns})
    for key in reasons:
        of_kind = KINDS.get(key.partition(AT)[0]) == "review"
        expect(
            key in names or of_kind,
            "data.known",
            "columns of the tables, or what check writes",
            key,
            known=names,
        )
