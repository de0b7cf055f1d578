"""The plan of a run: which client has what, what is sent, and when."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from fedlit.data.note import similar
from fedlit.errors import ConfigError
from fedlit.exchange.questions import bytes_of
from fedlit.names import joined
from fedlit.outcomes import Outcome, outcome_type
from fedlit.run.length import Length
from fedlit.sharing import form_of
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, more, shorten

if TYPE_CHECKING:
    from fedlit.exchange.exchange import Exchange
    from fedlit.train.clients import Clients

Facts = Mapping[str, Mapping[str, Any]]
"""Client of any process → what notes are made of."""

_HEADER = ("client", "train", "validation", "test", "features", "classes", "batch × steps", "parameters", "federated",
           "bytes/exchange")  # fmt: skip
_GUARDS = {
    "leave_out": "A client whose update is far from the others' is left out, and named.",
    "watch": "A client whose update is far from the others' is named.",
}
_UNGUARDED = (
    "the guard checks tensors, and this method exchanges none: clients' answers to the "
    "rule are not checked"
)
_SETTINGS = ("every", "rate", "buffers", "optimizer_state", "participation", "minimum")


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
    before: tuple[dict[str, Any], ...] = ()
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
            cells += [str(client["features"]), _predicted(client)]
            cells.append(f"{client['batch_size']:,} × {client['steps']}")
            cells += [f"{client[key]:,}" for key in numbers]
            rows.append(cells)
        return rows

    def sentences(self) -> Iterator[str]:
        """Yield sentences on what clients send, to whom and when: once before training, then at
        each exchange.
        """
        for statement in self.before:
            sizes = sorted({*statement.get("numbers", {}).values()})
            ends = " to ".join(str(size) for size in dict.fromkeys([*sizes[:1], *sizes[-1:]]))
            size = f" ({ends} numbers per client)" if sizes else ""
            columns = shorten(statement["columns"])
            yield (
                f"Before training, once: each client sends {statement['what']}{size} for {statement['key']}: "
                f"{columns}."
            )
        exchange = self.exchange
        patterns = self.exchange["patterns"]
        if not patterns and not exchange.get("by_questions"):
            yield "No exchange: every client trains on its own rows only."
            return
        part = exchange["participation"]
        who = "" if part == 1 else f" by {100 * part:g} % of the clients, drawn for each round"
        count = len(exchange["federated"])
        federated = (
            f"{count} tensors matching {', '.join(patterns)}"
            if patterns
            else "no tensor of a network"
        )
        yield (
            f"Exchange {when(exchange['every'])}{who}: {federated}; rule {exchange['rule']}, update "
            f"rate {exchange['rate']:g}, buffers {exchange['buffers']}, optimizer state "
            f"{exchange['optimizer_state']}."
        )
        yield from _exchanges(exchange["length"])
        for key, text in (
            ("promise", ""),
            ("asks", "asks each client for "),
            ("sends", "sends each client "),
        ):
            if exchange.get(key):
                yield f"The rule {text}{exchange[key]}."
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
        beside: dict[str, None] = {}
        for client in self.clients.values():
            for key, (dtype, shape) in client.get("published", {}).items():
                beside[f"{key} ({dtype} {' × '.join(map(str, shape)) or 'number'})"] = None
        optimizer = [f"{key} {entry}" for key, entry in self.optimizer.items()]
        for heading, names in (
            ("Federated", self.exchange["federated"]),
            ("Published with them", list(beside)),
            ("Optimizer", optimizer),
        ):
            parts += [f"{heading}: {shorten(names, 6)}"] if names else []
        notes = list(map(str, self.notes))
        if len(self.clients) > MOST_ROWS:  # notes that differ in numbers alone are printed once
            begins = [note.partition(": ")[0] for note in notes]
            grouped = similar(
                (entry if entry in self.clients else "", note)
                for entry, note in zip(begins, notes, strict=True)
            )
            notes = [
                f"{text} ({who[0]} and {len(who) - 1:,} more)" if len(who) > 1 else text
                for text, who in grouped
            ]
        return [*parts, *(f"Note: {note}" for note in notes[:MOST_ROWS]), *more(notes, "notes")]


def _exchanges(length: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence with the number of exchanges, and what follows the last one."""
    count = length["exchanges"]
    if count is None:
        return
    noun = "exchange" if count == 1 else "exchanges"
    sentence = f"At most {count:,} {noun}" if length["at_most"] else f"{count:,} {noun}"
    if length["completes"]:
        sentence += ", the last one with the last step"
    if length["steps_after"]:
        sentence += f"; {length['steps_after']:,} aligned steps follow the last one"
    if length["fine_tuning"]:
        sentence += "; then each client trains on by itself"
    yield f"{sentence}."


