"""What a run is going to do, before it does anything: who has what, what travels, when."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fedlit.data.note import alike
from fedlit.exchange.questions import bytes_of
from fedlit.sharing import form_of
from fedlit.show.shown import Grid, Shown
from fedlit.show.text import MOST_ROWS, more, shorten

if TYPE_CHECKING:
    from fedlit.exchange.exchange import Exchange
    from fedlit.sharing import Sharing
    from fedlit.train.federation import Federation, Training

__all__ = ["Plan", "make_plan"]


Facts = Mapping[str, Mapping[str, Any]]
"""Client of any process → what notes are made of."""


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """The plan of a run.

    Attributes:
        clients: client → rows per split, features, classes, parameters, federated parameters, bytes that it sends
            per exchange.
        exchange: what is federated, when, by which rule.
        before: what clients tell each other once, before the first step (see
            :meth:`fedlit.data.agree.Agreement.told`).
        optimizer: its class, and the numbers that it starts with; empty where it cannot be made of one parameter.
        notes: what a person should know about the tables.
    """

    clients: dict[str, dict[str, Any]]
    exchange: dict[str, Any]
    notes: tuple[str, ...] = ()
    before: tuple[dict[str, Any], ...] = ()
    optimizer: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``fedlit describe --format json`` prints it."""
        return {
            "clients": self.clients,
            "before": list(self.before),
            "exchange": self.exchange,
            "optimizer": dict(self.optimizer),
            "notes": list(self.notes),
        }

    def _rows(self) -> list[list[str]]:
        return [
            [
                name,
                *(f"{client['rows'][split]:,}" for split in ("train", "validation", "test")),
                str(client["features"]),
                _predicted(client),
                f"{client['batch_size']:,} × {client['steps']}",
                f"{client['parameters']:,}",
                f"{client['federated']:,}",
                f"{client['bytes_per_exchange']:,}",
            ]
            for name, client in self.clients.items()
        ]

    _HEADER = (
        "client",
        "train",
        "validation",
        "test",
        "features",
        "classes",
        "batch × steps",
        "parameters",
        "federated",
        "bytes/exchange",
    )

    def _sentence(self) -> str:
        exchange = self.exchange
        if not exchange["patterns"] and not exchange.get("by_questions"):
            return "No exchange: every client trains on its own rows alone."
        every = exchange["every"]
        when = (
            f"every {every}" if isinstance(every, str) else " ".join(f"every {n} {unit}" for unit, n in every.items())
        )
        part = exchange["participation"]
        who = "" if part == 1 else f" by {100 * part:g} % of the clients, drawn for each round"
        return (
            f"Exchange {when}{who}: "
            + (
                f"{len(exchange['federated'])} tensors matching {', '.join(exchange['patterns'])}; "
                if exchange["patterns"]
                else "no tensor of a network; "
            )
            + f"rule {exchange['rule']}, "
            f"update rate {exchange['rate']:g}, buffers {exchange['buffers']}, optimizer state "
            f"{exchange['optimizer_state']}."
            + (f" The rule {exchange['promise']}." if exchange.get("promise") else "")
            + (f" The rule asks each client for {exchange['asks']}." if exchange["asks"] else "")
            + (f" The rule sends each client {exchange['sends']}." if exchange.get("sends") else "")
            + _guard_words(exchange.get("guard", "off"), len(self.clients) if exchange["patterns"] else 0)
        )

    def _told(self) -> list[str]:
        lines = []
        for told in self.before:
            numbers = sorted(set(told.get("numbers", {}).values()))
            sizes = " to ".join(str(number) for number in dict.fromkeys([*numbers[:1], *numbers[-1:]]))
            size = f" ({sizes} numbers per client)" if numbers else ""
            lines.append(
                f"Before training, once: each client tells {told['what']}{size} for {told['key']}: "
                f"{shorten(told['columns'])}."
            )
        return lines

    def parts(self) -> list[str | Grid]:
        """The table of clients, then in words what travels, and the notes."""
        names = shorten(self.exchange["federated"], 6) if self.exchange["federated"] else ""
        rows = self._rows()
        parts: list[str | Grid] = [Grid(self._HEADER, rows[:MOST_ROWS]), *more(rows, "clients"), *self._told()]
        parts += [self._sentence(), *([f"Federated: {names}"] if names else [])]
        beside = {
            f"{key} ({dtype} {' × '.join(map(str, shape)) or 'number'})": None
            for client in self.clients.values()
            for key, (dtype, shape) in client.get("published", {}).items()
        }
        if beside:
            parts.append(f"Published beside it: {shorten([*beside], 6)}")
        if self.optimizer:
            parts.append("Optimizer: " + ", ".join(f"{key} {own}" for key, own in self.optimizer.items()) + ".")
        notes = list(map(str, self.notes))
        if len(self.clients) > MOST_ROWS:  # what differs in numbers alone is said once
            begins = [note.partition(": ")[0] for note in notes]
            told = alike((own if own in self.clients else "", note) for own, note in zip(begins, notes, strict=True))
            notes = [f"{text} ({who[0]} and {len(who) - 1:,} more)" if len(who) > 1 else text for text, who in told]
        return [*parts, *(f"Note: {note}" for note in notes[:MOST_ROWS]), *more(notes, "notes")]

    def markdown(self) -> str:
        """Return the plan for TensorBoard's text tab."""
        lines = ["| " + " | ".join(row) + " |" for row in (self._HEADER, ["---"] * len(self._HEADER), *self._rows())]
        federated = "".join(f"\n* `{name}`" for name in self.exchange["federated"])
        sentences = "\n\n".join([*self._told(), self._sentence()])
        return "\n".join(lines) + f"\n\n{sentences}\n{federated}"


