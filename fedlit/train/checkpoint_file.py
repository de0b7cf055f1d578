"""The file of a checkpoint: what it holds, and how the parts of several processes become one
file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, cast

import torch
from torch import Tensor

from fedlit.engine.base import EngineName
from fedlit.engine.stacked import SharedStacks
from fedlit.exchange.transport import Transport
from fedlit.files import check_archive
from fedlit.names import joined
from fedlit.nn.native import Kernels
from fedlit.train.packing import packed, unpacked

_Value = TypeVar("_Value")
_Result = TypeVar("_Result")


class ClientEntry(TypedDict):
    """What a client remembers beside its tensors; its hooks may add to it."""

    state: dict[str, Any]
    steps_taken: int


class OptimizerNames(TypedDict):
    """The class names of a client's optimizers and schedules."""

    optimizer_states: list[str]
    lr_schedulers: list[str]


class PersonalState(TypedDict, total=False):
    """How far the personal phase of a run is; empty for a run without one."""

    tuning: bool
    done: bool
    _epochs: int


class EndingState(TypedDict):
    """How far a run is from its end (see :class:`fedlit.train.stop.Ending`)."""

    planned: int | None
    epochs: int
    best: float
    best_epoch: int
    best_means: dict[str, float]
    waited: int
    federated: int
    early: bool
    reason: str
    asked: bool


class ManifestEntry(TypedDict):
    """What a run was trained on; see :class:`~fedlit.train.manifest.Manifest`."""

    data: Mapping[str, str]
    pace: Mapping[str, object]
    seed: int
    engine: EngineName
    kernels: Kernels
    threads: int | None
    settings: Mapping[str, object]
    format: int


class Entry(ManifestEntry):
    """What fedlit adds to a checkpoint of Lightning."""

    clients: dict[str, ClientEntry]
    stacks: SharedStacks | None
    encoders: dict[str, Mapping[str, Any]]
    specs: dict[str, Mapping[str, Any]]
    personal: PersonalState
    records: dict[str, dict[str, Any]]
    ending: EndingState
    agreement: dict[str, Any] | None
    findings: list[dict[str, Any]]
    optimizers: dict[str, OptimizerNames]


_ListKey = Literal["optimizer_states", "lr_schedulers"]
_LISTS: tuple[_ListKey, ...] = ("optimizer_states", "lr_schedulers")

CheckpointContent = TypedDict(
    "CheckpointContent",
    {
        "epoch": int,
        "global_step": int,
        "pytorch-lightning_version": str,
        "state_dict": dict[str, Tensor],
        "optimizer_states": list[dict[str, Any]],
        "lr_schedulers": list[dict[str, Any]],
        "loops": dict[str, dict[str, Any]],
        "callbacks": dict[str, dict[str, Any]],
        "fedlit": Entry,
    },
    total=False,
)
"""A checkpoint of Lightning with fedlit's entry. One with weights only has no states of optimizers;
one that Lightning wrote without fedlit has no entry.
"""


def content_of(checkpoint: dict[str, Any]) -> CheckpointContent:
    """Return a checkpoint that Lightning hands on, with the types of its entries."""
    return cast("CheckpointContent", checkpoint)


def merge(parts: Sequence[CheckpointContent]) -> CheckpointContent:
    """Return the checkpoint that one process would write.

    Args:
        parts: the parts that processes write, each with its own clients, in the order of clients'
            names. What belongs to all clients is taken from the first part.
    """
    tensors = joined(part["state_dict"] for part in parts)
    whole: CheckpointContent = {**parts[0], "state_dict": tensors}
    for key in _LISTS:
        if key in whole:
            whole[key] = list(chain.from_iterable(part[key] for part in parts))
    entries = [part["fedlit"] for part in parts]
    whole["fedlit"] = {
        **entries[0],
        "clients": joined(entry["clients"] for entry in entries),
        "encoders": joined(entry["encoders"] for entry in entries),
        "specs": joined(entry["specs"] for entry in entries),
        "optimizers": joined(entry["optimizers"] for entry in entries),
        "records": joined(entry["records"] for entry in entries),
        "stacks": _merge_stacks([entry["stacks"] for entry in entries]),
    }
    loaders = list(chain.from_iterable(map(_loaders, parts)))
    return _with_loaders(whole, loaders)


