"""Lets clients start from the tensors of a run that was trained before, instead of random
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fedlit.client import FederatedClient, call_hook
from fedlit.errors import ConfigError
from fedlit.meanings import Described, find_meanings, unlike
from fedlit.precision import in_double
from fedlit.sharing import Buffers, named_tensors, offer
from fedlit.show.text import shorten
from fedlit.slices import Live, live_of, named_axes, slice_name
from fedlit.spec import ClientSpec
from fedlit.train.manifest import Manifest, read_checkpoint

if TYPE_CHECKING:
    from fedlit.train.clients import Clients


@dataclass
class Start:
    """A trained run that clients start from.

    A client of the run starts as it was there. Any other client, a newcomer, takes the federated
    tensors and keeps its own initial values elsewhere. If the run's clients differ in a federated
    tensor, the newcomer takes their mean. Optimizers and rules start anew.

    Attributes:
        checkpoint: the checkpoint of the run.
        core: patterns of the tensors that a newcomer takes, as the run federated them; the patterns
            of ``exchange.federated`` if None.
        buffers: ``average`` if floating-point buffers that the patterns match are taken too; it is
            used together with ``core`` only.
        frozen: whether a newcomer keeps what it took as it is, and trains everything else.
    """

    checkpoint: str
    core: list[str] | None = None
    buffers: Buffers = "private"
    frozen: bool = False


class Begun:
    """A start whose checkpoint has been read.

    Args:
        start: the start as it is configured.

    Raises:
        ConfigError: there is no such checkpoint, or it is one of pooled rows.
    """

    def __init__(self, start: Start) -> None:
        if not Path(start.checkpoint).is_file():
            raise ConfigError(
                "model.start.checkpoint: expected a run's checkpoint, found no file "
                f"{start.checkpoint}; it is needed for as long as this run is trained"
            )
        self.start = start
        self.content = read_checkpoint(Path(start.checkpoint), resumable=False)
        self.saved = Manifest.read(self.content)

    def apply(self, federation: Clients) -> None:
        """Let clients start from the run. The federation then has notes about this, and knows which
        tensors are frozen.

        Raises:
            ConfigError: tensors have other shapes, a client of the run has other rows, or there is
                nothing to take.
        """
        federation.exchange.started = True
        notes = []
        for name, client in federation.clients.items():
            if name in self.saved.data:
                self._restore(federation, client)
            else:
                notes += self._join(federation, client)
        federation.notes = notes

    def _tensors(self, client: str) -> dict[str, Tensor]:
        prefix = f"clients.{client}."
        tensors = self.content["state_dict"]
        return {
            key.removeprefix(prefix): value
            for key, value in tensors.items()
            if key.startswith(prefix)
        }

    def _restore(self, federation: Clients, client: FederatedClient) -> None:
        name = client.spec.name
        if self.saved.data[name] != federation.fingerprints[name]:
            raise ConfigError(
                f"client {name!r}: expected the rows and splits that the run was trained on, found "
                "others: rows that it was trained on could be scored as test rows; use the run's "
                f"tables and its seed ({self.saved.seed})"
            )
        _check_shapes(name, named_tensors(client), self._tensors(name))
        client.load_state_dict(self._tensors(name))
        saved = self.content["fedlit"]["clients"][name]
        client.state = saved["state"]
        call_hook(client, "on_load_checkpoint", saved)

    def _join(self, federation: Clients, client: FederatedClient) -> list[str]:
        start = self.start
        exchange = federation.exchange
        name = client.spec.name
        patterns = exchange.federated
        buffers = exchange.buffers
        if start.core is not None:
            patterns = start.core
            buffers = start.buffers
        names = list(offer(client, patterns, buffers, exchange.by_name)["tensors"])
        taken, differ = core_of(self._saved(federation, exchange.by_name), self.saved.data, names)
        if not taken:
            raise ConfigError(
                f"client {name!r}: expected tensors that the run's clients share "
                f"({', '.join(patterns) or 'nothing'}), found none of these names in the run; let "
                "it have the run's network"
            )
        live = live_of(client, named_tensors(client), names)
        _check_shapes(name, live, taken)
        self._check_meanings(federation, client, list(taken))
        with torch.no_grad():
            for key, value in taken.items():
                live[key].copy_(value)
        notes = []
        if start.frozen:
            whole, incomplete = _whole(live, taken)
            _freeze(client, list(whole))
            federation.frozen[name] = whole
            if incomplete:
                notes.append(
                    f"{name}: has more columns or classes than the run knows, and trains further: "
                    f"{shorten(incomplete)}"
                )
            taken = whole
            size = sum(value.numel() for value in taken.values())
            notes.append(
                f"{name}: keeps {size:,} numbers of the run as they are: {shorten(list(taken))}"
            )
        missing = [key for key in names if key not in taken]
        if missing:
            notes.append(
                f"{name}: no client of the run has {shorten(missing)}; {name} starts from its own "
                "values there"
            )
        if differ:
            notes.append(
                f"{name}: the run's clients differ in {len(differ)} of {len(taken)} federated "
                f"tensors; {name} takes their mean"
            )
        return notes

    def _check_meanings(
        self, federation: Clients, newcomer: FederatedClient, taken: list[str]
    ) -> None:
        """Refuse tensors that stand for other columns or labels in the run than at the newcomer."""
        clients = {newcomer.spec.name: Described(newcomer, newcomer.spec, taken)}
        described_layouts = {_inputs_and_labels(newcomer.spec)}
        for name, described in sorted(self.content["fedlit"].get("specs", {}).items()):
            spec = ClientSpec.from_state(described)
            if name not in self.saved.data or _inputs_and_labels(spec) in described_layouts:
                continue
            described_layouts.add(_inputs_and_labels(spec))
            clients[name] = Described(federation.fresh(spec), spec, taken)
        if len(clients) > 1:
            agreed = federation.data.terms(known=False).features
            problems = unlike(find_meanings(clients, federation.fresh, agreed).meanings)
            if problems:
                raise ConfigError(
                    "model.start: the run's tensors do not mean the same at the new client:\n  "
                    + "\n  ".join(problems)
                )

    def _saved(self, federation: Clients, by_name: list[str]) -> dict[str, Tensor]:
        """Map ``clients.<client>.<tensor>`` to its value; for a tensor whose slices have names, map
        its slices too.
        """
        state = dict(self.content["state_dict"])
        specs = self.content["fedlit"]["specs"] if by_name else {}
        for name, described in specs.items():
            axes = named_axes(federation.fresh(ClientSpec.from_state(described)))
            for tensor, (axis, labels) in axes.items():
                whole = state.get(f"clients.{name}.{tensor}")
                if whole is None:
                    continue
                for position, label in enumerate(labels):
                    state[f"clients.{name}.{slice_name(tensor, label)}"] = whole.select(
                        axis, position
                    )
        return state


def _inputs_and_labels(spec: ClientSpec) -> tuple[Hashable, ...]:
    return (spec.features, spec.inputs, spec.output_labels)


def core_of(
    state: Mapping[str, Tensor], clients: Collection[str], names: list[str]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return what a newcomer takes from a run: for each tensor, the value that all clients with
    this tensor agree on, or else their mean, summed in the order of names.

    Args:
        state: the tensors of a checkpoint: ``clients.<client>.<tensor>`` → value.
        clients: the clients of the run.
        names: the names of tensors.

    Returns:
        The tensors by name, without names that no client has; and the names in which clients
        differ.

    Raises:
        ConfigError: clients have a tensor of different shapes.

    Example:
        >>> saved = {"clients.a.w": torch.tensor([1.0]), "clients.b.w": torch.tensor([3.0])}
        >>> core_of(saved, ["a", "b"], ["w", "v"])
        ({'w': tensor([2.])}, ['w'])
    """
    taken = dict[str, Tensor]()
    differ = list[str]()
    for name in names:
        keys = [f"clients.{client}.{name}" for client in sorted(clients)]
        values = [state[key] for key in keys if key in state]
        if not values:
            continue
        if any(value.shape != values[0].shape for value in values):
            raise ConfigError(
                f"{name}: expected a tensor of one shape at all clients of the run, found several: "
                "it is private there; leave it out of model.start.core"
            )
        if all(torch.equal(value, values[0]) for value in values):
            taken[name] = values[0]
        else:
            differ.append(name)
            mean = torch.stack([in_double(value) for value in values]).mean(0)
            taken[name] = mean.to(values[0])
    return taken, differ


