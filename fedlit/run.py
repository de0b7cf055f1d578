"""A run: a federation, its data, its exchange, its folder. What the command line does, from Python."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar

from fedlit.callbacks import Board, Checkpoints, Exchange, Progress
from fedlit.callbacks.checkpoint import LAST, AtomicCheckpointIO
from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError
from fedlit.logger import FederatedTensorBoardLogger
from fedlit.loop import FederatedLoop
from fedlit.plan import Plan, make_plan
from fedlit.results import Results

__all__ = ["Run", "newest_run"]


def newest_run(root: Path, name: str) -> Path | None:
    """The newest ``version_<n>`` folder of a name that has a checkpoint to go on from."""
    folders = [path for path in (root / name).glob("version_*") if (path / "checkpoints" / LAST).is_file()]
    return max(folders, key=lambda path: int(path.name.removeprefix("version_")), default=None)


def _new_folder(root: Path, name: str) -> Path:
    """Make the next ``version_<n>``; two processes that start at once get two."""
    parent = root / name
    parent.mkdir(parents=True, exist_ok=True)
    taken = [
        int(path.name.removeprefix("version_"))
        for path in parent.glob("version_*")
        if path.name.removeprefix("version_").isdigit()
    ]
    number = max(taken, default=-1) + 1
    while True:
        try:
            (parent / f"version_{number}").mkdir()
            return parent / f"version_{number}"
        except FileExistsError:
            number += 1


class Run:
    """Trains, scores and predicts with one federation.

    Everything that a run writes goes to ``<root>/<name>/version_<n>/``: the resolved configuration, TensorBoard
    events (one run per client), ``checkpoints/``, ``test.csv``, ``test.json``, ``predictions/``. ``fit`` makes a new
    folder unless it resumes; the other commands use the newest run of that name, and say which.

    Args:
        loop: the clients and how they are stepped.
        data: their tables.
        exchange: what they exchange; nothing if None.
        name: the folder of this configuration's runs.
        root: the folder of all runs.
        checkpoints: which checkpoints are kept.
        settings: keys and values to show as hyperparameters.
        config_text: the resolved configuration, written to ``config.yaml``.
        trainer: further arguments of Lightning's Trainer, such as ``max_epochs``, ``accelerator``, ``precision``,
            ``callbacks``.

    Example:
        >>> from functools import partial
        >>> from fedlit.client import FederatedClient
        >>> from fedlit.data.sources import Bundled
        >>> from fedlit.nn import MLP
        >>> loop = FederatedLoop(partial(FederatedClient, network=MLP), seed=8)
        >>> run = Run(loop, FederatedData(Bundled(), batches=4, seed=8), Exchange(["core"]), max_epochs=2)
        >>> run.describe().clients["wine"]["federated"]
        8320
    """

    def __init__(
        self,
        loop: FederatedLoop,
        data: FederatedData,
        exchange: Exchange | None = None,
        *,
        name: str = "fedlit",
        root: str | Path = "lightning_logs",
        checkpoints: Checkpoints | None = None,
        settings: Mapping[str, Any] | None = None,
        config_text: str | None = None,
        **trainer: Any,
    ) -> None:
        if loop.seed != data.seed:
            raise ConfigError(f"expected one seed for loop and data, found {loop.seed} and {data.seed}")
        _check_options(trainer)
        self.loop, self.data = loop, data
        self.exchange = exchange if exchange is not None else Exchange()
        self._untouched_exchange = deepcopy(self.exchange)
        self.name, self.root = name, Path(root).absolute()
        self.checkpoints = checkpoints if checkpoints is not None else Checkpoints()
        self.settings, self.config_text, self.trainer_options = settings, config_text, trainer
        self.folder: Path | None = None
        self.trainer: Trainer | None = None

    def describe(self) -> Plan:
        """The plan; reads the data, builds the clients, trains nothing."""
        self.loop.build(self.data)
        return make_plan(self.loop, self.exchange)

    def fit(self, ckpt_path: str | Path | None = None, *, quiet: bool = False) -> Results:
        """Train.

        Args:
            ckpt_path: None for a new run; ``"last"`` to continue the newest run of this name in its folder; or a
                checkpoint's path, whose folder is continued if it is a run's.
            quiet: print nothing but errors.

        Returns:
            The scores on the validation split after the last epoch.

        Raises:
            ConfigError: the configuration cannot be run.
            RunError: training had to stop.
        """
        if self.trainer is not None:  # fitted or scored before: start from nothing, or from the checkpoint
            self.loop.reset()
            self.exchange = deepcopy(self._untouched_exchange)
        plan = self.describe()
        checkpoint, folder = self._resume(ckpt_path)
        self.folder = folder if folder is not None else _new_folder(self.root, self.name)
        if not quiet:
            print(
                plan,
                f"\nRun folder: {self.folder}" + (f", continued from {checkpoint.name}" if checkpoint else ""),
                sep="\n",
                flush=True,
            )
        self._write_config(checkpoint)
        callbacks: list[Callback] = [Board(plan, self.settings)]
        if not quiet and self.trainer_options.get("enable_progress_bar") is not False:
            callbacks.append(Progress())
        if self.trainer_options.get("enable_checkpointing") is not False:
            callbacks += self.checkpoints.callbacks(self.folder / "checkpoints")
        self.trainer = self._trainer(callbacks, purge_step=_step_of(checkpoint))
        with _calm():
            self.trainer.fit(self.loop, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
            if self.loop.scored_at.get("validation") != self.trainer.global_step:
                self.trainer.validate(self.loop, datamodule=self.data, verbose=False)
        return Results.of(self.loop, "validation")

    def validate(self, ckpt_path: str | Path | None = None, *, quiet: bool = False) -> Results:
        """Score the validation split; see :meth:`test`."""
        return self._evaluate("validation", ckpt_path, quiet)

    def test(self, ckpt_path: str | Path | None = None, *, quiet: bool = False) -> Results:
        """Score the test split and write ``test.csv`` and ``test.json`` into the run's folder.

        Args:
            ckpt_path: a checkpoint, ``"best"`` or ``"last"``; the last one of this run, or of the newest run of this
                name, if None.
            quiet: print nothing but errors.

        Raises:
            ConfigError: there is no such checkpoint.
        """
        return self._evaluate("test", ckpt_path, quiet)

    def predict(
        self, ckpt_path: str | Path | None = None, *, format: str = "csv", quiet: bool = False
    ) -> dict[str, Path]:
        """Write one file per client: row number in the source, probability of each class, predicted label.

        Args:
            ckpt_path: see :meth:`test`.
            format: ``csv``, or ``parquet`` (needs ``pip install 'fedlit[parquet]'``).
            quiet: print nothing but errors.

        Returns:
            client → file.
        """
        from fedlit.predictions import write_predictions

        checkpoint = self._find(ckpt_path, quiet, "predict")
        self.trainer = self._trainer([], log=False)
        if self.folder is not None and (self.folder / "predictions").exists() and not quiet:
            print(f"Replacing the predictions in {self.folder / 'predictions'}", file=sys.stderr)
        with _calm():
            batches = self.trainer.predict(self.loop, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
        assert batches is not None and self.folder is not None
        return write_predictions(self.loop, self.data, batches, self.folder / "predictions", format)

    def _evaluate(self, split: Literal["validation", "test"], ckpt_path: str | Path | None, quiet: bool) -> Results:
        checkpoint = self._find(ckpt_path, quiet, split)
        self.trainer = self._trainer([Board()] if split == "test" else [], log=split == "test")
        evaluate = self.trainer.test if split == "test" else self.trainer.validate
        with _calm():
            evaluate(self.loop, datamodule=self.data, ckpt_path=checkpoint, verbose=False, weights_only=True)
        results = Results.of(self.loop, split)
        assert self.folder is not None
        known = (self.folder / f"{split}.csv").exists()
        files = results.write(self.folder)
        if not quiet:
            print(results, f"\n{'Replaced' if known else 'Wrote'} {files[0]} and {files[1]}", sep="\n")
        return results

    # ------------------------------------------------------------------

    def _write_config(self, checkpoint: Path | None) -> None:
        """Write ``config.yaml``; a resumed run that changes it keeps the earlier one beside it."""
        assert self.folder is not None
        path = self.folder / "config.yaml"
        if self.config_text is None:
            return
        if path.exists() and path.read_text(encoding="utf-8") != self.config_text:
            path.rename(self.folder / f"config_until_step_{(_step_of(checkpoint) or 1) - 1}.yaml")
        path.write_text(self.config_text, encoding="utf-8")

    def _trainer(self, callbacks: list[Callback], *, log: bool = True, purge_step: int | None = None) -> Trainer:
        assert self.folder is not None
        options = dict(self.trainer_options)
        callbacks = [self.exchange, *callbacks, *_listed(options.pop("callbacks", None))]
        own_bars = [callback for callback in callbacks if isinstance(callback, ProgressBar)]
        if len(own_bars) > 1:  # one that the user brought takes the place of ours
            callbacks.remove(own_bars[0])
        logger = options.pop("logger", None)
        if not log:
            logger = False
        elif logger is None or logger is True:
            logger = FederatedTensorBoardLogger(
                self.folder.parent.parent, self.folder.parent.name, self.folder.name, purge_step
            )
        plugins = [*_listed(options.pop("plugins", None)), AtomicCheckpointIO()]
        decided = {
            "default_root_dir": self.folder,
            "enable_progress_bar": bool(own_bars),
            "enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks),
        }
        defaults = {"enable_model_summary": False, "num_sanity_val_steps": 0, "devices": 1, "log_every_n_steps": 1}
        given = {key: value for key, value in options.items() if value is not None and value != "auto"}
        with _calm():
            return Trainer(**{**defaults, **given, **decided}, logger=logger, plugins=plugins, callbacks=callbacks)

    def _resume(self, ckpt_path: str | Path | None) -> tuple[Path | None, Path | None]:
        """(checkpoint, folder to continue in)."""
        if ckpt_path is None:
            return None, None
        if ckpt_path == "last":
            folder = newest_run(self.root, self.name)
            if folder is None:
                raise ConfigError(
                    "--ckpt_path last: expected an earlier run with a checkpoint in "
                    f"{(self.root / self.name).resolve()}, found none; "
                    "leave --ckpt_path out to start one"
                )
            return folder / "checkpoints" / LAST, folder
        path = Path(ckpt_path)
        if not path.is_file():
            raise ConfigError(f"--ckpt_path: expected last, best or a checkpoint file, found no file {path}")
        inside_run = path.parent.name == "checkpoints" and path.parent.parent.name.startswith("version_")
        return path, path.parent.parent if inside_run else None

    def _find(self, ckpt_path: str | Path | None, quiet: bool, purpose: str) -> Path:
        """The checkpoint to load; sets the folder to write to."""
        folder = self.folder or newest_run(self.root, self.name)
        if ckpt_path in (None, "last", "best") and folder is None:
            raise ConfigError(
                f"{purpose}: expected a trained run in {(self.root / self.name).resolve()}, found none; run fit "
                "first or give --ckpt_path"
            )
        if ckpt_path in (None, "last"):
            assert folder is not None
            checkpoint = folder / "checkpoints" / LAST
        elif ckpt_path == "best":
            assert folder is not None
            best = sorted((folder / "checkpoints").glob("best-*.ckpt"), key=os.path.getmtime)
            if not best:
                raise ConfigError(
                    f"--ckpt_path best: expected a best-*.ckpt in {folder / 'checkpoints'}, found none; set "
                    "checkpoint.best"
                )
            checkpoint = best[-1]
        else:
            found, folder = self._resume(ckpt_path)
            assert found is not None
            checkpoint = found
        if not checkpoint.is_file():
            raise ConfigError(f"{purpose}: expected a checkpoint {checkpoint}, found none; was checkpointing off?")
        self.folder = folder if folder is not None else _new_folder(self.root, self.name)
        if not quiet:
            print(f"Using {checkpoint}", file=sys.stderr)
        return checkpoint


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse, all in one message, what a federation of several optimizers cannot do."""
    problems = []
    if options.get("gradient_clip_val"):
        problems.append(
            "trainer.gradient_clip_val clips one module; set model.gradient_clip_val, which clips each client"
        )
    if options.get("accumulate_grad_batches") not in (None, 1):
        problems.append("trainer.accumulate_grad_batches does not reach the clients; set model.accumulate")
    if str(options.get("precision")) in ("16", "16-mixed"):
        problems.append(
            "trainer.precision 16-mixed scales all clients' losses by one factor, so that one client's overflow would "
            "halve everyone's; use bf16-mixed or 32-true"
        )
    if problems:
        raise ConfigError("\n".join(problems))


@contextmanager
def _calm() -> Iterator[None]:
    """Leave out Lightning's hints that do not apply to a federation in memory, whose run folder fedlit chooses
    itself.
    """
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    hints = (
        "The `srun` command",
        ".*does not have many workers",
        ".*Checkpoint directory .* exists and is not empty",
        "Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
        "The dirpath has changed from",
        ".*LeafSpec.* is deprecated",
    )
    try:
        with warnings.catch_warnings():
            for hint in hints:
                warnings.filterwarnings("ignore", hint)
            yield
    finally:
        logger.setLevel(level)


def _step_of(checkpoint: Path | None) -> int | None:
    """The aligned step after which a resumed run writes events."""
    if checkpoint is None:
        return None
    import torch

    step: int = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"]
    return step + 1
