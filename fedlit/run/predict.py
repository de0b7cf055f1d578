"""Predicts with the clients of a run, and builds them as scorers of rows without labels."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.run.assembly import Assembly
from fedlit.run.folders import run_folder
from fedlit.run.predictions import PredictionFiles
from fedlit.run.served import scorers_of
from fedlit.run.thresholds import kept, state_of
from fedlit.score.scorer import Scorer
from fedlit.show.shown import say
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.manifest import Manifest


def predict(
    run: Assembly, checkpoint: Path, saved: CheckpointContent, format: str, quiet: bool
) -> PredictionFiles:
    """Predict the rows of each client of a run that has a folder, and write a file for each.

    Args:
        run: the run.
        checkpoint: the checkpoint whose clients predict.
        saved: its content, without tensors.
        format: ``csv`` or ``parquet``.
        quiet: print nothing but errors.
    """
    assert run.folder is not None
    if not os.access(run.folder, os.W_OK):
        raise ConfigError(
            f"{run.folder}: expected a folder to write predictions to, found that it is read-only; "
            "copy it, and give --ckpt_path with the copy's checkpoint"
        )
    run.loop.build(run.data)
    Manifest.read(saved).refuse(run.loop.manifest, resume=False)
    split = run.data.predict
    sites = {name: rows for _, name, rows in run.data.sites(split)}
    scorer_of = scorers(run, checkpoint, sites)
    frames = {name: scorer_of[name].frame(rows.row, rows.x.numpy()) for name, rows in sites.items()}
    folder = run.folder / "predictions" / split
    replaced = folder.exists() and not quiet
    predictions = PredictionFiles.written(frames, folder, format)
    if replaced:
        say(f"Replaced the predictions in {folder}")
    files_here = {name: str(path) for name, path in predictions.files.items()}
    for files in run.group.gather("files of predictions", files_here):
        predictions.files.update({name: Path(path) for name, path in files.items()})
    return predictions


def scorers(run: Assembly, checkpoint: Path, names: Iterable[str] | None) -> dict[str, Scorer]:
    """Return clients of a checkpoint as scorers, with the run's precision and their thresholds.

    Args:
        run: the run.
        checkpoint: the checkpoint, which is read only once.
        names: the names of the clients; all if None.
    """
    scorer_of = scorers_of(run.loop, run.data, checkpoint, names)
    for client, scorer in scorer_of.items():
        scorer.about["precision"] = str(run.trainer_options.get("precision") or "32-true")
        state = state_of(checkpoint, scorer.about["epochs"])
        thresholds = kept(run_folder(checkpoint), state, [client], run.score.threshold)
        if client in thresholds:
            scorer.about["threshold"] = thresholds[client]
    return scorer_of
