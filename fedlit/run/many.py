"""Several runs as one: the seeds of a study, whose clients are alike, trained as stacks.

Each run stays what it is: its own data, clients, exchange and results. Only their aligned steps are executed together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.utilities import CombinedLoader
from torch import nn

from fedlit.data.loader import Batch, EvalLoader
from fedlit.data.table import Split
from fedlit.engine import Engine, make_engine
from fedlit.errors import ConfigError
from fedlit.run.run import Run, calm
from fedlit.train.lightning import count_aligned_step
from fedlit.train.results import Results

__all__ = ["fit_seeds", "fit_together", "test_together"]


def fit_seeds(run: Run, seeds: Iterable[int]) -> list[Run]:
    """Train a run with several seeds, as one stacked computation where its clients allow.

    Args:
        run: what to train, for instance ``fedlit.load("heart_gl.yaml")``; itself left as it is.
        seeds: one run each.

    Returns:
        The trained runs; ``run.loop.results["validation"]`` has the scores after the last epoch,
        ``run.loop.history`` those of each epoch, and :func:`test_together` gives the test scores.

    Example:
        >>> import fedlit
        >>> runs = fit_seeds(fedlit.load("quickstart.yaml", "--trainer.max_epochs=1"), [1, 2])
        >>> [run.seed for run in runs], runs[0].loop.results["validation"].step
        ([1, 2], 10)
    """
    runs = [run.with_seed(seed) for seed in seeds]
    fit_together(runs)
    return runs


def fit_together(runs: Sequence[Run]) -> list[Results]:
    """Train runs that are not trained yet, step by step together; nothing is written to disk.

    Their networks may differ; alike clients are stacked over all runs. Single runs give the same up to float32
    rounding, which training amplifies: expect scores to differ by less than they do between seeds.

    Args:
        runs: with equal Trainer options, pace of batches, engine and threads.

    Returns:
        Each run's scores on its validation split after the last epoch.

    Raises:
        ConfigError: runs that cannot be trained together.
    """
    _check(runs, trained=False)
    together = _Together(runs)
    trainer = _trainer(runs[0])
    with calm():
        try:
            trainer.fit(together, datamodule=together.data)
        finally:
            together.release()
    return [run.loop.results["validation"] for run in runs]


def test_together(runs: Sequence[Run]) -> list[Results]:
    """Score the test split of runs that :func:`fit_together` has trained."""
    _check(runs, trained=True)
    together = _Together(runs)
    with calm():
        try:
            _trainer(runs[0]).test(together, datamodule=together.data, verbose=False)
        finally:
            together.release()
    return [run.loop.results["test"] for run in runs]


test_together.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def _check(runs: Sequence[Run], trained: bool) -> None:
    if not runs:
        raise ConfigError("expected at least one run, found none")
    if len({id(run) for run in runs}) < len(runs):
        raise ConfigError("expected different runs, found one of them twice; make another with run.with_seed")
    for run in runs:
        done = "validation" in run.loop.results
        if done != trained:
            expected, found, advice = ("trained", "not trained", "fit_together") if trained else (
                "untrained", "trained already", "run.with_seed, which makes a new run"
            )  # fmt: skip
            raise ConfigError(f"seed {run.seed}: expected a run that is {expected}, found one {found}; use {advice}")
        if run.trainer_options.get("callbacks"):
            raise ConfigError(
                "trainer.callbacks: expected none, found some: a callback (early stopping, say) would see all runs as "
                "one; leave them out, or train the runs one after another"
            )
    first = runs[0]
    for run in runs[1:]:
        problems = [
            f"{name} {mine!r} and {other!r}"
            for name, mine, other in (
                ("trainer options", first.trainer_options, run.trainer_options),
                ("data: batches, batch_size and steps", first.data.pace.to_dict(), run.data.pace.to_dict()),
                ("model.kernels", first.loop.arguments["kernels"], run.loop.arguments["kernels"]),
                ("model.engine", first.loop.engine_name, run.loop.engine_name),
                ("model.threads", first.loop.threads, run.loop.threads),
            )
            if mine != other
        ]
        if problems:
            raise ConfigError(
                f"expected runs that agree, found {', '.join(problems)}; train those that differ one after another"
            )


def _trainer(run: Run) -> Trainer:
    decided: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    options = {key: value for key, value in run.trainer_options.items() if value is not None and key not in decided}
    return Trainer(**{"num_sanity_val_steps": 0, "devices": 1, **options, **decided})


class _Data(LightningDataModule):
    """The runs' data side by side; the batch of an aligned step is {number of the run: {client: batch}}."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = runs

    def setup(self, stage: str | None = None) -> None:
        for run in self.runs:
            run.data.trainer = self.trainer
            run.data.setup()

    def train_dataloader(self) -> CombinedLoader:
        loaders = {str(number): dict(run.data.resident_loaders()) for number, run in enumerate(self.runs)}
        return CombinedLoader(loaders, "min_size")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch  # the data is there already

    def val_dataloader(self) -> list[EvalLoader]:
        return [loader for run in self.runs for loader in run.data.val_dataloader()]

    def test_dataloader(self) -> list[EvalLoader]:
        return [loader for run in self.runs for loader in run.data.test_dataloader()]


