"""What a checkpoint holds and what it belongs to: the only place that decides whether it may be
resumed or scored.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedlit.errors import ConfigError, FedlitError, expect
from fedlit.exchange.rule import settings_of
from fedlit.exchange.transport import Transport
from fedlit.files import check_archive
from fedlit.names import joined
from fedlit.train.whole import LAST

if TYPE_CHECKING:
    from fedlit.client import FederatedClient
    from fedlit.train.clients import Clients


_LISTS = ("optimizer_states", "lr_schedulers")
_BY_NAME = ("clients", "encoders", "specs", "optimizers", "records")
"""The entries by client, other than tensors, that fedlit adds to a checkpoint."""


def merge(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the checkpoint that one process would write.

    Args:
        parts: the parts that processes write, each with its own clients, in the order of clients'
            names. What belongs to all clients is taken from the first part.
    """
    whole = {**parts[0], "state_dict": joined(part["state_dict"] for part in parts)}
    for key in _LISTS:
        if key in whole:
            whole[key] = list(chain.from_iterable(part[key] for part in parts))
    entries = [part["fedlit"] for part in parts]
    saved = dict(entries[0])
    for key in _BY_NAME:
        saved[key] = joined(entry[key] for entry in entries)
    stacks = [entry["stacks"] for entry in entries]
    if all(stacks):
        saved["stacks"] = {}
        for key in ("clients", "stacks"):
            saved["stacks"][key] = list(chain.from_iterable(stack[key] for stack in stacks))
    loaders = list(chain.from_iterable(map(_loaders, parts)))
    return _with_loaders({**whole, "fedlit": saved}, loaders)


def select(checkpoint: Mapping[str, Any], clients: Collection[str]) -> dict[str, Any]:
    """Return some clients' part of a checkpoint: the inverse of :func:`merge`."""
    saved = dict(checkpoint["fedlit"])
    names = sorted(saved["clients"])
    tensors = {
        key: value
        for key, value in checkpoint["state_dict"].items()
        if key.split(".")[1] in clients
    }
    part = {**checkpoint, "state_dict": tensors}  # clients.<client>.<tensor>
    for key in _LISTS:
        if key in checkpoint:
            owners = list[str]()
            for name in names:
                owners += [name] * len(saved["optimizers"][name][key])
            part[key] = [
                value
                for name, value in zip(owners, checkpoint[key], strict=True)
                if name in clients
            ]
    for key in _BY_NAME:
        saved[key] = {name: value for name, value in saved[key].items() if name in clients}
    if stacks := saved["stacks"]:
        saved["stacks"] = {
            "clients": [name for name in stacks["clients"] if name in clients],
            "stacks": [value for value in stacks["stacks"] if set(value) <= set(clients)],
        }
    loaders = zip(names, _loaders(checkpoint), strict=False)  # there are none between two epochs
    return _with_loaders(
        {**part, "fedlit": saved}, [value for name, value in loaders if name in clients]
    )


def _loaders(checkpoint: Mapping[str, Any]) -> list[Any]:
    """Return each client's position in its batches, as Lightning stores it."""
    loaders = (
        checkpoint.get("loops", {})
        .get("fit_loop", {})
        .get("state_dict", {})
        .get("combined_loader", [])
    )
    return list(loaders)


def _with_loaders(checkpoint: dict[str, Any], loaders: list[Any]) -> dict[str, Any]:
    if not _loaders(checkpoint):
        return checkpoint
    fit = checkpoint["loops"]["fit_loop"]
    state = {**fit["state_dict"], "combined_loader": loaders}
    return {
        **checkpoint,
        "loops": {**checkpoint["loops"], "fit_loop": {**fit, "state_dict": state}},
    }


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
    return (
        checkpoint if clients is None or "fedlit" not in checkpoint else select(checkpoint, clients)
    )


def save(
    checkpoint: Mapping[str, Any], group: Transport, write: Callable[[Mapping[str, Any]], Any]
) -> Any:
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
    file = io.BytesIO()
    torch.save(checkpoint, file)
    return group.decide(
        "a checkpoint",
        torch.frombuffer(file.getbuffer(), dtype=torch.uint8),
        lambda files: write(merge([_unpacked(content) for content in files])),
    )


def _unpacked(content: Tensor) -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(io.BytesIO(content.numpy().data), weights_only=True)
    return checkpoint


FORMAT = 8
"""The format of checkpoints; checkpoints of other formats are refused."""

_FREE = ("data.eval_batch_size", "data.predict")  # keys that a resumed run may change