_GUARDS = {
    "leave_out": "A client whose update is far from the others' is left out, and named.",
    "clip": "An update that is far from the others' is made smaller, and its client named.",
    "watch": "A client whose update is far from the others' is named.",
}


def _guard_words(mode: str, clients: int) -> str:
    if clients < 2 or mode not in _GUARDS:
        return ""
    pair = " Between two, both are named unless the history of one speaks against it." if clients == 2 else ""
    return f" {_GUARDS[mode]}{pair}"


def _unguarded(exchange: Exchange, clients: int) -> list[str]:
    """Return a note where one client's numbers can ruin all."""
    if not exchange.on or clients < 2:
        return []
    if not exchange.federated:
        return [
            "the guard looks at tensors, and here are none: what clients answer to the rule's questions is believed"
        ]
    if exchange.guard is None:
        return ["exchange.guard is off: one client's numbers can ruin all; leave_out would protect the others"]
    if exchange.guard.mode == "watch":
        return ["exchange.guard: watch names clients and protects nobody; leave_out would"]
    return []


def make_plan(federation: Federation) -> Plan:
    """The plan for a federation whose clients are built."""
    exchange = federation.exchange
    assert exchange is not None
    sharing, described = exchange.sharing, dict[str, dict[str, Any]]()
    for name, client in federation.clients.items():
        state = client.federated
        sizes = {key: value.numel() for key, value in client.named_parameters()}
        published = exchange.published[name]
        sent = bytes_of({key: state[key] for key in sharing.names[name]}) + bytes_of(published)
        if exchange.optimizer_state == "average":
            sent += bytes_of({key: state[key] for key in sharing.parameters[name]}) * _moments(client)
        loader = federation.data.train_loaders[name]
        described[name] = {
            "rows": dict(client.spec.rows),
            "features": client.spec.num_features,
            **client.spec.task.described,
            "batch_size": loader.batch_size,
            "steps": loader.range,
            "parameters": sum(sizes.values()),
            "federated": sum(state[key].numel() for key in sharing.parameters[name]),
            "bytes_per_exchange": sent,
            **({"published": {key: form_of(own) for key, own in published.items()}} if published else {}),
        }
    told = federation.group.gather("the plan", [described, _facts(federation), federation.notes])
    described = {name: own for one in told for name, own in one[0].items()}
    facts = {name: own for one in told for name, own in one[1].items()}
    return Plan(
        described,
        {
            "patterns": exchange.federated,
            "federated": sharing.all_names,
            "every": exchange.every,
            "rule": _describe(exchange.rule),
            "asks": exchange.rule.asks,
            **({"sends": exchange.rule.sends} if exchange.rule.sends else {}),
            **({"promise": exchange.remark} if exchange.remark else {}),
            **({"by_questions": True} if exchange.rule.facts.by_questions else {}),
            "rate": exchange.rate,
            "buffers": exchange.buffers,
            "optimizer_state": exchange.optimizer_state,
            "participation": exchange.participation,
            "minimum": exchange.minimum,
            "guard": exchange.guard.mode if exchange.guard is not None else "off",
        },
        (
            *exchange.attackers.told,
            *_heads_of_different_classes(facts, sharing),
            *_unguarded(exchange, len(described)),
            *federation.personal.told,
            *_remarks(facts),
            *_inputs_that_differ(federation, facts),
            *_targets_of_other_names(federation, facts, sharing),
            *(note for one in told for note in one[2]),
            *federation.data.notes,
        ),
        tuple(federation.data.told_before),
        _optimizer(federation.training),
    )


def _optimizer(training: Training) -> dict[str, Any]:
    """The class of an optimizer, its rate, momentum and decay."""
    try:
        made = training.optimizer([torch.nn.Parameter(torch.zeros(1))])
    except Exception:  # it needs to know more of a client
        return {}
    shown = ("lr", "momentum", "betas", "weight_decay")
    numbers = {key: made.defaults[key] for key in shown if key in made.defaults}
    return {"class": type(made).__name__, **numbers}


