"""Decides which of a client's named tensors are federated and which are private, as a whole or
slice by slice.

A network's attribute ``axes`` names the slices of a tensor along one axis: the rows of an embedding
by columns or categories, the rows of an output layer by classes. If ``exchange.by_name`` selects
such a tensor, its slices are sent separately, as ``<tensor>[<name>]``. Each slice is then averaged
over the clients that have its name, whatever else they have.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from fedlit.errors import ConfigError, RunError, did_you_mean
from fedlit.names import Share
from fedlit.slices import Axes, Live, live_of, named_axes, slice_name

State = Mapping[str, Tensor]
"""Named tensors: what travels."""

Buffers = Literal["private", "average"]

Form = tuple[str, tuple[int, ...]]
"""The dtype of a tensor, by name, and its shape."""

_Value = TypeVar("_Value")


class Offer(TypedDict):
    """What a client sends about itself, so that all clients know what is federated.

    Attributes:
        tensors: maps each name to (dtype, shape) of the federated tensors, parameters first, with
            slices instead of the tensors that ``by_name`` selects.
        parameters: the number of these that are parameters.
        met: the patterns that match something that can be sent, and those with ``!`` that match
            anything.
        named: the patterns of ``by_name`` that match a tensor whose slices have names.
        chosen: whether the patterns together choose anything.
        whole: whether all parameters are federated, none of them by slices.
    """

    tensors: Mapping[str, tuple[str, Sequence[int]]]
    parameters: int
    met: list[str]
    named: list[str]
    chosen: bool
    whole: bool


def can_name_a_module(name: str) -> bool:
    """Return whether ``ModuleDict`` accepts a name as a key. Torch reserves some names.

    Example:
        >>> can_name_a_module("north"), can_name_a_module("values")
        (True, False)
    """
    return not hasattr(nn.ModuleDict, name) and name != "training"


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers that a checkpoint would hold, by full name (live, not
    copies).
    """
    return dict(module.state_dict(keep_vars=True))


def select(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that the patterns select, in the order of ``names``.

    A pattern is a glob for a tensor's full name or for the name of a module that contains it:
    ``core``, ``core.*`` and ``encoder.blocks.?.norm`` are all valid. A pattern that starts with
    ``!`` removes what an earlier one selected. Later patterns take precedence.

    Example:
        >>> names = ["encoder.weight", "core.0.weight", "core.norm.weight", "head.bias"]
        >>> select(names, ["core", "head.*", "!*norm*"])
        ['core.0.weight', 'head.bias']
    """
    chosen: dict[str, bool] = {}
    for name in names:
        parts = name.split(".")
        paths = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for pattern in patterns:
            if any(fnmatch.fnmatchcase(path, pattern.removeprefix("!")) for path in paths):
                chosen[name] = not pattern.startswith("!")
    return [name for name, federated in chosen.items() if federated]


def all_here(topic: str, own: Mapping[str, _Value]) -> dict[str, _Value]:
    """A :data:`Share` for the case that all clients are in this process."""
    return dict(sorted(own.items()))


@dataclass(frozen=True)
class Sharing:
    """The names of each client's federated tensors.

    Attributes:
        names: maps each client to the names of its federated tensors, parameters first, in the
            order of its network. It covers all clients, also those in other processes.
        parameters: maps each client to the names that are parameters (the others are buffers).
        forms: maps each name to its dtype and shape, which are the same at all clients that
            federate it.
        whole: whether all parameters of all clients are federated, and none only slice by slice.
    """

    names: Mapping[str, tuple[str, ...]]
    parameters: Mapping[str, tuple[str, ...]]
    forms: Mapping[str, Form] = field(default_factory=dict)
    whole: bool = False

    @property
    def all_names(self) -> list[str]:
        """Every name that is federated at some client."""
        return list(dict.fromkeys(itertools.chain.from_iterable(self.names.values())))


def form_of(value: Tensor) -> Form:
    """Return a tensor's dtype, by name, and its shape.

    Example:
        >>> form_of(torch.zeros(2, 3))
        ('float32', (2, 3))
    """
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def offer(
    module: nn.Module, patterns: Sequence[str], buffers: Buffers, by_name: Sequence[str] = ()
) -> Offer:
    """Return what a client sends about itself.

    Args:
        module: the client.
        patterns: the patterns of federated tensors, see :func:`select`.
        buffers: whether floating-point buffers are federated.
        by_name: the patterns of the tensors that are sent slice by slice.
    """
    state = named_tensors(module)
    private = set(select(state, getattr(module, "private", ())))
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    averaged = set(parameters)
    if buffers == "average":
        averaged.update(name for name, value in state.items() if value.is_floating_point())
    can_travel = averaged & state.keys() - private
    chosen = select(state, patterns)
    sent = sorted(
        (name for name in chosen if name in can_travel), key=lambda name: name not in parameters
    )
    # a tensor that two modules share has two names, and travels once, under the first
    first = {id(state[name]): name for name in reversed(sent)}
    sent = [name for name in sent if first[id(state[name])] == name]
    axes: Axes = {}
    if by_name:
        axes = named_axes(module)
    cut = set(select(axes, by_name))
    tensors: dict[str, Form] = {}
    count = 0
    for name in sent:
        if name in cut:
            axis, labels = axes[name]
            form = form_of(state[name].select(axis, 0))
            tensors |= {slice_name(name, label): form for label in labels}
        else:
            tensors[name] = form_of(state[name])
        if name in parameters:
            count = len(tensors)
    return {
        "tensors": tensors,
        "parameters": count,
        "met": [pattern for pattern in patterns if _matches(pattern, state, can_travel)],
        "named": [
            pattern
            for pattern in by_name
            if pattern.startswith("!") or set(select(axes, [pattern])).intersection(sent)
        ],
        "chosen": bool(chosen),
        "whole": bool(parameters)
        and parameters <= set(chosen) & can_travel
        and not cut.intersection(sent),
    }


def _matches(pattern: str, state: Iterable[str], can_travel: Iterable[str]) -> bool:
    """Return whether a pattern matches a tensor that can be sent; any tensor, if it removes."""
    names = state if pattern.startswith("!") else can_travel
    return bool(select(names, [pattern.removeprefix("!")]))


def resolve(
    clients: Mapping[str, nn.Module],
    patterns: Sequence[str],
    buffers: Buffers = "private",
    share: Share = all_here,
    by_name: Sequence[str] = (),
) -> Sharing:
    """Apply the patterns to every client, and check that the federated tensors can be averaged.

    Args:
        clients: the modules of the clients in this process, by client name.
        patterns: see :func:`select`; empty for no federation.
        buffers: whether floating-point buffers (BatchNorm statistics) that the patterns match are
            federated too (``average``) or not (``private``). Integer buffers never are.
        share: sends the names, dtypes and shapes of federated tensors to clients in other
            processes.
        by_name: patterns of the federated tensors that are sent slice by slice, each slice under
            the name of its column, category or class (see :mod:`fedlit.sharing`).

    Raises:
        ConfigError: a pattern matches nothing at any client, or the shape of a name differs between
            clients; one message lists all problems.
    """
    offers: Mapping[str, Offer] = share(
        "federated",
        {name: offer(module, patterns, buffers, by_name) for name, module in clients.items()},
    )
    problems = _unmatched(patterns, by_name, offers.values(), clients)
    forms: dict[str, tuple[str, tuple[int, ...]]] = {}
    for client, client_offer in offers.items():
        for name, (_, shape) in client_offer["tensors"].items():
            first, expected = forms.setdefault(name, (client, tuple(shape)))
            if tuple(shape) != expected:
                problems.append(
                    f"{name}: expected one shape on all clients that federate it, found {expected} "
                    f"on {first!r} and {tuple(shape)} on {client!r}; federate only parts of equal "
                    "shape (for Global Layers: core), give the clients a common space with "
                    "data.align: both, or share tensors by name (exchange.by_name)"
                )
                break  # one of a client's many shapes is enough
    if (
        patterns
        and not problems
        and not any(client_offer["chosen"] for client_offer in offers.values())
    ):
        problems.append(
            f"patterns {list(patterns)}: expected that they choose something, found that they "
            "cancel out"
        )
    if problems:
        subject = "exchange.federated, or what exchange.rule adds to it,"
        raise ConfigError(f"{subject} cannot be applied:\n  " + "\n  ".join(problems))
    return sharing_of(offers)


def _unmatched(
    patterns: Sequence[str],
    by_name: Sequence[str],
    offers: Collection[Offer],
    clients: Mapping[str, nn.Module],
) -> list[str]:
    """Return a sentence for each pattern that matches nothing at any client."""
    with_names: set[str] = set()
    if by_name:
        with_names.update(*map(named_axes, clients.values()))
    matched = set().union(*(client_offer["met"] for client_offer in offers))
    named = set().union(*(client_offer["named"] for client_offer in offers))
    available = sorted(with_names)
    problems = [
        f"exchange.by_name: pattern {pattern!r}: expected a federated tensor whose slices have "
        "names, found none; the networks have "
        f"{', '.join(available) or 'no such tensors (fedlit.TabM, GlobalLayers, MLP do)'}."
        + did_you_mean(pattern, available)
        for pattern in by_name
        if pattern not in named
    ]
    problems += [
        f"pattern {pattern!r}: expected a part of some client that can travel (not what its method "
        "keeps private; buffers of floats with exchange.buffers: average), found none; "
        f"{_parts(pattern, clients)}"
        for pattern in patterns
        if pattern not in matched
    ]
    return problems


def sharing_of(offers: Mapping[str, Offer]) -> Sharing:
    """Return what is federated, given what each client sends about itself (see :func:`offer`)."""
    names = {client: tuple(client_offer["tensors"]) for client, client_offer in offers.items()}
    parameters = {
        client: names[client][: client_offer["parameters"]]
        for client, client_offer in offers.items()
    }
    forms: dict[str, Form] = {}
    for client_offer in offers.values():
        for name, (dtype, shape) in client_offer["tensors"].items():
            forms[name] = (dtype, tuple(shape))
    whole = all(client_offer["whole"] for client_offer in offers.values())
    return Sharing(names, parameters, forms, whole)


def _parts(pattern: str, clients: Mapping[str, nn.Module]) -> str:
    modules: set[str] = set()
    for client in clients.values():
        for tensor in named_tensors(client):
            parts = tensor.split(".")
            modules.update(".".join(parts[:depth]) for depth in range(1, len(parts)))
    top_level = ", ".join(name for name in sorted(modules) if "." not in name)
    hint = did_you_mean(pattern.removeprefix("!").removesuffix(".*"), sorted(modules))
    return f"there are {top_level}.{hint}"


def all_finite(states: Mapping[str, State]) -> dict[str, Tensor]:
    """Return whether all values of a client are finite, as a boolean on its device."""
    flags = {}
    for name, state in states.items():
        tensors = list(state.values())
        # the largest magnitude is finite exactly if all values are
        flags[name] = (
            torch.isfinite(torch.stack(torch._foreach_norm(tensors, float("inf")))).all()
            if tensors
            else torch.tensor(True)
        )
    return flags


def taken_again(live: Live, module: nn.Module, owner: str) -> Live:
    """Select the same tensors of a module again, after some have been replaced.

    Args:
        live: the tensors as they were.
        module: the module.
        owner: whose they are, for a message.

    Raises:
        RunError: a tensor is gone, or has another type or shape.
    """
    tensors = named_tensors(module)
    for name in map(live.tensor_of, live):
        expected = form_of(live.tensor(name))
        actual = form_of(tensors[name]) if name in tensors else "none"
        if actual != expected:
            raise RunError(
                f"{owner}: expected {name}, which is federated, to stay {expected}, found {actual} "
                "after it or its module was replaced; write into the tensor instead (copy_)"
            )
    return live_of(module, tensors, live.names)