def _check_shapes(client: str, tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    for name, value in saved.items():
        tensor = tensors.get(name)
        shape = "none of this name" if tensor is None else f"{tuple(tensor.shape)}"
        if tensor is None or tensor.shape != value.shape:
            raise ConfigError(
                f"client {client!r}: {name}: expected the shape {tuple(value.shape)}, as in the "
                f"run, found {shape}; keep it private (exchange.federated: [core] for Global "
                "Layers), or let the client have the columns and classes that are common in the "
                "run"
            )


def _whole(live: Live, taken: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the whole tensors that were taken, also if slice by slice, and the names of the
    others.
    """
    tensors = dict.fromkeys(live.tensor_of(name) for name in taken)
    counts = {tensor: live.size_of(tensor) for tensor in tensors}
    taken_of = Counter(map(live.tensor_of, taken))
    incomplete = [tensor for tensor in tensors if taken_of[tensor] < counts[tensor]]
    return {
        tensor: live.tensor(tensor).detach().clone()
        for tensor in tensors
        if tensor not in incomplete
    }, incomplete


def _freeze(client: FederatedClient, names: list[str]) -> None:
    parameters = dict(client.named_parameters(remove_duplicate=False))
    for name in names:
        if name in parameters:
            parameters[name].requires_grad_(False)
        else:  # The module of these statistics normalises by them instead of by batches.
            client.get_submodule(name.rpartition(".")[0]).register_forward_pre_hook(_evaluating)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise ConfigError(
            f"client {client.spec.name!r}: expected private parts to train, found that the whole "
            "network is federated; train all clients together, or train a run that federates a "
            "part alone, such as core"
        )


def _evaluating(module: nn.Module, _: object) -> None:
    module.eval()