def _facts(federation: Federation) -> dict[str, dict[str, Any]]:
    """Return the facts of each client here from which notes are made."""
    data, categorical = federation.data, {own.spec.name: own.categorical for own in federation.data.clients}
    return {
        name: {
            "meaning": client.spec.task.meaning,
            "classes": bool(client.spec.classes),
            "target": data.encoders[name].target_name if name in data.encoders else "",
            "compares": type(client).__name__ if client.compares_inputs else "",
            "codes": categorical[name],
            "remarks": list(federation.remarks.get(name, ())),
        }
        for name, client in federation.clients.items()
    }


def _remarks(facts: Facts) -> list[str]:
    """Return the remarks of clients' classes on the settings, one line for all that are the same."""
    said: dict[str, list[str]] = {}
    for name, own in facts.items():
        for remark in own["remarks"]:
            said.setdefault(remark, []).append(name)
    return [f"{shorten(names)}: {remark}" for remark, names in said.items()]


def _predicted(client: Mapping[str, Any]) -> str:
    """Describe what is predicted: classes, several labels, or a number."""
    if "target" in client:
        return f"{client['target']} ({'count' if client['task'] == 'counts' else 'number'})"
    if "positive" in client:
        pairs = zip(client["classes"], client["positive"], strict=True)
        return shorten([f"{label} ({value} or not)" for label, value in pairs])
    return shorten(list(map(str, client["classes"])))


def _heads_of_different_classes(facts: Facts, sharing: Sharing) -> list[str]:
    """Output layers that fit by their shape alone."""
    met: dict[str, dict[tuple[str, ...], str]] = {}
    for name, own in facts.items():
        for tensor in sharing.names[name]:
            if "head" in tensor.split(".") and not tensor.endswith("]"):
                met.setdefault(tensor, {}).setdefault(tuple(own["meaning"]), name)
    classes = next((own for own in met.values() if len(own) > 1), None)
    if classes is None:
        return []
    found = ", ".join(f"{shorten(list(own))} at {name}" for own, name in classes.items())
    classified = [own["classes"] for own in facts.values()]
    what = "classes" if all(classified) else "targets"
    key = "" if len(set(classified)) > 1 else "data.align: classes" if all(classified) else "the task's targets: pooled"
    return [
        f"heads are federated between clients of different {what} ({found}): an output means one thing here and "
        f"another there; keep them private (!*head)" + (f" or set {key}" if key else "")
    ]


def _targets_of_other_names(federation: Federation, facts: Facts, sharing: Sharing) -> list[str]:
    """Outputs that are shared by the spelling of labels, between targets that are called differently."""
    exchange, met = federation.exchange, dict[str, list[str]]()
    for name, one in facts.items():
        by_label = any(own.startswith("head.") and own.endswith("]") for own in sharing.names[name])
        if by_label or one["compares"] or (exchange is not None and exchange.rule.facts.by_questions):
            met.setdefault(one["target"], []).append(name)
    if len(met) < 2:
        return []
    found = "; ".join(f"{target} at {shorten(names)}" for target, names in met.items())
    return [
        f"targets are called differently ({found}), and what is learnt of labels that are spelt alike is shared: see "
        "that they mean the same, or keep outputs private"
    ]


def _inputs_that_differ(federation: Federation, facts: Facts) -> list[str]:
    """Where numbers of single inputs are compared that mean something else at each client, or nothing as numbers."""
    exchange, data = federation.exchange, federation.data
    comparing = {name: own["compares"] for name, own in facts.items() if own["compares"]}
    if not comparing or exchange is None or not exchange.on or len(federation.names) < 2:
        return []
    who, notes = f"{next(iter(comparing.values()))} compares coefficients", []
    if data.scaling == "client":
        notes.append(
            f"{who}: each client standardises its numbers by its own rows, so that a coefficient means one thing here "
            "and another there; set data.scaling: pooled"
        )
    elif data.scaling == "none":
        notes.append(
            f"{who}: numbers are as the tables have them, so that penalties weigh columns by their units; set "
            "data.scaling: pooled"
        )
    if codes := list(dict.fromkeys(code for name in comparing for code in facts[name]["codes"])):
        notes.append(
            f"{who}: categories are codes that enter as numbers ({shorten(codes, 3)}); set data.categories: indicators"
        )
    return notes


def _moments(client: Any) -> int:
    """How many tensors of a parameter's shape its optimizer keeps: found by asking a fresh one to take a step on a
    copy.
    """
    import torch

    probe = torch.nn.Parameter(torch.zeros(2, 3))
    probe.grad = torch.ones_like(probe)
    optimizer = client.optimizer_factory([probe])
    optimizer.step()
    return sum(
        isinstance(value, torch.Tensor) and value.shape == probe.shape for value in optimizer.state[probe].values()
    )


def _describe(rule: Any) -> str:
    given = inspect.signature(type(rule)).parameters
    settings = ", ".join(f"{key}={value}" for key, value in vars(rule).items() if key in given)
    return f"{type(rule).__name__}({settings})"
