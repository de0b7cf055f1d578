"""Trains the clients of a run: callbacks, interruptions, and the scores after the last epoch."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from fedlit.errors import RunError
from fedlit.run.assembly import Assembly
from fedlit.run.config import listed
from fedlit.run.evaluate import guarded_in, results_of
from fedlit.run.folders import begin
from fedlit.run.plan import Plan
from fedlit.run.trainer import make_trainer, opening, without_hints
from fedlit.session import session
from fedlit.show.shown import for_terminal
from fedlit.train.callbacks import Board, Progress, Tables
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.monitor import check_monitors
from fedlit.train.results import Results
from fedlit.train.whole import CHECKPOINTS, LAST, PREVIOUS


def fit(
    run: Assembly, plan: Plan, checkpoint: Path | None, saved: CheckpointContent, quiet: bool
) -> Results:
    """Train the clients of a run that has a folder, and score its validation split.

    Args:
        run: the run.
        plan: its plan, which is printed and shown in TensorBoard.
        checkpoint: the checkpoint that is continued; None for a new run.
        saved: the content of that checkpoint, without tensors; empty for a new run.
        quiet: print nothing but errors.

    Returns:
        The scores after the last epoch.

    Raises:
        RunError: training had to stop.
    """
    assert run.folder is not None
    # A process may train several runs, and each reports the files that it cannot write: without
    # this, the second run would lose a file that the first one lost, too, without a word.
    session().reported.clear()
    step = saved["global_step"] + 1 if saved else None
    trainer = make_trainer(run, _callbacks(run, plan, quiet), purge_step=step)
    run.trainer = trainer
    if checkpoint is not None and run.group.rank == 0:
        _set_damaged_aside(checkpoint, run.folder)
    if not quiet:
        lines = opening(run.folder, trainer, checkpoint, saved, run.group.size)
        print(for_terminal(plan), for_terminal("\n".join(lines)), sep="\n", flush=True)
    loop = run.loop
    with without_hints():
        if saved and saved["fedlit"]["personal"].get("done"):
            trainer.validate(
                loop, datamodule=run.data, ckpt_path=checkpoint, verbose=False, weights_only=True
            )
            return _with_ending(run, results_of(run, "validation", guarded_in(run, saved), quiet))
        _train(run, trainer, checkpoint)
        _check_exchanged(run, trainer)
        scored = loop.results.get("validation")
        current = scored is not None and scored.step == trainer.global_step
        if not current or loop.federation.personal.done:
            trainer.validate(loop, datamodule=run.data, verbose=False)
    return _with_ending(run, results_of(run, "validation", run.exchange.incident_counts, quiet))


def _set_damaged_aside(checkpoint: Path, folder: Path) -> None:
    """Rename the last checkpoint if the run continues from the one before it: the last one is
    damaged, and must not become the previous checkpoint.
    """
    last = checkpoint.with_name(LAST)
    in_run = checkpoint.parent == folder / CHECKPOINTS
    if in_run and checkpoint.name == PREVIOUS and last.is_file():
        os.replace(last, last.with_name("damaged.ckpt"))


def _callbacks(run: Assembly, plan: Plan, quiet: bool) -> list[Callback]:
    """Return fedlit's callbacks of a training."""
    assert run.folder is not None
    federation = run.loop.federation
    callbacks: list[Callback] = [
        Board(f"```\n{plan}\n```", run.settings),
        _beginning(run),
        Tables(run.folder, run.exchange, run.board.pictures > 0),
    ]
    options = run.trainer_options
    if not quiet and options.get("enable_progress_bar") is not False:
        callbacks.append(Progress())
    if options.get("enable_checkpointing") is not False:
        monitored = check_monitors(listed(options.get("callbacks")), federation.scores_of)
        checkpoints = run.checkpoints.callbacks(
            run.folder / CHECKPOINTS, federation.scores_of, monitored
        )
        if federation.personal.wanted:
            # Each client keeps its best epoch, so that no epoch is the best of all. The last
            # checkpoint holds all clients' best epochs.
            checkpoints = checkpoints[-1:]
        callbacks += checkpoints
    return callbacks


def _beginning(run: Assembly) -> Callback:
    """Return a callback that marks the folder as a run's when training begins."""

    def begin_folder(trainer: Trainer, module: LightningModule) -> None:
        if run.folder is not None and run.group.rank == 0:
            begin(run.folder, run.config_text, trainer.global_step)

    return LambdaCallback(on_train_start=begin_folder)


def _train(run: Assembly, trainer: Trainer, checkpoint: Path | None) -> None:
    try:
        trainer.fit(run.loop, datamodule=run.data, ckpt_path=checkpoint, weights_only=True)
    except SystemExit as error:  # Lightning ends so on a signal.
        advice = "no checkpoint had been written: start it again"
        if run.last_checkpoint is not None:
            advice = "continue with --ckpt_path last"
        if getattr(trainer, "received_sigterm", False):
            raise RunError(f"the run was terminated (SIGTERM); {advice}") from error
        raise KeyboardInterrupt(advice) from error


def _check_exchanged(run: Assembly, trainer: Trainer) -> None:
    """Refuse a federation whose clients have never exchanged anything: it has no result."""
    exchange = run.exchange
    if exchange.on and not exchange.rounds and trainer.global_step:
        raise RunError(
            f"expected a federation, found that training ended after {trainer.global_step:,} "
            "aligned steps, before the first exchange: each client was trained alone. Set "
            "exchange.every to less, or train for longer"
        )


def _with_ending(run: Assembly, results: Results) -> Results:
    """Return the last scores of a training with how it ended, and with the scores of the best epoch
    if that was not the last one.
    """
    federation = run.loop.federation
    ending = federation.ending
    ended = ending.ended(federation.scores_of)
    if federation.personal.wanted or ending.best_epoch in (0, ending.epochs):
        return replace(results, ended=ended)
    return replace(results, ended=ended, best_epoch=ending.best_epoch, best_means=ending.best_means)
