"""A checkpoint in parts: one file a client, which its process writes, and a head that names them.

The head is written last: a run that is killed before leaves the previous one whole. Whoever reads a checkpoint does it
by :func:`load`, which puts parts together, of as many clients as are asked for, so that a run can go on with another
number of processes. A run of one process keeps one file.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fedlit.checksums import check, write
from fedlit.errors import ConfigError
from fedlit.exchange.transport import Group
from fedlit.train.whole import LAST, PREVIOUS

__all__ = ["SHARDED", "check_all", "discard_parts", "join", "load", "save", "split"]

SHARDED = 5
"""The format of heads (see :data:`fedlit.train.manifest.FORMAT`)."""

_LISTS = ("optimizer_states", "lr_schedulers")
_BY_NAME = ("clients", "encoders", "specs")  # beside tensors, in what fedlit adds to a checkpoint


def split(checkpoint: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What belongs to all, and client → what is its own.

    Args:
        checkpoint: as one process writes it, of some or all clients.

    Raises:
        ConfigError: a checkpoint of an earlier version, which does not say whose optimizers are whose.
    """
    saved = checkpoint["fedlit"]
    names = sorted(saved["clients"])
    counts = _counts(checkpoint, names)
    parts: dict[str, dict[str, Any]] = {name: {"state_dict": {}} for name in names}
    for key, value in checkpoint["state_dict"].items():
        parts[key.split(".")[1]]["state_dict"][key] = value  # clients.<client>.<tensor>
    for place, key in enumerate(_LISTS):
        if key in checkpoint:
            left = iter(checkpoint[key])
            for name in names:
                parts[name][key] = [next(left) for _ in range(counts[name][place])]
    personal = saved.get("personal") or {}
    loaders = _loaders(checkpoint)
    for place, name in enumerate(names):
        own = {key: saved[key][name] for key in _BY_NAME if name in saved.get(key, ())}
        own["counts"] = counts[name]
        if name in personal.get("own", ()):
            own["personal"] = personal["own"][name]
        parts[name]["fedlit"] = own
        if loaders:
            parts[name]["loader"] = loaders[place]
    head = {key: value for key, value in checkpoint.items() if key not in (*_LISTS, "state_dict")}
    head["fedlit"] = {key: value for key, value in saved.items() if key not in (*_BY_NAME, "counts")}
    if personal:
        head["fedlit"]["personal"] = {**personal, "own": {}}
    return _with_loaders(head, []), parts


def join(head: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The inverse of :func:`split`, of the clients whose parts are given."""
    names = sorted(parts)
    whole = {**head, "state_dict": {key: own for name in names for key, own in parts[name]["state_dict"].items()}}
    for key in _LISTS:
        if all(key in parts[name] for name in names):
            whole[key] = [own for name in names for own in parts[name][key]]
    saved = dict(head["fedlit"])
    for key in _BY_NAME:
        if found := {name: parts[name]["fedlit"][key] for name in names if key in parts[name]["fedlit"]}:
            saved[key] = found
    saved["counts"] = {name: parts[name]["fedlit"]["counts"] for name in names}
    if saved.get("personal"):
        kept = {name: parts[name]["fedlit"]["personal"] for name in names if "personal" in parts[name]["fedlit"]}
        saved["personal"] = {**saved["personal"], "own": kept}
    if saved.get("stacks"):
        stacks = saved["stacks"]
        saved["stacks"] = {
            "clients": [name for name in stacks["clients"] if name in parts],
            "stacks": [own for own in stacks["stacks"] if set(own) <= set(parts)],
        }
    whole["fedlit"] = saved
    loaders = [parts[name]["loader"] for name in names if "loader" in parts[name]]
    return _with_loaders(whole, loaders) if loaders else whole


def _counts(checkpoint: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Client → how many optimizers and schedules it has."""
    if known := checkpoint["fedlit"].get("counts"):
        return dict(known)
    lengths = [len(checkpoint.get(key, ())) for key in _LISTS]
    if any(length not in (0, len(names)) for length in lengths):
        raise ConfigError(
            "checkpoint: expected one that says whose optimizers are whose, found one of an earlier version with "
            f"{lengths[0]} optimizers of {len(names)} clients; resume it in one process"
        )
    return {name: [length // len(names) for length in lengths] for name in names}


def _loaders(checkpoint: Mapping[str, Any]) -> list[Any]:
    """Where in an epoch each client's batches are; Lightning's name for it."""
    found = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}).get("combined_loader", [])
    return list(found)


def _with_loaders(checkpoint: dict[str, Any], loaders: list[Any]) -> dict[str, Any]:
    if "combined_loader" not in checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}):
        return checkpoint
    fit = checkpoint["loops"]["fit_loop"]
    state = {**fit["state_dict"], "combined_loader": loaders}
    return {**checkpoint, "loops": {**checkpoint["loops"], "fit_loop": {**fit, "state_dict": state}}}