class _Together(LightningModule):
    """Forwards what Lightning asks of it to each run's loop and exchange, and has one engine do all steps."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.runs = list(runs)
        self.loops = nn.ModuleList(run.loop for run in runs)
        self.data = _Data(runs)
        self._engine: Engine | None = None
        self._threads_before = torch.get_num_threads()

    def configure_model(self) -> None:
        for run in self.runs:
            run.loop.trainer, run.loop.own_data = self.trainer, run.data
            run.loop.configure_model()
        if self._engine is None:
            first = self.runs[0].loop
            first.choose_kernels(runs=len(self.runs))
            threads = first.threads or torch.get_num_threads()
            clients = sum(len(run.loop.clients) for run in self.runs)
            scope = self.trainer.precision_plugin.train_step_context
            device = self.trainer.strategy.root_device
            self._engine = make_engine(first.engine_name, clients, threads, device, scope, first.kernels == "compiled")
        for run in self.runs:
            run.loop.kernels, run.loop._engine = self.runs[0].loop.kernels, self._engine
            run.loop._threads_before = self._threads_before

    def configure_optimizers(self) -> Any:
        optimizers, schedulers = zip(*(run.loop.configure_optimizers() for run in self.runs), strict=True)
        return [own for each in optimizers for own in each], [own for each in schedulers for own in each]

    def training_step(self, batch: Mapping[str, Mapping[str, Batch | None]], batch_idx: int) -> None:
        assert self._engine is not None
        steps = {
            f"{number}/{name}": step
            for number, run in enumerate(self.runs)
            for name, step in run.loop.begin_step(batch[str(number)], batch_idx).items()
        }
        self._engine.run(steps)
        count_aligned_step(self.trainer)
        for number, run in enumerate(self.runs):
            run.loop.end_step(batch[str(number)], batch_idx)
            run.exchange.on_train_batch_end(self.trainer, run.loop, None, batch[str(number)], batch_idx)

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._score("validation", batch, batch_idx, dataloader_idx)

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._score("test", batch, batch_idx, dataloader_idx)

    def _score(self, split: Split, batch: Batch, batch_idx: int, dataloader_idx: int) -> None:
        for run in self.runs:
            sites = len(run.data.sites(split))
            if dataloader_idx < sites:
                run.loop.evaluations.add(split, batch, dataloader_idx)
                return
            dataloader_idx -= sites

    def _finish(self, split: Split) -> None:
        assert self._engine is not None
        self._engine.evaluate([job for run in self.runs for job in run.loop.evaluations.take()])
        for run in self.runs:
            getattr(run.loop, f"on_{split}_epoch_end")()

    def on_fit_start(self) -> None:
        for run in self.runs:
            run.exchange.on_fit_start(self.trainer, run.loop)
            run.loop.on_fit_start()

    def on_train_start(self) -> None:
        for run in self.runs:
            run.exchange.on_train_start(self.trainer, run.loop)
            run.loop.on_train_start()

    def on_train_epoch_start(self) -> None:
        for run in self.runs:
            run.loop.on_train_epoch_start()

    def on_train_epoch_end(self) -> None:
        for run in self.runs:
            run.exchange.on_train_epoch_end(self.trainer, run.loop)
            run.loop.on_train_epoch_end()

    def on_validation_epoch_start(self) -> None:
        for run in self.runs:
            run.loop.on_validation_epoch_start()

    def on_validation_epoch_end(self) -> None:
        self._finish("validation")

    def on_test_epoch_start(self) -> None:
        for run in self.runs:
            run.loop.on_test_epoch_start()

    def on_test_epoch_end(self) -> None:
        self._finish("test")

    def on_train_end(self) -> None:
        for run in self.runs:
            run.loop.on_train_end()

    def on_fit_end(self) -> None:
        for run in self.runs:
            run.loop.on_fit_end()

    def teardown(self, stage: str) -> None:
        for run in self.runs:
            if stage == "fit":
                run.exchange.on_fit_end(self.trainer, run.loop)
            run.loop.teardown(stage)

    def release(self) -> None:
        for run in self.runs:
            run.loop._engine, run.loop.own_data = None, None
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        torch.set_num_threads(self._threads_before)
