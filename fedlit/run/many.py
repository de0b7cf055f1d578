"""Trains several runs as one, such as the seeds of a study: clients of equal structure are trained as stacks.

Each run keeps its data, clients, exchange and results. Only the aligned steps are executed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.utilities import CombinedLoader

from fedlit.data.loader import EvalLoader
from fedlit.errors import ConfigError
from fedlit.run.run import Run
from fedlit.run.trainer import DEFAULTS, with_tuning, without_hints
from fedlit.train.loop import FederatedLoop
from fedlit.train.results import Results

__all__ = ["fit_seeds", "fit_together", "test_together"]


def fit_seeds(run: Run, seeds: Iterable[int]) -> list[Run]:
    """Train a run with several seeds, as one stacked computation if its clients allow.

    Args:
        run: the run to train, for example ``fedlit.load("heart_gl.yaml")``; it is not changed.
        seeds: the seeds, one for each run.

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
    """Train untrained runs together, step by step. Nothing is written to disk.

    Their networks may differ; homogeneous clients are stacked over all runs. Runs trained one by one give the same
    results up to float32 rounding, which training amplifies: expect scores to differ by less than they do between
    seeds.

    Args:
        runs: runs with the same Trainer options, batching, engine and number of threads.

    Returns:
        Each run's scores on its validation split after the last epoch.

    Raises:
        ConfigError: the runs cannot be trained together.
    """
    _check(runs, trained=False)
    _together(runs, lambda trainer, loop, data: trainer.fit(loop, datamodule=data))
    return [run.loop.results["validation"] for run in runs]


def test_together(runs: Sequence[Run]) -> list[Results]:
    """Score the test split of runs that :func:`fit_together` has trained."""
    _check(runs, trained=True)
    _together(runs, lambda trainer, loop, data: trainer.test(loop, datamodule=data, verbose=False))
    return [run.loop.results["test"] for run in runs]


test_together.__test__ = False  # type: ignore[attr-defined]  # not one of pytest's


def _check(runs: Sequence[Run], trained: bool) -> None:
    expected = "trained by fit_together" if trained else "untrained (run.with_seed makes such a run)"
    for run in runs:
        if ("validation" in run.loop.results) != trained:
            raise ConfigError(f"seed {run.seed}: expected a run that is {expected}, found another one")
    if not runs or len({id(run) for run in runs}) < len(runs):
        raise ConfigError(f"expected at least one run, and each once, found {len(runs)}; make more with run.with_seed")
    if runs[0].group.size > 1:
        raise ConfigError(
            f"expected one process for runs that are trained together, found {runs[0].group.size} (torchrun or srun); "
            "start it without them, or fit each run"
        )
    if any(run.trainer_options.get("callbacks") for run in runs):
        raise ConfigError(
            "trainer.callbacks: expected none, found some: a callback (early stopping, say) would see all runs as one; "
            "leave them out, or train the runs one after another"
        )
    first = _alike(runs[0])
    for own in map(_alike, runs[1:]):
        if problems := [f"{key} {first[key]!r} and {own[key]!r}" for key in first if own[key] != first[key]]:
            raise ConfigError(
                f"expected runs that agree, found {', '.join(problems)}; train those that differ one after another"
            )


def _alike(run: Run) -> dict[str, Any]:
    """Return the settings in which runs that are trained together must agree."""
    return {
        "trainer options": run.trainer_options,
        "data: batches, batch_size and steps": run.data.batching.to_dict(),
        "model.kernels": run.loop.arguments["kernels"],
        "model.engine": run.loop.engine_name,
        "model.threads": run.loop.threads,
    }


def _together(runs: Sequence[Run], work: Callable[[Trainer, FederatedLoop, LightningDataModule], Any]) -> None:
    """Run one Trainer, one loop and one engine for the federations of all runs. Each run keeps its exchange."""
    for run in runs:
        run.describe()
    loop = FederatedLoop.together([run.loop for run in runs])
    with without_hints():
        try:
            work(_trainer(runs), loop, _Data(runs))
        finally:
            loop.release()


def _trainer(runs: Sequence[Run]) -> Trainer:
    given = {key: value for key, value in runs[0].trainer_options.items() if value is not None}
    decided = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(**{**DEFAULTS, **with_tuning(given, runs[0].loop), **decided, "callbacks": [_Exchanges(runs)]})


class _Exchanges(Callback):
    """The exchanges of all runs as one callback, because a Trainer does not accept two callbacks of one kind that have
    a state to save.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        for hook in ("fit_start", "train_start", "train_batch_end", "train_epoch_end", "fit_end", "exception"):
            setattr(self, f"on_{hook}", partial(_call_all, [getattr(run.exchange, f"on_{hook}") for run in runs]))


def _call_all(hooks: Iterable[Callable[..., None]], *args: Any) -> None:
    for hook in hooks:
        hook(*args)


class _Data(LightningDataModule):
    """The data of all runs. The batch of an aligned step is {number of the run: {client: batch}}, or {client: batch} if
    there is a single run.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = runs

    def setup(self, stage: str | None = None) -> None:
        for run in self.runs:
            run.data.trainer = self.trainer
            run.data.setup()

    def train_dataloader(self) -> CombinedLoader:
        loaders = {str(number): dict(run.data.resident_loaders()) for number, run in enumerate(self.runs)}
        return CombinedLoader(loaders if len(loaders) > 1 else loaders["0"], "min_size")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch  # the data is there already

    def val_dataloader(self) -> list[EvalLoader]:
        return [loader for run in self.runs for loader in run.data.val_dataloader()]

    def test_dataloader(self) -> list[EvalLoader]:
        return [loader for run in self.runs for loader in run.data.test_dataloader()]