def when(every: Any) -> str:
    """Describe when an exchange is due.

    Example:
        >>> when("epoch"), when({"steps": 3})
        ('every epoch', 'every 3 steps')
    """
    return (
        f"every {every}"
        if isinstance(every, str)
        else " ".join(f"every {n} {unit}" for unit, n in every.items())
    )


def _predicted(client: Mapping[str, Any]) -> str:
    """Describe what is predicted: classes, several labels, or a number."""
    if "target" in client:
        outcome = outcome_type(client["task"]) or Outcome
        return f"{client['target']} ({outcome.noun})"
    if "positive" in client:
        pairs = zip(client["classes"], client["positive"], strict=True)
        return shorten([f"{label} ({value} or not)" for label, value in pairs])
    return shorten(list(map(str, client["classes"])))


def make_plan(federation: Clients, length: Length) -> Plan:
    """Return the plan of a federation whose clients are built.

    Args:
        federation: the federation.
        length: how long it is planned to train.

    Raises:
        ConfigError: something is federated, and no exchange is planned.
    """
    exchange = federation.exchange
    described_here = {name: _described(federation, exchange, name) for name in federation.clients}
    gathered = federation.group.gather(
        "the plan", [described_here, _facts(federation), federation.notes]
    )
    clients = joined(described for described, _, _ in gathered)
    facts = joined(facts_of_rank for _, facts_of_rank, _ in gathered)
    guard = exchange.guard or "off"
    remarks = dict[str, list[str]]()
    for name, about in facts.items():
        for remark in about["remarks"]:
            remarks.setdefault(remark, []).append(name)
    notes = (
        *exchange.attackers.summary,
        *_outputs_that_differ(facts, exchange),
        *([_UNGUARDED] if exchange.on and not exchange.federated and len(clients) > 1 else []),
        *federation.ending.told,
        *federation.personal.told,
        *(f"{shorten(names)}: {remark}" for remark, names in remarks.items()),
        *_inputs_that_differ(federation, facts),
        *_matched_by_shape(exchange),
        *chain.from_iterable(notes_of_rank for _, _, notes_of_rank in gathered),
        *federation.data.notes,
    )
    details = {
        "asks": exchange.rule.asks,
        "sends": exchange.rule.sends,
        "promise": exchange.remark,
        "by_questions": exchange.rule.facts.by_questions,
    }
    settings = {
        "patterns": exchange.federated,
        "federated": exchange.sharing.all_names,
        "rule": _shown(exchange.rule),
        **{key: value for key, value in details.items() if value},
        **{key: getattr(exchange, key) for key in _SETTINGS},
        "guard": guard,
        "length": _length(federation, length),
    }
    return Plan(
        clients,
        settings,
        notes,
        tuple(federation.data.told_before),
        _optimizer(federation.training.optimizer),
    )


def _length(federation: Clients, length: Length) -> dict[str, Any]:
    """Return how many exchanges there will be, and what follows the last one.

    Raises:
        ConfigError: something is federated, and no exchange is planned.
    """
    exchange = federation.exchange
    completes = exchange.completes
    count = length.rounds(exchange.every)
    if exchange.on and count == 0 and length.total:
        raise ConfigError(
            f"exchange.every: expected an exchange within the {length.total:,} aligned steps of "
            f"the training ({length.steps:,} in an epoch), found {when(exchange.every)}, which "
            "gives none; exchange more often, train for longer, or set exchange.federated: [] for "
            "clients that train alone"
        )
    return {
        "exchanges": length.rounds(exchange.every, completes=completes),
        "at_most": federation.ending.stop is not None,
        "completes": completes and bool(length.left(exchange.every)),
        "steps_after": 0 if completes else length.left(exchange.every),
        "fine_tuning": federation.personal.tune is not None,
    }


def _described(federation: Clients, exchange: Exchange, name: str) -> dict[str, Any]:
    client = federation.clients[name]
    sharing = exchange.sharing
    published = exchange.published[name]
    state = client.federated
    loader = federation.data.train_loaders[name]
    parameters = {key: state[key] for key in sharing.parameters[name]}
    sent = bytes_of({key: state[key] for key in sharing.names[name]}) + bytes_of(published)
    return {
        "rows": dict(client.spec.rows),
        "features": client.spec.num_features,
        **client.spec.task.described,
        "batch_size": loader.batch_size,
        "steps": loader.range,
        "parameters": sum(value.numel() for value in client.parameters()),
        "federated": sum(value.numel() for value in parameters.values()),
        "bytes_per_exchange": sent,
        **(
            {"published": {key: form_of(value) for key, value in published.items()}}
            if published
            else {}
        ),
    }


