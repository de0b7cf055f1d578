"""What is said before a training begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from fedlit.run.options import is_part

__all__ = ["opening"]


def opening(
    folder: Path,
    options: Mapping[str, Any],
    trainer: Trainer,
    checkpoint: Path | None,
    header: Mapping[str, Any],
    places: Sequence[str],
) -> list[str]:
    """Where the run is kept and what it goes on from; what is shorter than one would think; what trains nothing.

    Args:
        folder: the run's.
        options: of the trainer, as the user gave them.
        trainer: made from them.
        checkpoint: that is continued.
        header: what it says of itself.
        places: of each rank its clients, host and device; empty where there is one.
    """
    source = f", continued from {checkpoint.name} (epoch {header['epoch'] + 1})" if checkpoint else ""
    kept = "none, for nothing is kept of a trial (trainer.fast_dev_run)" if options.get("fast_dev_run") else folder
    lines = [f"\nRun folder: {kept}{source}"]
    if places:
        lines.append(f"{len(places)} ranks: {'; '.join(places)}. Tensors travel between them by the CPU.")
    for key, what in {
        "limit_train_batches": "epochs are shorter than the plan says",
        "limit_val_batches": "validation scores are of a part of the rows",
    }.items():
        if is_part(limit := options.get(key)):
            lines.append(f"trainer.{key} is {limit}: {what}")
    if checkpoint and header["epoch"] + 1 >= (trainer.max_epochs or 0) > 0:
        lines.append(f"Nothing is left to train: trainer.max_epochs is {trainer.max_epochs}")
    lines += [
        f"Nothing is trained: trainer.{key} is 0; the scores are those of untrained clients"
        for key in ("max_epochs", "max_steps")
        if getattr(trainer, key) == 0
    ]
    if header.get("fedlit", {}).get("personal", {}).get("done"):
        lines.append("Nothing is left to train: each client ended with the best of its epochs (model.keep)")
    return lines