def _merge_stacks(parts: Sequence[SharedStacks | None]) -> SharedStacks | None:
    stacks = [part for part in parts if part]
    if len(stacks) < len(parts):
        return parts[0]
    return {
        "clients": list(chain.from_iterable(part["clients"] for part in stacks)),
        "stacks": list(chain.from_iterable(part["stacks"] for part in stacks)),
        "leavers": list(chain.from_iterable(part["leavers"] for part in stacks)),
        "findings": list(chain.from_iterable(part["findings"] for part in stacks)),
    }


def select(checkpoint: CheckpointContent, clients: Collection[str]) -> CheckpointContent:
    """Return some clients' part of a checkpoint: the inverse of :func:`merge`."""
    entry = checkpoint["fedlit"]
    names = sorted(entry["clients"])
    tensors = {}
    for key, value in checkpoint["state_dict"].items():
        _, client, _ = key.split(".", 2)  # clients.<client>.<tensor>
        if client in clients:
            tensors[key] = value
    part: CheckpointContent = {**checkpoint, "state_dict": tensors}
    for key in _LISTS:
        if key in checkpoint:
            owners = list[str]()
            for name in names:
                owners += [name] * len(entry["optimizers"][name][key])
            states = zip(owners, checkpoint[key], strict=True)
            part[key] = [state for name, state in states if name in clients]
    part["fedlit"] = {
        **entry,
        "clients": _of(entry["clients"], clients),
        "encoders": _of(entry["encoders"], clients),
        "specs": _of(entry["specs"], clients),
        "optimizers": _of(entry["optimizers"], clients),
        "records": _of(entry["records"], clients),
        "stacks": _select_stacks(entry["stacks"], clients),
    }
    loaders = zip(names, _loaders(checkpoint), strict=False)  # There are none between two epochs.
    return _with_loaders(part, [loader for name, loader in loaders if name in clients])


def _of(values: Mapping[str, _Value], clients: Collection[str]) -> dict[str, _Value]:
    return {name: value for name, value in values.items() if name in clients}


def _select_stacks(stacks: SharedStacks | None, clients: Collection[str]) -> SharedStacks | None:
    if not stacks:
        return stacks
    return {
        "clients": [name for name in stacks["clients"] if name in clients],
        "stacks": [stack for stack in stacks["stacks"] if set(stack) <= set(clients)],
        "leavers": [name for name in stacks["leavers"] if name in clients],
        "findings": [
            finding
            for finding in stacks["findings"]
            if not {*clients}.isdisjoint(finding["clients"])
        ],
    }


def _loaders(checkpoint: CheckpointContent) -> list[object]:
    """Return each client's position in its batches, as Lightning stores it."""
    fit = checkpoint.get("loops", {}).get("fit_loop", {})
    return list(fit.get("state_dict", {}).get("combined_loader", []))


def _with_loaders(checkpoint: CheckpointContent, loaders: list[object]) -> CheckpointContent:
    if not _loaders(checkpoint):
        return checkpoint
    fit = checkpoint["loops"]["fit_loop"]
    state = {**fit["state_dict"], "combined_loader": loaders}
    loops = {**checkpoint["loops"], "fit_loop": {**fit, "state_dict": state}}
    return {**checkpoint, "loops": loops}


def load(path: Path, clients: Collection[str] | None = None) -> CheckpointContent:
    """Return a checkpoint, whichever processes wrote it. Tensors are read when they are used.

    Args:
        path: the file.
        clients: the clients whose part is wanted; all if None.

    Raises:
        ConfigError: the file is damaged.
    """
    check_archive(path)
    content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    checkpoint = content_of(unpacked(content))
    if clients is None or "fedlit" not in checkpoint:
        return checkpoint
    return select(checkpoint, clients)


def save(
    checkpoint: CheckpointContent, group: Transport, write: Callable[[dict[str, Any]], _Result]
) -> _Result:
    """Let the first of several processes write a checkpoint. All wait until it is written.

    Args:
        checkpoint: the checkpoint of the clients of this process.
        group: the processes; all of them call this function.
        write: writes a checkpoint of all clients, which is packed (:mod:`fedlit.train.packing`).

    Returns:
        What ``write`` returned, at each of them.
    """
    if group.size == 1:
        return write(packed(checkpoint))
    file = io.BytesIO()
    torch.save(packed(checkpoint), file)
    return group.decide(
        "a checkpoint",
        torch.frombuffer(file.getbuffer(), dtype=torch.uint8),
        lambda files: write(packed(merge([_unpacked(content) for content in files]))),
    )


def _unpacked(content: Tensor) -> CheckpointContent:
    return content_of(unpacked(torch.load(io.BytesIO(content.numpy().data), weights_only=True)))
