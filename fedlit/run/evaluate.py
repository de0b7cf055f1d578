"""Scores a split of a run, with the supplements and caveats of its scores."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fedlit.data.table import Split
from fedlit.exchange.named import Found, counts_in
from fedlit.run.assembly import Assembly
from fedlit.run.caveats import mixed_units, weak_networks
from fedlit.run.predictions import scored_rows
from fedlit.run.scoring import supplements_of
from fedlit.run.served import epochs_of
from fedlit.run.thresholds import Threshold, choose, keep, state_of
from fedlit.run.trainer import make_trainer, without_hints
from fedlit.show.shown import for_terminal
from fedlit.train.callbacks import Board
from fedlit.train.checkpoint_file import CheckpointContent
from fedlit.train.results import Results, wrote
from fedlit.train.supplement import Supplement
from fedlit.train.whole import spared

ScoredSplit = Literal["validation", "test"]


def evaluate(
    run: Assembly,
    split: ScoredSplit,
    checkpoint: Path,
    saved: CheckpointContent,
    *,
    quiet: bool,
    brief: bool,
) -> Results:
    """Score a split of a run that has a folder, print the scores, and write them to files.

    Args:
        run: the run.
        split: the split.
        checkpoint: the checkpoint whose clients are scored.
        saved: its content, without tensors.
        quiet: print nothing but errors.
        brief: print the main score, loss and accuracy only.
    """
    assert run.folder is not None
    log = split == "test" and os.access(run.folder, os.W_OK)
    with without_hints():
        if split == "test" and run.score.threshold is not None:
            # The validation rows choose the threshold.
            run.trainer = make_trainer(run, [], log=False)
            _score(run, "validation", checkpoint)
        callbacks = [Board(None, run.settings)] if log else []
        run.trainer = make_trainer(run, callbacks, log=log)
        _score(run, split, checkpoint)
    results = results_of(run, split, guarded_in(run, saved))
    supplements = _supplements(run, split, results.main.name, checkpoint, saved)
    results = replace(results, supplements=supplements)
    if run.group.rank:
        return results
    if not quiet:
        printed = results.brief() if brief else results
        print(for_terminal(printed))
    table = run.folder / f"{split}.csv"
    existed = table.exists()
    with spared(table, f"{split}.csv and {split}.json", go_on="the scores are printed"):
        files = results.write(run.folder)
        if not quiet:
            print(for_terminal(f"\n{wrote(files, existed)}"))
    return results


def _score(run: Assembly, split: ScoredSplit, checkpoint: Path) -> None:
    assert run.trainer is not None
    evaluate_split = run.trainer.test if split == "test" else run.trainer.validate
    evaluate_split(
        run.loop, datamodule=run.data, ckpt_path=checkpoint, verbose=False, weights_only=True
    )


def results_of(run: Assembly, split: Split, guarded: Found, quiet: bool = False) -> Results:
    """Return the scores of a split with their caveats. Networks are compared with the simplest
    models only if the scores are printed.

    Args:
        run: the run whose split was scored.
        split: the split.
        guarded: the clients that the guard left out of exchanges or watched, and how often.
        quiet: whether nothing is printed.
    """
    results = replace(
        run.loop.results[split],
        guarded=guarded,
        incomparable=mixed_units(spec.task for spec in run.data.specs),
        findings=(*run.data.findings.sentences(), *map(str, run.loop.federation.findings)),
    )
    if quiet or run.group.rank:
        return results
    return replace(results, weak=weak_networks(run.data, results))


def guarded_in(run: Assembly, saved: CheckpointContent) -> Found:
    """Return what a checkpoint records about clients that the guard left out or watched."""
    return counts_in(saved.get("callbacks", {}).get(run.exchange.state_key, {}))


def _supplements(
    run: Assembly, split: ScoredSplit, main: str, checkpoint: Path, saved: CheckpointContent
) -> tuple[Supplement, ...]:
    """Return the tables that the user asked for beside the scores, and keep the thresholds for
    predictions.
    """
    if not run.score.asked:
        return ()
    run.score.check(run.data.specs)
    chosen: dict[str, Threshold] = {}
    if run.score.threshold is not None:
        chosen = choose(run.score.threshold, scored_rows(run.loop, run.data, "validation"))
        for of_other_ranks in run.group.gather("thresholds", chosen):
            chosen |= of_other_ranks
        if run.group.rank == 0 and run.folder is not None and os.access(run.folder, os.W_OK):
            keep(run.folder, state_of(checkpoint, epochs_of(saved)), chosen)
    scored = scored_rows(run.loop, run.data, split)
    return supplements_of(run.score, scored, chosen, run.data.source, run.seed, main, run.group)
