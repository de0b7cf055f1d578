"""What a checkpoint holds and what it belongs to: the only place that decides whether it may be
resumed or scored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedlit.engine.base import EngineName
from fedlit.errors import ConfigError, FedlitError, expect
from fedlit.exchange.rule import settings_of
from fedlit.nn.native import Kernels
from fedlit.train.checkpoint_file import CheckpointContent, ManifestEntry, OptimizerNames, load
from fedlit.train.whole import LAST

if TYPE_CHECKING:
    from fedlit.client import FederatedClient
    from fedlit.exchange.exchange import Exchange
    from fedlit.train.clients import Clients


FORMAT = 9
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
    pace: Mapping[str, object]
    seed: int
    engine: EngineName
    kernels: Kernels
    threads: int | None
    settings: Mapping[str, object] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def of(
        cls, federation: Clients, engine: EngineName, kernels: Kernels, threads: int | None
    ) -> Manifest:
        """Make the manifest of a federation whose clients are built."""
        settings = federation.settings or {}
        return cls(
            federation.fingerprints,
            federation.data.batching.to_dict(),
            federation.seed,
            engine,
            kernels,
            threads,
            {key: _plain(value) for key, value in settings.items() if _matters(key)},
        )

    @classmethod
    def read(cls, checkpoint: CheckpointContent) -> Manifest:
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
        return cls(
            data=saved["data"],
            pace=saved["pace"],
            seed=saved["seed"],
            engine=saved["engine"],
            kernels=saved["kernels"],
            threads=saved["threads"],
            settings=saved["settings"],
        )

    def to_dict(self) -> ManifestEntry:
        """Return the manifest as a checkpoint holds it."""
        return {
            "data": dict(self.data),
            "pace": dict(self.pace),
            "seed": self.seed,
            "engine": self.engine,
            "kernels": self.kernels,
            "threads": self.threads,
            "settings": dict(self.settings),
            "format": self.format,
        }

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
            pace = [f"{name} {value}" for name, value in self.pace.items() if value is not None]
            difference = f"data: {', '.join(pace)}"
            if changed:
                difference = f"other rows or splits of {', '.join(changed)}"
            raise ConfigError(
                f"checkpoint: expected one that was trained on this data, found {difference}; rows that "
                "it was trained on could be scored as test rows. Use the run's own config.yaml, "
                "or start a new run"
            )

    def _refuse_changes(self, now: Mapping[str, object]) -> None:
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


def _plain(value: object) -> object:
    """Return a value in a form that a checkpoint may hold."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | int | float | str | None):
        return value
    return str(value)


def read_checkpoint(path: Path, *, resumable: bool) -> CheckpointContent:
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


def _is_ours(header: CheckpointContent) -> bool:
    """Return whether a header has the form that fedlit writes.

    Raises:
        Exception: it does not have this form; the exception may be of any kind.
    """
    saved = header["fedlit"]
    tensors = header["state_dict"]
    by_client: list[object] = []
    for entries in (saved["clients"], saved["encoders"], saved["specs"]):
        by_client += [entries, *entries.values()]
    return (
        all(isinstance(value, Mapping) for value in (saved, *by_client))
        and {entry.name for entry in fields(Manifest)} <= saved.keys()
        and all(isinstance(value, Tensor) for value in tensors.values())
        and isinstance(header["epoch"], int)
        and isinstance(header["global_step"], int)
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
        before = _shape(saved.get(key))
        now = _shape(current.get(key))
        if before != now:
            client, _, tensor = key.removeprefix("clients.").partition(".")
            raise ConfigError(
                f"client {client!r}: expected a checkpoint of its network, in which {tensor} is "
                f"{now}, found that it is {before}; set the network (width, depth) "
                "as it was, or start a new run"
            )


def _shape(tensor: Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return " × ".join(map(str, tensor.shape)) or "one number"


def optimizers_of(clients: Mapping[str, FederatedClient]) -> dict[str, OptimizerNames]:
    """Return the class names of each client's optimizers and schedules, by the key of their states
    in a checkpoint.
    """
    names: dict[str, OptimizerNames] = {}
    for name, client in clients.items():
        schedulers = [config.scheduler for config in client._scheduler_configs]
        names[name] = {
            "optimizer_states": _class_names(client._optimizers),
            "lr_schedulers": _class_names(schedulers),
        }
    return names


def _class_names(values: Iterable[object]) -> list[str]:
    return [type(value).__name__ for value in values]


def check_optimizers(
    saved: Mapping[str, OptimizerNames], now: Mapping[str, OptimizerNames]
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


def check_rule(checkpoint: CheckpointContent, exchange: Exchange) -> None:
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
    if before not in (None, now):  # A federation without exchanges records no rule.
        raise ConfigError(
            f"exchange.rule: expected a checkpoint of {now}, found one of {before}; set the rule "
            "as it was, or start a new run"
        )


_PLAIN = (type(None), bool, int, float, str, bytes, Tensor, torch.nn.Parameter)


def check_state(client: str, state: Mapping[str, object]) -> None:
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


def _is_plain(value: object) -> bool:
    if isinstance(value, dict) and type(value) in (dict, OrderedDict):
        return all(type(key) in _PLAIN and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN
