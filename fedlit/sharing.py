"""The split of a client's named tensors into federated and private ones, and back."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fedlit.errors import ConfigError, did_you_mean

__all__ = [
    "Buffers",
    "Sharing",
    "State",
    "all_finite",
    "can_name_a_module",
    "combine",
    "named_tensors",
    "relative_distance",
    "resolve",
    "select",
    "split",
]

State = Mapping[str, Tensor]
"""Named tensors: what travels."""

Buffers = Literal["private", "average"]


def can_name_a_module(name: str) -> bool:
    """Whether a ``ModuleDict`` takes a name as key: some torch uses itself.

    Example:
        >>> can_name_a_module("north"), can_name_a_module("values")
        (True, False)
    """
    return not hasattr(nn.ModuleDict, name) and name != "training"


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers that a checkpoint would hold, by full name (live, not copies)."""
    return dict(module.state_dict(keep_vars=True))


def select(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The names that the patterns choose, in the order of ``names``.

    A pattern is a glob over a tensor's full name or the name of a module that holds it: ``core``, ``core.*`` and
    ``encoder.blocks.?.norm`` all work. One that starts with ``!`` takes out what an earlier one chose. Later
    patterns win.

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


def split(state: State, federated: Collection[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(federated, private): disjoint and complete.

    Raises:
        KeyError: a federated name that the state does not have.

    Example:
        >>> split({"a": torch.zeros(1), "b": torch.ones(1)}, ["b"])
        ({'b': tensor([1.])}, {'a': tensor([0.])})
    """
    chosen = set(federated)
    return {name: state[name] for name in federated}, {n: value for n, value in state.items() if n not in chosen}


def combine(federated: State, private: State) -> dict[str, Tensor]:
    """The inverse of :func:`split`.

    Raises:
        ValueError: a name on both sides.
    """
    both = sorted(federated.keys() & private.keys())
    if both:
        raise ValueError(f"expected federated and private names to be disjoint, found {both} on both sides")
    return {**federated, **private}


@dataclass(frozen=True)
class Sharing:
    """Which tensors of each client are federated.

    Attributes:
        names: client → names of its federated tensors, parameters first, in the order of its network.
        parameters: client → those of the names that are parameters (the others are buffers).
    """

    names: Mapping[str, tuple[str, ...]]
    parameters: Mapping[str, tuple[str, ...]]

    @property
    def all_names(self) -> list[str]:
        """Every name that is federated on some client."""
        return list(dict.fromkeys(name for names in self.names.values() for name in names))


def kept_private(module: nn.Module) -> set[str]:
    """Names of the tensors that a client keeps to itself, whatever is to be federated: what its ``private`` matches."""
    return set(select(named_tensors(module), getattr(module, "private", ())))


def resolve(clients: Mapping[str, nn.Module], patterns: Sequence[str], buffers: Buffers = "private") -> Sharing:
    """Apply the patterns to every client and check that the result can be averaged.

    Args:
        clients: modules by client name.
        patterns: see :func:`select`; empty for no federation.
        buffers: whether floating-point buffers (BatchNorm statistics) that the patterns match are federated too
            (``average``) or not (``private``). Integer buffers never are.

    Raises:
        ConfigError: a pattern that matches nothing on any client, or a name whose shape differs between clients; all
            problems in one message.
    """
    everything = {client: named_tensors(module) for client, module in sorted(clients.items())}
    private = {client: kept_private(module) for client, module in clients.items()}
    tensors = {
        client: {name: value for name, value in state.items() if name not in private[client]}
        for client, state in everything.items()
    }
    parameters = {
        client: {name for name, _ in module.named_parameters(remove_duplicate=False)}
        for client, module in clients.items()
    }
    names_of_all = list(dict.fromkeys(name for state in everything.values() for name in state))
    can_travel = {
        name
        for client, state in tensors.items()
        for name, value in state.items()
        if name in parameters[client] or (buffers == "average" and value.is_floating_point())
    }
    problems = []
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        matched = select(names_of_all, [bare])
        if not matched:
            modules = sorted(
                {".".join(name.split(".")[:depth]) for name in names_of_all for depth in range(1, name.count(".") + 1)}
            )
            parts = [module for module in modules if "." not in module]
            problems.append(
                f"pattern {pattern!r}: expected to match a module or tensor of some client, found none; the "
                "networks' parts "
                f"are {', '.join(parts)}.{did_you_mean(bare.removesuffix('.*'), modules)}"
            )
        elif pattern == bare and not can_travel.intersection(matched):
            problems.append(
                f"pattern {pattern!r}: expected to match something that can travel, found only buffers or what the "
                f"method keeps private ({matched[0]}, …); "
                "floating-point buffers travel with exchange.buffers: average, integer ones never"
            )
    chosen = set(select(names_of_all, patterns))
    names: dict[str, tuple[str, ...]] = {}
    owners: dict[str, str] = {}
    for client, state in tensors.items():
        mine = [name for name in state if name in chosen and name in parameters[client]]
        if buffers == "average":
            mine += [
                name
                for name in state
                if name in chosen and name not in parameters[client] and state[name].is_floating_point()
            ]
        # a tensor that two modules share has two names, and travels once, under the first
        once = {id(state[name]): name for name in reversed(mine)}
        mine = [name for name in mine if once[id(state[name])] == name]
        names[client] = tuple(mine)
        for name in mine:
            first = owners.setdefault(name, client)
            here, there = tuple(state[name].shape), tuple(tensors[first][name].shape)
            if here != there:
                problems.append(
                    f"{name}: expected one shape on all clients that federate it, found {there} on {first!r} and "
                    f"{here} on {client!r}; federate only parts of equal shape (for Global Layers: core), or give the "
                    "clients a common space with data.align: both"
                )
                break  # one of a client's many shapes says enough
    if patterns and not chosen and not problems:
        problems.append(
            f"patterns {list(patterns)}: expected them to choose something, found that they cancel each other"
        )
    if problems:
        raise ConfigError("exchange.federated cannot be applied:\n  " + "\n  ".join(problems))
    return Sharing(
        names, {client: tuple(name for name in mine if name in parameters[client]) for client, mine in names.items()}
    )


def all_finite(states: Mapping[str, State]) -> dict[str, Tensor]:
    """Whether all values of a client are finite: a boolean on its device."""
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


def relative_distance(state: State, reference: State) -> Tensor | None:
    """‖ω_k − ω̄‖ / ‖ω̄‖ over the tensors that both have (Euclidean norm over all of them), on their device; NaN where
    ω̄ is 0, None where they have none in common.

    Example:
        >>> relative_distance({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([3.0, 0.0])})
        tensor(1.3333)
    """
    names = [name for name in state if name in reference]
    if not names:
        return None
    mine, theirs = [state[name] for name in names], [reference[name] for name in names]
    distance = torch.stack(torch._foreach_norm(torch._foreach_sub(mine, theirs))).norm()
    size = torch.stack(torch._foreach_norm(theirs)).norm()
    return torch.where(size > 0, distance / size, torch.nan)
