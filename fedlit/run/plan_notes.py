"""Notes of a plan: where clients' outputs or inputs mean different things, and what no guard
checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypedDict

from fedlit.data.schema.cells import plain_text
from fedlit.errors import ConfigError
from fedlit.show.text import shorten

if TYPE_CHECKING:
    from fedlit.exchange.exchange import Exchange
    from fedlit.train.clients import Clients


class ClientFacts(TypedDict):
    """The facts about a client from which notes are made.

    ``compares`` is the class of a client that compares coefficients of single inputs, else empty;
    ``codes`` are the categories that it takes as numbers, and ``levels`` maps each of its columns of
    two categories to these, of which the second counts as 1.
    """

    meaning: list[str]
    target: str
    compares: str
    codes: list[str]
    levels: dict[str, list[str]]
    remarks: list[str]


Facts = Mapping[str, ClientFacts]
"""Client of any process → its facts."""


def facts_of(federation: Clients) -> dict[str, ClientFacts]:
    """Return the facts from which notes are made, for each client in this process."""
    data = federation.data
    codes = {encoded.spec.name: encoded.categorical for encoded in data.clients}
    facts: dict[str, ClientFacts] = {}
    for name, client in federation.clients.items():
        facts[name] = {
            "meaning": list(client.spec.task.meaning),
            "target": "",
            "compares": "",
            "codes": [],
            "levels": {},
            "remarks": list(federation.remarks.get(name, ())),
        }
        if name in data.encoders:
            facts[name]["target"] = data.encoders[name].target_name
        if client.compares_inputs:
            facts[name]["compares"] = type(client).__name__
            facts[name]["codes"] = list(codes[name])
            columns = data.encoders[name].columns if name in data.encoders else {}
            facts[name]["levels"] = {
                column: list(map(plain_text, encoder.categories))
                for column, encoder in columns.items()
                if len(encoder.categories) == 2 and not encoder.tail
            }
    return facts


def refuse_unlike_levels(facts: Facts) -> None:
    """Refuse clients that compare the coefficient of a column of two categories, where these are not
    the same two: the coefficient would stand for another category at each.

    Raises:
        ConfigError: two clients differ.
    """
    first = dict[str, tuple[str, list[str]]]()
    for name, client_facts in facts.items():
        for column, levels in client_facts["levels"].items():
            peer, expected = first.setdefault(column, (name, levels))
            if levels != expected:
                raise ConfigError(
                    f"{client_facts['compares']} compares coefficients, and column {column!r} has "
                    f"{' and '.join(expected)} at client {peer!r} but {' and '.join(levels)} at "
                    f"{name!r}; set data.align: features, which names each category"
                )


def remarks_of_clients(facts: Facts) -> Iterator[str]:
    """Yield each remark of clients on their settings, with the clients that make it."""
    clients_of = dict[str, list[str]]()
    for name, client_facts in facts.items():
        for remark in client_facts["remarks"]:
            clients_of.setdefault(remark, []).append(name)
    for remark, names in clients_of.items():
        yield f"{shorten(names)}: {remark}"


def unguarded(exchange: Exchange, clients: int) -> Iterator[str]:
    """Yield a note if several clients exchange something, but no tensors."""
    if exchange.on and not exchange.federated and clients > 1:
        yield (
            "the guard checks tensors, and this method exchanges none: clients' answers to the "
            "rule are not checked"
        )


def outputs_that_differ(facts: Facts, exchange: Exchange) -> Iterator[str]:
    """Yield notes on shared outputs that mean different things: output layers that match only by
    their shape, and labels of the same spelling for targets of different names.
    """
    owners_of = dict[str, dict[tuple[str, ...], str]]()  # head → what it means → a client
    targets = dict[str, list[str]]()
    for name, client_facts in facts.items():
        heads = [tensor for tensor in exchange.sharing.names[name] if _is_of_head(tensor)]
        by_label = any(tensor.endswith("]") for tensor in heads)
        for tensor in heads:
            if not tensor.endswith("]"):
                meaning = tuple(client_facts["meaning"])
                owners_of.setdefault(tensor, {}).setdefault(meaning, name)
        if by_label or client_facts["compares"] or exchange.rule.facts.by_questions:
            targets.setdefault(client_facts["target"], []).append(name)
    for owners in owners_of.values():
        if len(owners) > 1:
            yield _on_heads(owners)
            break
    if len(targets) > 1:
        differences = "; ".join(
            f"{target} at {shorten(names)}" for target, names in targets.items()
        )
        yield (
            f"targets have different names ({differences}), but outputs for labels of the same spelling "
            "are shared; make sure that they mean the same, or keep outputs private"
        )


def _is_of_head(tensor: str) -> bool:
    return "head" in tensor.partition("[")[0].split(".")


def _on_heads(owners: Mapping[tuple[str, ...], str]) -> str:
    differences = ", ".join(f"{shorten(list(labels))} at {name}" for labels, name in owners.items())
    return (
        f"heads are federated between clients with different targets ({differences}), so an output "
        "means different things at different clients; keep heads private (!*head), or set the "
        "task's targets: pooled"
    )


def matched_by_shape(exchange: Exchange) -> Iterator[str]:
    """Yield a note on each client of this process whose tensors may stand for anything."""
    for name, tensors in exchange.matched_by_shape.items():
        if tensors:
            yield (
                f"{name}: its network cannot be built for another number of columns, so these "
                f"tensors are matched by name and shape alone: {shorten(tensors)}; make sure that "
                "their columns and labels are the same at all clients, or name them (axes)"
            )


def inputs_that_differ(federation: Clients, facts: Facts) -> Iterator[str]:
    """Yield notes on compared numbers of single inputs that mean something else at each client, or
    nothing.
    """
    comparing = sorted({client_facts["compares"] for client_facts in facts.values()} - {""})
    if not comparing or not federation.exchange.on or len(facts) < 2:
        return
    if federation.data.scaling != "pooled":
        yield (
            f"{comparing[0]} compares coefficients, which mean different things where each client "
            "scales its numbers by its own rows, or not at all; set data.scaling: pooled"
        )
    codes = sorted(set[str]().union(*(client_facts["codes"] for client_facts in facts.values())))
    if codes:
        yield (
            f"{comparing[0]} compares coefficients, and takes categories as numbers, by their "
            f"codes ({shorten(codes, 3)}); set data.categories: indicators"
        )
