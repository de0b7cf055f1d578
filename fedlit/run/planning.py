"""Makes the plan of a run from its clients, its exchange and its length."""

from __future__ import annotations

import inspect
from itertools import chain
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from lightning.pytorch.cli import OptimizerCallable

from fedlit.errors import ConfigError
from fedlit.exchange.questions import bytes_of
from fedlit.names import joined
from fedlit.run.length import Length
from fedlit.run.plan import Plan, PlannedLength, when
from fedlit.run.plan_notes import (
    ClientFacts,
    facts_of,
    inputs_that_differ,
    matched_by_shape,
    outputs_that_differ,
    refuse_unlike_levels,
    remarks_of_clients,
    unguarded,
)
from fedlit.sharing import form_of

if TYPE_CHECKING:
    from fedlit.exchange.exchange import Exchange
    from fedlit.exchange.rule import Rule
    from fedlit.train.clients import Clients

_SETTINGS = ("every", "rate", "buffers", "optimizer_state", "participation", "minimum")


class _Part(TypedDict):
    """What a process contributes to the plan."""

    clients: dict[str, dict[str, Any]]
    facts: dict[str, ClientFacts]
    notes: list[str]


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
    part: _Part = {
        "clients": described_here,
        "facts": facts_of(federation),
        "notes": federation.notes,
    }
    parts = federation.group.gather("the plan", part)
    clients = joined(part["clients"] for part in parts)
    facts = joined(part["facts"] for part in parts)
    if exchange.on:
        refuse_unlike_levels(facts)
    notes = (
        *exchange.attackers.summary,
        *outputs_that_differ(facts, exchange),
        *unguarded(exchange, len(clients)),
        *federation.ending.told,
        *federation.personal.told,
        *remarks_of_clients(facts),
        *inputs_that_differ(federation, facts),
        *matched_by_shape(exchange),
        *chain.from_iterable(part["notes"] for part in parts),
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
        "guard": exchange.guard or "off",
        "length": _length(federation, length),
    }
    return Plan(
        clients,
        settings,
        notes,
        tuple(federation.data.told_before),
        _optimizer(federation.training.optimizer),
    )


def _length(federation: Clients, length: Length) -> PlannedLength:
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
    described = {
        "rows": dict(client.spec.rows),
        "features": client.spec.num_features,
        **client.spec.task.described,
        "batch_size": loader.batch_size,
        "steps": loader.range,
        "parameters": sum(value.numel() for value in client.parameters()),
        "federated": sum(value.numel() for value in parameters.values()),
        "bytes_per_exchange": sent,
    }
    if published:
        described["published"] = {key: form_of(value) for key, value in published.items()}
    return described


def _optimizer(factory: OptimizerCallable) -> dict[str, object]:
    """Return the class of an optimizer, its learning rate, momentum and decay."""
    try:
        optimizer = factory([torch.nn.Parameter(torch.zeros(1))])
    except Exception:  # The factory needs more of a client than one parameter.
        return {}
    listed_keys = ("lr", "momentum", "betas", "weight_decay")
    return {
        "class": type(optimizer).__name__,
        **{key: optimizer.defaults[key] for key in listed_keys if key in optimizer.defaults},
    }


def _shown(rule: Rule) -> str:
    parameters = inspect.signature(type(rule)).parameters
    settings = ", ".join(f"{key}={value}" for key, value in vars(rule).items() if key in parameters)
    return f"{type(rule).__name__}({settings})"