def _optimizer(factory: Any) -> dict[str, Any]:
    """Return the class of an optimizer, its learning rate, momentum and decay."""
    try:
        optimizer = factory([torch.nn.Parameter(torch.zeros(1))])
    except Exception:  # it needs to know more of a client
        return {}
    listed_keys = ("lr", "momentum", "betas", "weight_decay")
    return {
        "class": type(optimizer).__name__,
        **{key: optimizer.defaults[key] for key in listed_keys if key in optimizer.defaults},
    }


def _shown(rule: Any) -> str:
    parameters = inspect.signature(type(rule)).parameters
    settings = ", ".join(f"{key}={value}" for key, value in vars(rule).items() if key in parameters)
    return f"{type(rule).__name__}({settings})"


def _facts(federation: Clients) -> dict[str, dict[str, Any]]:
    """Return the facts from which notes are made, for each client in this process."""
    data = federation.data
    codes = {
        data_client.spec.name: data_client.categorical for data_client in federation.data.clients
    }
    return {
        name: {
            "meaning": client.spec.task.meaning,
            "target": data.encoders[name].target_name if name in data.encoders else "",
            "compares": type(client).__name__ if client.compares_inputs else "",
            "codes": list(codes[name]) if client.compares_inputs else [],
            "remarks": list(federation.remarks.get(name, ())),
        }
        for name, client in federation.clients.items()
    }


def _outputs_that_differ(facts: Facts, exchange: Exchange) -> Iterator[str]:
    """Yield notes on shared outputs that mean different things: output layers that match only by
    their shape, and labels of the same spelling for targets of different names.
    """
    labels_of = dict[str, dict[tuple[str, ...], str]]()
    targets = dict[str, list[str]]()
    for name, client_facts in facts.items():
        heads = [
            tensor
            for tensor in exchange.sharing.names[name]
            if "head" in tensor.partition("[")[0].split(".")
        ]
        for tensor in heads:
            if not tensor.endswith("]"):
                labels_of.setdefault(tensor, {}).setdefault(tuple(client_facts["meaning"]), name)
        if (
            any(tensor.endswith("]") for tensor in heads)
            or client_facts["compares"]
            or exchange.rule.facts.by_questions
        ):
            targets.setdefault(client_facts["target"], []).append(name)
    if classes := next(
        (client_facts for client_facts in labels_of.values() if len(client_facts) > 1), None
    ):
        differences = ", ".join(
            f"{shorten(list(client_facts))} at {name}" for client_facts, name in classes.items()
        )
        yield (
            f"heads are federated between clients with different targets ({differences}), so an output "
            "means different things at different clients; keep heads private (!*head), or set the "
            "task's targets: pooled"
        )
    if len(targets) > 1:
        differences = "; ".join(
            f"{target} at {shorten(names)}" for target, names in targets.items()
        )
        yield (
            f"targets have different names ({differences}), but outputs for labels of the same spelling "
            "are shared; make sure that they mean the same, or keep outputs private"
        )


def _matched_by_shape(exchange: Exchange) -> Iterator[str]:
    """Yield a note on each client of this process whose tensors may stand for anything."""
    for name, tensors in exchange.matched_by_shape.items():
        if tensors:
            yield (
                f"{name}: its network cannot be built for another number of columns, so these "
                f"tensors are matched by name and shape alone: {shorten(tensors)}; make sure that "
                "their columns and labels are the same at all clients, or name them (axes)"
            )


def _inputs_that_differ(federation: Clients, facts: Facts) -> Iterator[str]:
    """Yield notes on compared numbers of single inputs that mean something else at each client, or
    nothing.
    """
    comparing = sorted(
        {client_facts["compares"] for client_facts in facts.values() if client_facts["compares"]}
    )
    if not comparing or not federation.exchange.on or len(facts) < 2:
        return
    if federation.data.scaling != "pooled":
        yield (
            f"{comparing[0]} compares coefficients, which mean different things where each client "
            "scales its numbers by its own rows, or not at all; set data.scaling: pooled"
        )
    if codes := sorted(set().union(*(client_facts["codes"] for client_facts in facts.values()))):
        yield (
            f"{comparing[0]} compares coefficients, and takes categories as numbers, by their "
            f"codes ({shorten(codes, 3)}); set data.categories: indicators"
        )