@dataclass(frozen=True)
class Manifest:
    """What a run was trained on, and with which settings.

    Attributes:
        data: maps each client to a fingerprint of its rows, splits and labels.
        pace: how an epoch is divided into steps.
        seed: the run's seed.
        engine: the engine that executes steps; a resumed run keeps it, and also the next two.
        kernels: the kernels that compute parts of networks.
        threads: the total number of threads.
        settings: the configuration's keys and values, flat; empty for a run that was made in
            Python.
        format: see :data:`FORMAT`.
    """

    data: Mapping[str, str]
    pace: Mapping[str, Any]
    seed: int
    engine: Any
    kernels: Any
    threads: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def of(cls, federation: Clients, engine: str, kernels: str, threads: int | None) -> Manifest:
        """Make the manifest of a federation whose clients are built."""
        return cls(
            federation.fingerprints,
            federation.data.batching.to_dict(),
            federation.seed,
            engine,
            kernels,
            threads,
            {
                key: _plain(value)
                for key, value in (federation.settings or {}).items()
                if _matters(key)
            },
        )

    @classmethod
    def read(cls, checkpoint: Mapping[str, Any]) -> Manifest:
        """Make the manifest from the header of a checkpoint.

        Raises:
            ConfigError: fedlit did not write the checkpoint, or a version with another format did.
        """
        saved = checkpoint.get("fedlit")
        if saved is None:
            raise ConfigError(
                "checkpoint: expected one that fedlit wrote, found no fedlit run; use this "
                "configuration's checkpoint"
            )
        if saved.get("format") != FORMAT:
            raise ConfigError(
                f"checkpoint: expected one of format {FORMAT}, found {saved.get('format')}; read "
                "it with the version of fedlit that wrote it, or train anew"
            )
        return cls(**{entry.name: saved[entry.name] for entry in fields(cls)})

    def refuse(self, now: Manifest, *, resume: bool) -> None:
        """Refuse to continue with a checkpoint of another run.

        Args:
            now: the manifest of the run that is asked for.
            resume: whether the run is to be trained further; then its configuration must be the
                same, too.

        Raises:
            ConfigError: the clients, the seed, the rows or splits, or the steps of an epoch differ;
                when resuming, also if the configuration of data, clients or optimizers differs.
        """
        if resume and self.settings and now.settings:
            self._refuse_changes(now.settings)
        if set(self.data) != set(now.data):
            raise ConfigError(
                f"checkpoint: expected the clients {', '.join(sorted(now.data))}, found "
                f"{', '.join(sorted(self.data))}; use this configuration's checkpoint"
            )
        advice = f"set seed: {self.seed} or start a new run"
        expect(self.seed == now.seed, "checkpoint", f"seed {now.seed}", self.seed, advice)
        changed = [name for name in now.data if now.data[name] != self.data[name]]
        if changed or dict(self.pace) != dict(now.pace):
            pace = ", ".join(
                f"{name} {value}" for name, value in self.pace.items() if value is not None
            )
            difference = (
                f"other rows or splits of {', '.join(changed)}" if changed else f"data: {pace}"
            )
            raise ConfigError(
                f"checkpoint: expected one that was trained on this data, found {difference}; rows that "
                "it was trained on could be scored as test rows. Use the run's own config.yaml, "
                "or start a new run"
            )

    def _refuse_changes(self, now: Mapping[str, Any]) -> None:
        """Refuse changed settings, because a resumed run keeps its data and clients: Lightning
        would restore the old ones or, worse, use the new ones.
        """
        before = self.settings
        changed = [
            f"{key} ({before.get(key)} → {now.get(key)})"
            for key in dict.fromkeys([*before, *now])
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise ConfigError(
                "--ckpt_path: expected changes to trainer, exchange or checkpoint only, found "
                f"changed {', '.join(changed)}; a resumed run keeps its data, seed, clients and "
                "optimizers. Start a new run for others"
            )


def _matters(key: str) -> bool:
    return key.startswith(("seed", "model.", "data.")) and key not in _FREE


def _plain(value: Any) -> Any:
    """Return a value in a form that a checkpoint may hold."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def read_checkpoint(path: Path, *, resumable: bool) -> dict[str, Any]:
    """Read the header of a checkpoint, without its tensors.

    Raises:
        ConfigError: it is not a checkpoint of fedlit, is cut short, or holds too little to be
            resumed.
    """
    try:
        header = load(path)
        ours = _is_ours(header)
    except FedlitError:
        raise
    # For another program's file, torch and the checks above raise exceptions of many kinds.
    except Exception:
        ours = False
    if not ours:
        raise ConfigError(
            f"{path}: expected a checkpoint that fedlit wrote, found another file; use another one"
        )
    # The list may be empty, because not all clients take steps.
    if resumable and "optimizer_states" not in header:
        raise ConfigError(
            f"{path}: expected a full checkpoint, found weights only; resume from {LAST}"
        )
    return header


def _is_ours(header: Mapping[str, Any]) -> bool:
    """Return whether a header has the form that fedlit writes.

    Raises:
        Exception: it does not have this form; the exception may be of any kind.
    """
    saved = header["fedlit"]
    tensors = header["state_dict"]
    mappings = [saved]
    for key in ("clients", "encoders", "specs"):
        mappings += [saved[key], *saved[key].values()]
    return (
        all(isinstance(value, Mapping) for value in mappings)
        and {entry.name for entry in fields(Manifest)} <= saved.keys()
        and all(isinstance(value, Tensor) for value in tensors.values())
        and all(isinstance(header[key], int) for key in ("epoch", "global_step"))
    )


def check_tensors(saved: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> None:
    """Refuse the tensors of another network.

    Args:
        saved: maps ``clients.<client>.<tensor>`` to the checkpoint's tensor.
        current: maps the same names to the run's tensors.

    Raises:
        ConfigError: shapes or names differ; the message names the first client and tensor.
    """
    for key in [*saved, *current]:
        before, now = (tuple(side[key].shape) if key in side else None for side in (saved, current))
        if before != now:
            client, _, tensor = key.removeprefix("clients.").partition(".")
            raise ConfigError(
                f"client {client!r}: expected a checkpoint of its network, in which {tensor} is "
                f"{_shape(now)}, found that it is {_shape(before)}; set the network (width, depth) "
                "as it was, or start a new run"
            )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " × ".join(map(str, shape)) or "one number"


def optimizers_of(clients: Mapping[str, FederatedClient]) -> dict[str, dict[str, list[str]]]:
    """Return the class names of each client's optimizers and schedules, by the key of their states
    in a checkpoint.
    """
    names = {}
    for name, client in clients.items():
        schedulers = [config.scheduler for config in client._scheduler_configs]
        names[name] = {
            "optimizer_states": _class_names(client._optimizers),
            "lr_schedulers": _class_names(schedulers),
        }
    return names


def _class_names(values: Iterable[Any]) -> list[str]:
    return [type(value).__name__ for value in values]


def check_optimizers(
    saved: Mapping[str, Mapping[str, list[str]]], now: Mapping[str, Mapping[str, list[str]]]
) -> None:
    """Refuse the state of other optimizers, which torch would load without complaint.

    Args:
        saved: the result of :func:`optimizers_of` for the checkpoint.
        now: its result for the run.

    Raises:
        ConfigError: a client has optimizers of other classes, or another number of them; the
            message names the client.
    """
    for client, classes in now.items():
        expected = classes["optimizer_states"]
        saved_classes = saved[client]["optimizer_states"]
        if expected != saved_classes:
            raise ConfigError(
                f"client {client!r}: expected a checkpoint of its optimizer "
                f"({', '.join(expected) or 'none'}), found one of another "
                f"({', '.join(saved_classes) or 'none'}); set the optimizer as it was, or start a new run"
            )


def check_rule(checkpoint: Mapping[str, Any], exchange: Any) -> None:
    """Refuse to continue with another rule.

    Args:
        checkpoint: the checkpoint that is to be resumed.
        exchange: the exchange of the run; its rule is not changed.

    Raises:
        ConfigError: the rule or its settings differ; the message names both.
    """
    saved = checkpoint.get("callbacks", {}).get(exchange.state_key, {})
    before = saved.get("rule_is")
    now = settings_of(exchange.rule)
    if before not in (None, now):  # without exchanges nothing is said
        raise ConfigError(
            f"exchange.rule: expected a checkpoint of {now}, found one of {before}; set the rule "
            "as it was, or start a new run"
        )


_PLAIN = (type(None), bool, int, float, str, bytes, Tensor, torch.nn.Parameter)


def check_state(client: str, state: Mapping[str, Any]) -> None:
    """Refuse values that could be written to a checkpoint but not read back.

    Raises:
        ConfigError: a value is of a class that torch does not load from an untrusted file; the
            message names its key.
    """
    for key, value in state.items():
        if not _is_plain(value):
            raise ConfigError(
                f"client {client!r}: state[{key!r}]: expected tensors, numbers, strings, and "
                f"lists, tuples or dictionaries of them, found {type(value).__name__} or such a "
                "thing within; convert it, for instance by float(value), list(value) or "
                "torch.as_tensor(value)"
            )


def _is_plain(value: Any) -> bool:
    if type(value) in (dict, OrderedDict):  # as state_dict gives it
        return all(type(key) in _PLAIN and _is_plain(item) for key, item in value.items())
    return all(map(_is_plain, value)) if type(value) in (list, tuple) else type(value) in _PLAIN
