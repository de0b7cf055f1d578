"""Short descriptions of a run, before its training begins and in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer

from fedlit.client.client import main_score
from fedlit.data.table import SPLITS
from fedlit.run.plan import when
from fedlit.run.trainer import is_part
from fedlit.show.shown import Grid
from fedlit.show.text import Verbatim, shorten

if TYPE_CHECKING:
    from fedlit.train.loop import FederatedLoop

__all__ = ["opening", "summary"]


def summary(name: str, loop: FederatedLoop, folder: str) -> Grid:
    """Summarise what a run holds in memory. This reads no table and no file.

    Args:
        name: the name of the run.
        loop: the loop with its clients, their exchange, and their last scores.
        folder: the folder that the run writes to.
    """
    federation, exchange = loop.federation, loop.federation.exchange
    rows = [["clients", "not built yet: describe() and fit() read the tables"]]
    if federation:
        kinds = ", ".join(sorted({type(client).__name__ for client in federation.values()}))
        counts = {split: sum(client.spec.rows.get(split, 0) for client in federation.values()) for split in SPLITS}
        rows = [["clients", f"{len(federation)} of {kinds}: {shorten(list(federation))}"]]
        rows += [["rows", ", ".join(f"{count:,} {split}" for split, count in counts.items())]]
    shared = "nothing: each client by itself"
    if exchange is not None and exchange.on:
        what = ", ".join(exchange.federated) or "answers to questions"
        shared = f"{what}; {when(exchange.every)}, by {type(exchange.rule).__name__}"
    steps = max([federation.step, *(own.step for own in federation.results.values())])
    rows += [["shared", shared], ["trained", f"{steps:,} aligned steps" if steps else "no"]]
    for split, results in federation.results.items():
        main = main_score(federation.scores_of).name
        values = {label: results.summary[label].get(main, math.nan) for label in ("mean", "worst")}
        rows.append([split, f"{main}: {', '.join(f'{label} {value:.4f}' for label, value in values.items())}"])
    return Grid(["run", f"{name}, seed {loop.seed}"], [*rows, ["folder", Verbatim(folder)]])


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
