"""The plan of a run: which client has what, what is sent, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from fedlit.data.note import similar
from fedlit.data.sent import SentStatement
from fedlit.exchange.schedule import Every
from fedlit.outcomes import Outcome, outcome_type
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, counted, more, shorten

_HEADER = ("client", "train", "validation", "test", "features", "classes", "batch × steps", "parameters", "federated",
           "bytes/exchange")  # fmt: skip
_ABOUT_RULE = {"promise": "", "asks": "asks each client for ", "sends": "sends each client "}
"""What a plan may say about a rule → the words before it."""
_GUARDS = {
    "leave_out": "A client whose update is far from the others' is left out, and named.",
    "watch": "A client whose update is far from the others' is named.",
}


class PlannedLength(TypedDict):
    """The number of exchanges (None without a limit), and what follows the last one."""

    exchanges: int | None
    at_most: bool
    completes: bool
    steps_after: int | None
    fine_tuning: bool


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """The plan of a run.

    Attributes:
        clients: maps each client to its rows per split, features, classes, parameters, federated
            parameters, and the bytes that it sends per exchange.
        exchange: what is federated, when, and by which rule.
        before: what clients send each other once, before the first step (see
            :func:`fedlit.data.sent.describe_sent`).
        optimizer: the class of the optimizer, and its initial settings; empty if it cannot be built
            from a single parameter.
        notes: what the user should know about the tables.
    """

    clients: dict[str, dict[str, Any]]
    exchange: dict[str, Any]
    notes: tuple[str, ...] = ()
    before: tuple[SentStatement, ...] = ()
    optimizer: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, as ``fedlit describe --format json`` prints it."""
        return vars(self) | {"before": list(self.before), "notes": list(self.notes)}

    def _rows(self) -> list[list[str]]:
        numbers = ("parameters", "federated", "bytes_per_exchange")
        rows = []
        for name, client in self.clients.items():
            cells = [name]
            cells += [f"{client['rows'][split]:,}" for split in ("train", "validation", "test")]
            cells += [str(client["features"]), _target_words(client)]
            cells.append(f"{client['batch_size']:,} × {client['steps']}")
            cells += [f"{client[key]:,}" for key in numbers]
            rows.append(cells)
        return rows

    def sentences(self) -> Iterator[str]:
        """Yield sentences on what clients send, to whom and when: once before training, then at
        each exchange.
        """
        for statement in self.before:
            size = _size(statement.get("numbers", {}).values())
            columns = shorten(statement["columns"])
            yield (
                f"Before training, once: each client sends {statement['what']}{size} for {statement['key']}: "
                f"{columns}."
            )
        yield from self._on_exchange()

    def _on_exchange(self) -> Iterator[str]:
        exchange = self.exchange
        patterns = exchange["patterns"]
        if not patterns and not exchange.get("by_questions"):
            yield "No exchange: every client trains on its own rows only."
            return
        part = exchange["participation"]
        who = ""
        if part != 1:
            who = f" by {100 * part:g} % of the clients, drawn for each round"
        federated = "no tensor of a network"
        if patterns:
            federated = f"{len(exchange['federated'])} tensors matching {', '.join(patterns)}"
        yield (
            f"Exchange {when(exchange['every'])}{who}: {federated}; rule {exchange['rule']}, update "
            f"rate {exchange['rate']:g}, buffers {exchange['buffers']}, optimizer state "
            f"{exchange['optimizer_state']}."
        )
        yield from _exchanges(exchange["length"])
        for key, beginning in _ABOUT_RULE.items():
            if exchange.get(key):
                yield f"The rule {beginning}{exchange[key]}."
        if patterns and len(self.clients) > 1 and exchange.get("guard") in _GUARDS:
            yield _GUARDS[exchange["guard"]]

    def parts(self) -> list[str | Grid]:
        """Return the table of clients, then in words what is sent, and the notes."""
        rows = self._rows()
        parts: list[str | Grid] = [
            Grid(_HEADER, rows[:MOST_ROWS]),
            *more(rows, "clients"),
            *self.sentences(),
        ]
        lists = {
            "Federated": self.exchange["federated"],
            "Published with them": self._published(),
            "Optimizer": [f"{key} {value}" for key, value in self.optimizer.items()],
        }
        for heading, names in lists.items():
            if names:
                parts.append(f"{heading}: {shorten(names, 6)}")
        notes = self._short_notes()
        parts += [f"Note: {note}" for note in notes[:MOST_ROWS]]
        return [*parts, *more(notes, "notes")]

    def _published(self) -> list[str]:
        """Return the tensors that clients publish beside their federated ones, with their forms."""
        published: dict[str, None] = {}
        for client in self.clients.values():
            for key, (dtype, shape) in client.get("published", {}).items():
                size = " × ".join(map(str, shape)) or "number"
                published[f"{key} ({dtype} {size})"] = None
        return list(published)

    def _short_notes(self) -> list[str]:
        """Return the notes. If there are many clients, notes that differ in numbers alone are
        printed once.
        """
        notes = list(map(str, self.notes))
        if len(self.clients) <= MOST_ROWS:
            return notes
        by_client = []
        for note in notes:
            client = note.partition(": ")[0]
            by_client.append((client if client in self.clients else "", note))
        lines = []
        for text, clients in similar(by_client):
            if len(clients) > 1:
                text = f"{text} ({clients[0]} and {len(clients) - 1:,} more)"
            lines.append(text)
        return lines


def _size(sizes: Collection[int]) -> str:
    """Describe how many numbers a client sends, from the least to the most."""
    if not sizes:
        return ""
    ends = dict.fromkeys([min(sizes), max(sizes)])
    return f" ({' to '.join(map(str, ends))} numbers per client)"


def _exchanges(length: PlannedLength) -> Iterator[str]:
    """Yield a sentence with the number of exchanges, and what follows the last one."""
    count = length["exchanges"]
    if count is None:
        return
    sentence = counted(count, "exchange")
    if length["at_most"]:
        sentence = f"At most {sentence}"
    if length["completes"]:
        sentence += ", the last one with the last step"
    if length["steps_after"]:
        sentence += f"; {length['steps_after']:,} aligned steps follow the last one"
    if length["fine_tuning"]:
        sentence += "; then each client trains on by itself"
    yield f"{sentence}."


def when(every: Every) -> str:
    """Describe when an exchange is due.

    Example:
        >>> when("epoch"), when({"steps": 3})
        ('every epoch', 'every 3 steps')
    """
    if isinstance(every, str):
        return f"every {every}"
    return " ".join(f"every {count} {unit}" for unit, count in every.items())


def _target_words(client: Mapping[str, Any]) -> str:
    """Describe what is predicted: classes, several labels, or a number."""
    if "target" in client:
        outcome = outcome_type(client["task"]) or Outcome
        return f"{client['target']} ({outcome.noun})"
    if "positive" in client:
        pairs = zip(client["classes"], client["positive"], strict=True)
        return shorten([f"{label} ({value} or not)" for label, value in pairs])
    return shorten(list(map(str, client["classes"])))
