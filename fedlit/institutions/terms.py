"""Everything that would leave a site, as data and in words."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from math import prod
from typing import Any

from fedlit.exchange.question_terms import QuestionTerms
from fedlit.institutions.messages import bytes_of_forms
from fedlit.institutions.plain import Facts, FactsOfTopics
from fedlit.show.text import wrap

Forms = Mapping[str, tuple[str, tuple[int, ...]]]


_COLUMNS = 80

OF_TENSORS = ("model", "manifest", "meaning", "steps")
"""The topics whose facts follow from the tensors, which the terms list."""


_TOPICS = {
    "settings": "the settings of the federation, as federation.yaml has them, and versions "
    "(terms.json has all)",
    "clients": "the site's name",
    "columns": "names and kinds of columns, and what is known of the target",
    "values": "values of columns that other sites have, too",
    "steps": "the number of steps in an epoch",
    "federated": "names, types and shapes of the tensors below",
    "model": "the numbers of inputs and outputs of the network",
    "manifest": "names, types and shapes of what is published",
    "meaning": "digests of inputs and outputs, to check that they mean the same at all sites",
}


@dataclass(frozen=True)
class Terms:
    """Everything that would leave a site.

    Attributes:
        site: the name of the site.
        coordinator: the coordinator's address, and the fingerprint of its certificate authority.
        facts: maps each topic to the facts that are sent once, with their values.
        tensors: maps the name of each tensor that is sent in each round to its (dtype, shape).
        published: the same for the tensors that are published in addition.
        rows: the number of training rows, if the rule needs it.
        asks: what the rule asks in a round, in words.
        questions: maps each kind of question that is answered to its bounds; ``*`` stands for any
            kind.
        sends: what comes back in addition to tensors, in words.
        peers: maps each site to the fingerprint of its key, as this site knows it.
        masked: whether numbers are sent under masks, 8 bytes each.
        federation: the federation's identity and its sites (``id``, ``sites``), if its
            configuration has them.
        trust: modules of which the federation's configuration may run any code here.
        user: the user that the process which uses the network runs as; None for the user who starts
            it.
        facts_from: the least number of training rows behind each value that is sent once.
        behind: the number of training rows behind these values (see
            :func:`fedlit.institutions.behind.rows_behind`). It is not sent.
        rare_classes: the classes of fewer rows whose names are sent.
        privacy: the settings of what protects an update, by mechanism (see
            :class:`~fedlit.privacy.settings.Privacy`).
        findings: sentences on what must be settled in the site's table before there is a verdict,
            and on what is known. They are not sent.
        known: maps columns to the reasons why nothing has to be done about what is found in them.
            It is not sent.
        scores: whether scores are sent.
        every: when there is a round.
        rounds: the largest number of rounds.
        protection: what is done to an update before it leaves, in words.
        aligned: whether tensors depend on what other sites send, so that they are known only
            afterwards.
    """

    site: str
    coordinator: Mapping[str, str]
    facts: Facts
    tensors: Forms
    published: Forms = field(default_factory=dict)
    rows: int = 0
    asks: str = ""
    questions: Mapping[str, QuestionTerms] = field(default_factory=dict)
    scores: bool = False
    every: str | Mapping[str, int] = "epoch"
    rounds: int = 0
    protection: tuple[str, ...] = ()
    aligned: bool = False
    sends: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    masked: bool = False
    federation: Facts = field(default_factory=dict)
    trust: tuple[str, ...] = ()
    user: str | None = None
    facts_from: int = 1
    behind: FactsOfTopics = field(default_factory=dict)
    rare_classes: tuple[str, ...] = ()
    privacy: Facts = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the terms as plain data for JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(vars(self), sort_keys=True, default=_plain))
        return plain

    @property
    def hash(self) -> str:
        """The SHA-256 of all terms. Whoever accepts them repeats it.

        Example:
            >>> len(Terms("north", {}, {}, {}).hash)
            64
        """
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def identity(self) -> str:
        """The identity of the site's account with this federation: ``federation.id``, or, without
        one, the hash of the terms, which include the coordinator's fingerprint. Other terms are
        then another account.
        """
        return str(self.federation.get("id") or f"terms {self.hash}")

    @property
    def bytes_a_round(self) -> int:
        """The bytes of the tensors that leave in each round."""
        if self.masked:
            return 8 * sum(prod(form[1]) for form in self.tensors.values())
        return bytes_of_forms(self.tensors) + bytes_of_forms(self.published)

    @property
    def most_questions(self) -> int | None:
        """The largest number of questions in a round, of which one is for the masked sum of
        updates; None if any number was agreed to.
        """
        most = 1
        for terms in self.questions.values():
            if terms.times is None:
                return None
            subjects = {
                name.partition(": ")[0] for name in self.tensors if name.startswith(terms.about)
            }
            most += terms.times * (len(subjects) if terms.about else 1)
        return most

    def lines(self) -> list[str]:
        """Return the terms as lines for the person who decides."""
        numbers = sum(prod(form[1]) for form in self.tensors.values())
        fact_lines = list(
            chain.from_iterable(
                _told(topic, facts, self.behind) for topic, facts in self.facts.items()
            )
        )
        lines = [
            *self._of_this_site(),
            f"Site {self.site} would join the coordinator {self.coordinator.get('address', '?')}",
            "  whose certificate authority has the fingerprint",
            *_halves(self.coordinator.get("fingerprint", "?")),
            *_which(self.federation),
            "",
            "What leaves this site once:",
            *(fact_lines or ["  nothing"]),
            *self._of_rows(),
            "",
            f"What leaves this site in each of at most {self.rounds:,} rounds (every "
            f"{_when(self.every)}):",
            f"  {len(self.tensors)} tensors of {numbers:,} numbers, {self.bytes_a_round:,} bytes"
            + (f"; {bytes_of_forms(self.tensors):,} bytes come back" if self.tensors else ""),
            "  their names, the round, and the round of the site's newest checkpoint: some 2,000 "
            "bytes",
            *(
                f"    {name}  {dtype} {list(shape)}"
                for name, (dtype, shape) in self.tensors.items()
            ),
            *(
                f"    published: {name}  {dtype} {list(shape)}"
                for name, (dtype, shape) in self.published.items()
            ),
        ]
        if self.aligned:
            lines.append(
                "  (they may become wider by what other sites have; you are then asked again)"
            )
        if self.rows:
            lines.append(f"  the number of its training rows: {self.rows:,}")
        if self.asks:
            lines.append(f"  answers to what the rule asks: {self.asks}")
        if self.questions:
            lines.append("  questions that are answered:")
            lines += [f"    {_bounds(kind, terms)}" for kind, terms in self.questions.items()]
        if self.sends:
            lines.append(f"  what comes back: {self.sends}")
        lines += [f"  {line}" for line in self.protection]
        lines += [
            f"  scores on validation rows: {'yes' if self.scores else 'no'}",
            "",
            "What stays: all rows, all other tensors, optimizers, predictions"
            + ("." if self.scores else ", scores."),
        ]
        return list(chain.from_iterable(wrap(line, _COLUMNS).split("\n") for line in lines))

    def _of_rows(self) -> list[str]:
        """Return how many rows stand behind what is sent once, and what is said of fewer."""
        lines = [
            f"  at least {self.facts_from} training rows stand behind each of these values "
            "(data.facts_from)"
        ]
        classes = self.behind.get("target", {}).get("labels", {})
        if classes:
            lines.append(f"    rows of each class whose name is sent: {_counted(classes)}")
        for column, rows in self.behind.get("names", {}).items():
            lines.append(
                f"    rows of each category that names a slice of a tensor: {column}: "
                f"{_counted(rows)}"
            )
        rare = {
            name: rows
            for name, rows in classes.items()
            if name in self.rare_classes and rows < self.facts_from
        }
        if rare:
            lines.append(
                "  EXCEPT, as site.yaml allows (rare_classes), the names of classes: "
                f"{_counted(rare)}"
            )
        return lines

    def _of_this_site(self) -> list[str]:
        """Return what the site's own file decides, and what a stranger who wrote it could have
        decided.
        """
        trust = "no module: federation.yaml may name only classes that fedlit lists"
        if self.trust:
            trust = (
                f"ANY CODE OF {', '.join(self.trust)} MAY RUN HERE, because federation.yaml "
                "may name it"
            )
        peers = "none, and none is needed without masks"
        if self.peers:
            peers = "the keys of other sites, as this one knows them:"
        elif self.masked:
            peers = "KEYS OF OTHER SITES WERE NOT COMPARED: a dishonest coordinator could fake them"
        user = self.user or "whoever starts it"
        return [
            "What this site's own file decides (site.yaml):",
            f"  trust: {trust}",
            f"  peers: {peers}",
            *(f"    {name} {key}" for name, key in self.peers.items()),
            f"  user: the process that uses the network runs as {user}",
            *self._of_its_table(),
            "",
        ]

    def _of_its_table(self) -> list[str]:
        """Return what was found in the site's table, and what is known of its columns."""
        lines = [f"  {sentence}" for sentence in self.findings]
        lines += [
            f"  known of the column {column}: {reason}" for column, reason in self.known.items()
        ]
        return ["What was found in this site's table, which stays here:", *lines] if lines else []


def _plain(value: object) -> object:
    return asdict(value) if isinstance(value, QuestionTerms) else str(value)


def _bounds(kind: str, terms: QuestionTerms) -> str:
    return "whatever the rule asks, any number of times" if kind == "*" else f"{kind}: {terms}"


def _which(federation: Facts) -> list[str]:
    if not federation:
        return []
    return [
        f"  the federation {federation['id']}",
        f"  with the sites {', '.join(federation['sites'])}",
    ]


def _halves(text: str) -> list[str]:
    """Return a fingerprint in lines of 16 bytes."""
    digest, _, rest = text.partition(" ")
    parts = digest.split(":")
    lines = [":".join(parts[:16]), *([":".join(parts[16:])] if len(parts) > 16 else [])]
    return [f"    {line}" for line in lines] + ([f"    {rest}"] if rest else [])


def _when(every: str | Mapping[str, int]) -> str:
    if isinstance(every, str):
        return every
    return " ".join(f"{count} {unit}" for unit, count in every.items())


def _counted(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count:,})" for name, count in rows.items())


def _told(topic: str, facts: object, behind: FactsOfTopics) -> list[str]:
    """Return a line for each fact, with its values and the number of rows behind them."""
    title = _TOPICS.get(topic, topic)
    if topic in ("settings", "clients", "federated", "manifest") or not isinstance(facts, Mapping):
        return [f"  {title}"]
    lines = [f"  {title}:"]
    for key, entry in facts.items():
        if entry in (None, "", {}, [], 0) or (topic == "values" and key in ("columns", "target")):
            continue  # said with the columns
        if isinstance(entry, Mapping):
            rows = behind.get(key, {}) if topic == "values" else {}
            lines += [
                f"    {key}: {name}: {json.dumps(value, default=str, ensure_ascii=False)}"
                + (f" (rows behind each: {rows[name]})" if name in rows else "")
                for name, value in entry.items()
            ]
        else:
            lines.append(f"    {key}: {json.dumps(entry, default=str, ensure_ascii=False)}")
    nothing = [] if topic in OF_TENSORS else [f"  {title}: nothing"]
    return lines if len(lines) > 1 else nothing
