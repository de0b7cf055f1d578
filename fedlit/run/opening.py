"""What is said of a run before its training begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from fedlit.run.trainer import is_part


def opening(
    folder: Path,
    options: Mapping[str, Any],
    trainer: Trainer,
    checkpoint: Path | None,
    header: Mapping[str, Any],
    places: Sequence[str],
) -> list[str]:
    """Describe where the run is kept, what it continues, and which options make it shorter than it may seem.

    Args:
        folder: the folder of the run.
        options: the options of the trainer, as the user gave them.
        trainer: the trainer built from these options.
        checkpoint: the checkpoint that is continued.
        header: the header of that checkpoint.
        places: the clients, host and device of each rank.
    """
    source = f", continued from {checkpoint.name} (epoch {header['epoch'] + 1})" if checkpoint else ""
    lines = [f"\nRun folder: {folder}{source}"]
    if len(places) > 1:
        lines.append(f"{len(places)} ranks: {'; '.join(places)}. Tensors travel between them by the CPU.")
    for key, what in (
        ("limit_train_batches", "epochs are shorter than the plan says"),
        ("max_steps", "training may end within an epoch, which is scored as it is then"),
    ):
        if is_part(limit := options.get(key)) and limit != -1:
            lines.append(f"trainer.{key} is {limit}: {what}")
    if header.get("fedlit", {}).get("personal", {}).get("done"):
        lines.append("Nothing is left to train: each client ended with the best of its epochs (model.keep)")
    elif checkpoint and header["epoch"] + 1 >= (trainer.max_epochs or 0) > 0:
        lines.append(f"Nothing is left to train: trainer.max_epochs is {trainer.max_epochs}")
    if 0 in (trainer.max_epochs, trainer.max_steps):
        lines.append("Nothing is trained: trainer.max_epochs or max_steps is 0; the scores are of untrained clients")
    return lines
