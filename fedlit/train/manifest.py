"""What a checkpoint is of: the one place that says whether it may be resumed, or scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.errors import ConfigError, FedlitError
from fedlit.train.whole import LAST, PREVIOUS

if TYPE_CHECKING:
    from fedlit.train.federation import Federation

__all__ = ["FORMAT", "LAST", "PREVIOUS", "Manifest", "read_checkpoint"]

FORMAT = 6
"""Of checkpoints; others are refused."""

_FREE = ("data.eval_batch_size", "data.predict")  # keys that a resumed run may change


@dataclass(frozen=True)
class Manifest:
    """What a run was trained on and with.

    Attributes:
        data: client → fingerprint of its rows, splits and labels.
        pace: how an epoch is cut into steps.
        seed: the run's.
        engine: how steps are executed; a resumed run keeps it, as it keeps the next two.
        kernels: what computes networks' parts.
        threads: in all.
        settings: the configuration's keys and values, flat; empty for a run that was made in Python.
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
    def of(cls, federation: Federation, engine: str, kernels: str, threads: int | None) -> Manifest:
        """Of a federation whose clients are built."""
        return cls(
            federation.fingerprints,
            federation.data.batching.to_dict(),
            federation.seed,
            engine,
            kernels,
            threads,
            {key: _plain(value) for key, value in (federation.settings or {}).items() if _matters(key)},
        )

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @classmethod
    def read(cls, checkpoint: Mapping[str, Any]) -> Manifest:
        """Of a checkpoint that is read.

        Raises:
            ConfigError: fedlit did not write it, or a version with another format did.
        """
        saved = checkpoint.get("fedlit")
        if saved is None:
            raise ConfigError(
                "checkpoint: expected one that fedlit wrote, found no fedlit run; use this configuration's checkpoint"
            )
        if saved.get("format") != FORMAT:
            raise ConfigError(
                f"checkpoint: expected one of format {FORMAT}, found {saved.get('format')}; read it with the "
                "version of fedlit that wrote it, or train anew"
            )
        return cls(**{own.name: saved[own.name] for own in fields(cls)})

    def refuse(self, now: Manifest, *, resume: bool) -> None:
        """Refuse to go on with a checkpoint of another run.

        Args:
            now: of the run that is asked for.
            resume: whether it is to be trained further: then it must be configured alike, too.

        Raises:
            ConfigError: other clients, another seed, other rows or splits, other steps of an epoch; when resuming,
                another configuration of data, clients or optimizers.
        """
        if resume and self.settings and now.settings:
            self._refuse_changes(now.settings)
        if set(self.data) != set(now.data):
            raise ConfigError(
                f"checkpoint: expected the clients {', '.join(sorted(now.data))}, found "
                f"{', '.join(sorted(self.data))}; use this configuration's checkpoint"
            )
        if self.seed != now.seed:
            raise ConfigError(
                f"checkpoint: expected seed {now.seed}, found {self.seed}; set seed: {self.seed} or start a new run"
            )
        changed = [name for name in now.data if now.data[name] != self.data[name]]
        if changed or dict(self.pace) != dict(now.pace):
            pace = ", ".join(f"{name} {value}" for name, value in self.pace.items() if value is not None)
            what = f"other rows or splits of {', '.join(changed)}" if changed else f"data: {pace}"
            raise ConfigError(
                f"checkpoint: expected one that was trained on this data, found {what}; rows that it was "
                "trained on could be scored as test rows. Use the run's own config.yaml, or start a new run"
            )

    def _refuse_changes(self, now: Mapping[str, Any]) -> None:
        """A resumed run keeps what it was trained on and with: Lightning would restore it or, worse, take the new
        one.
        """
        before = self.settings
        changed = [
            f"{key} ({before.get(key)} → {now.get(key)})"
            for key in dict.fromkeys([*before, *now])
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise ConfigError(
                "--ckpt_path: expected changes to trainer, exchange or checkpoint only, found changed "
                f"{', '.join(changed)}; a resumed run keeps its data, seed, clients and optimizers. Start a new "
                "run for others"
            )


def _matters(key: str) -> bool:
    return key.startswith(("seed", "model.", "data.")) and key not in _FREE


def _plain(value: Any) -> Any:
    """As a checkpoint may hold it."""
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def read_checkpoint(path: Path, *, resumable: bool) -> dict[str, Any]:
    """What a checkpoint says of itself, without reading its tensors.

    Raises:
        ConfigError: it is no checkpoint of fedlit, is cut short, or holds too little to be resumed.
    """
    from fedlit.train.parts import load

    try:
        header = load(path)
        found = "no run of fedlit" if "fedlit" not in header else ""
    except FedlitError:
        raise
    except Exception as error:  # torch raises many kinds for a damaged file
        found = f"a file that cannot be read ({type(error).__name__})"
    if found:
        raise ConfigError(f"{path}: expected a file that fedlit wrote, found {found}; use another one")
    if resumable and "optimizer_states" not in header:  # it may be empty: not all clients take steps
        raise ConfigError(f"{path}: expected a full checkpoint, found weights only; resume from {LAST}")
    if not _is_ours(header):
        raise ConfigError(f"{path}: expected a file that fedlit wrote, found one of another form; use another one")
    return header


def _is_ours(header: Mapping[str, Any]) -> bool:
    """Whether it has the form that fedlit writes, whoever wrote it."""
    from torch import Tensor

    saved, tensors = header["fedlit"], header.get("state_dict")
    return (
        isinstance(saved, Mapping)
        and {own.name for own in fields(Manifest)} <= saved.keys()
        and all(
            isinstance(own, Mapping)
            for key in ("clients", "encoders", "specs")
            for own in ([saved[key], *saved[key].values()] if isinstance(saved.get(key), Mapping) else [saved.get(key)])
        )
        and isinstance(tensors, Mapping)
        and all(isinstance(own, Tensor) for own in tensors.values())
        and all(isinstance(header.get(key), int) for key in ("epoch", "global_step"))
    )