# ---------------------------------------------------------------------- files


def load(path: Path, clients: Collection[str] | None = None) -> dict[str, Any]:
    """A checkpoint, whole, whoever wrote it. Tensors are read when they are used.

    Args:
        path: of a file, or of a head whose parts lie beside it.
        clients: whose parts are wanted; all if None.

    Raises:
        ConfigError: it is damaged, or a part is, is missing, or is one of another checkpoint.
    """
    check(path)
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    shards = checkpoint.get("fedlit", {}).pop("shards", None)
    if shards is None:
        if clients is None or "fedlit" not in checkpoint:
            return checkpoint
        head, parts = split(checkpoint)
        return join(head, {name: part for name, part in parts.items() if name in clients})
    checkpoint["fedlit"]["format"] = checkpoint["fedlit"].pop("format_of_parts")
    wanted = [name for name in shards["clients"] if clients is None or name in clients]
    return join(checkpoint, {name: _part(path, shards["token"], name) for name in wanted})


def check_all(path: Path) -> None:
    """Refuse a checkpoint of which anything is damaged or missing; reads it, and keeps nothing.

    Raises:
        ConfigError: what :func:`load` says.
        FileNotFoundError: there is none.
    """
    check(path)
    if _folder(path).is_dir():
        load(path)


def _part(path: Path, token: str, name: str) -> dict[str, Any]:
    """A client's part, which lies where the head's own name says: both may be renamed together."""
    file = _folder(path) / token / f"{name}.pt"
    try:
        check(file)
        part: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        found = "" if part["fedlit"]["token"] == token else f"one of another checkpoint ({part['fedlit']['token']})"
    except FileNotFoundError:
        found = "none"
    except ConfigError:
        found = "a damaged file, or one cut short"
    except Exception:  # torch raises many kinds for a damaged file
        found = "a file that cannot be read"
    if found:
        raise ConfigError(
            f"{path}: expected the part of client {name!r} in {file}, found {found}; a checkpoint of several processes "
            f"is this file and the folder {_folder(path).name} beside it: copy, move and rename both together"
        )
    return part


def save(checkpoint: Mapping[str, Any], path: Path, group: Group) -> None:
    """Write a checkpoint; of several processes all do so at once, and make one in parts. The last checkpoint that was
    there before is kept as the one before.

    Args:
        checkpoint: of the clients here.
        path: of the file, or of the head.
        group: the processes; its first draws what the head and its parts are known by.

    Raises:
        OSError: the disk is full, say; what was there before is still there.
    """
    before = path.with_name(PREVIOUS) if path.name == LAST else None
    if group.size == 1:
        write(checkpoint, path, before)
        discard_parts(path, but=[_token(before)] if before is not None and _folder(path).is_dir() else ())
        return
    head, parts = split(checkpoint)
    token = group.first("a checkpoint", f"{checkpoint['global_step']}-{secrets.token_hex(8)}")
    place = _folder(path) / token
    place.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        part["fedlit"]["token"] = token
        write(part, place / f"{name}.pt")
    stacks = head["fedlit"].get("stacks")
    own = {"clients": list(parts), "stacks": stacks}
    told = group.gather("parts of a checkpoint", own)  # nobody goes on before all parts stand
    if group.rank == 0:
        saved = head["fedlit"]
        saved["shards"] = {"token": token, "clients": [name for one in told for name in one["clients"]]}
        saved["format_of_parts"], saved["format"] = saved["format"], SHARDED
        if all(one["stacks"] for one in told):
            saved["stacks"] = {
                key: [value for one in told for value in one["stacks"][key]] for key in ("clients", "stacks")
            }
        write(head, path, before)
        discard_parts(path, but=[token, *([_token(before)] if before is not None else [])])
    group.gather("the head of a checkpoint", None)  # the head stands, and it is the new one everywhere


def discard_parts(path: Path, but: Collection[str | None] = ()) -> None:
    """Remove parts that no head names: those of earlier ones, and of writings that were cut short."""
    for old in _folder(path).glob("*"):
        if old.name not in but:
            shutil.rmtree(old, ignore_errors=True)
    with suppress(OSError):  # not empty, or not there
        _folder(path).rmdir()


def _token(head: Path) -> str | None:
    """By what a head's parts are known; None where there is no such head, or it has none."""
    with suppress(FileNotFoundError, ConfigError):
        check(head)
        found = torch.load(head, map_location="cpu", weights_only=True, mmap=True)["fedlit"].get("shards")
        return None if found is None else str(found["token"])
    return None


def _folder(path: Path) -> Path:
    """Where a head's parts lie; those of the last one and of the one before it lie together."""
    return path.with_name(f"{LAST if path.name == PREVIOUS else path.name}.parts")
