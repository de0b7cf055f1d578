"""A checkpoint of clients that several processes train: a file with the parts of all, from which each reads its own."""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedlit.exchange.transport import Transport
from fedlit.files import check_archive

_LISTS = ("optimizer_states", "lr_schedulers")
_BY_NAME = ("clients", "encoders", "specs", "optimizers", "records")
"""The entries by client, other than tensors, that fedlit adds to a checkpoint."""


def merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the checkpoint that one process would write.

    Args:
        parts: the parts that processes write, each with its own clients, in the order of clients' names. What belongs
            to all clients is taken from the first part.
    """
    whole = {**parts[0], "state_dict": {key: own for part in parts for key, own in part["state_dict"].items()}}
    for key in _LISTS:
        if key in whole:
            whole[key] = [own for part in parts for own in part[key]]
    every = [part["fedlit"] for part in parts]
    saved = dict(every[0])
    for key in _BY_NAME:
        saved[key] = {name: own for one in every for name, own in one[key].items()}
    stacks = [one["stacks"] for one in every]
    if all(stacks):
        saved["stacks"] = {key: [own for one in stacks for own in one[key]] for key in ("clients", "stacks")}
    return _with_loaders({**whole, "fedlit": saved}, [own for part in parts for own in _loaders(part)])


def select(checkpoint: Mapping[str, Any], clients: Collection[str]) -> dict[str, Any]:
    """Return some clients' part of a checkpoint: the inverse of :func:`merge`."""
    saved = dict(checkpoint["fedlit"])
    names = sorted(saved["clients"])
    tensors = {key: own for key, own in checkpoint["state_dict"].items() if key.split(".")[1] in clients}
    part = {**checkpoint, "state_dict": tensors}  # clients.<client>.<tensor>
    for key in _LISTS:
        if key in checkpoint:
            owners = [name for name in names for _ in saved["optimizers"][name][key]]
            part[key] = [own for name, own in zip(owners, checkpoint[key], strict=True) if name in clients]
    for key in _BY_NAME:
        saved[key] = {name: own for name, own in saved[key].items() if name in clients}
    if stacks := saved["stacks"]:
        saved["stacks"] = {
            "clients": [name for name in stacks["clients"] if name in clients],
            "stacks": [own for own in stacks["stacks"] if set(own) <= set(clients)],
        }
    loaders = zip(names, _loaders(checkpoint), strict=False)  # there are none between two epochs
    return _with_loaders({**part, "fedlit": saved}, [own for name, own in loaders if name in clients])


def _loaders(checkpoint: Mapping[str, Any]) -> list[Any]:
    """Return each client's position in its batches, as Lightning stores it."""
    found = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}).get("combined_loader", [])
    return list(found)


def _with_loaders(checkpoint: dict[str, Any], loaders: list[Any]) -> dict[str, Any]:
    if not _loaders(checkpoint):
        return checkpoint
    fit = checkpoint["loops"]["fit_loop"]
    state = {**fit["state_dict"], "combined_loader": loaders}
    return {**checkpoint, "loops": {**checkpoint["loops"], "fit_loop": {**fit, "state_dict": state}}}


def load(path: Path, clients: Collection[str] | None = None) -> dict[str, Any]:
    """Return a checkpoint, whichever processes wrote it. Tensors are read when they are used.

    Args:
        path: the file.
        clients: the clients whose part is wanted; all if None.

    Raises:
        ConfigError: the file is damaged.
    """
    check_archive(path)
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return checkpoint if clients is None or "fedlit" not in checkpoint else select(checkpoint, clients)


def save(checkpoint: Mapping[str, Any], group: Transport, write: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Let the first of several processes write a checkpoint. All wait until it is written.

    Args:
        checkpoint: the checkpoint of the clients of this process.
        group: the processes; all of them call this function.
        write: writes a checkpoint of all clients.

    Returns:
        What ``write`` returned, at each of them.
    """
    if group.size == 1:
        return write(checkpoint)
    own = io.BytesIO()
    torch.save(checkpoint, own)
    return group.decide(
        "a checkpoint",
        torch.frombuffer(own.getbuffer(), dtype=torch.uint8),
        lambda told: write(merge([torch.load(io.BytesIO(one.numpy()), weights_only=True) for one in told])),
    )
