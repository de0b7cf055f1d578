"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``: of one federation, or of a mixture of parts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.cli.mixture import execute_mixture
from fedlit.errors import RunError
from fedlit.exchange.place import refuse_ranks
from fedlit.mixture.settings import has_mixture
from fedlit.run.arguments import Asked, Command, pairs_of, read, title
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.show.shown import for_terminal, say

if TYPE_CHECKING:
    from fedlit.run.run import Run

__all__ = ["describe", "fit", "predict", "test", "validate"]


def fit(*words: str) -> None:
    """Train a federation, or a mixture."""
    _run("fit", words)


def validate(*words: str) -> None:
    """Score the validation rows."""
    _run("validate", words)


def test(*words: str) -> None:
    """Score the test rows."""
    _run("test", words)


def predict(*words: str) -> None:
    """Write predictions for a split of the tables."""
    _run("predict", words)


def describe(*words: str) -> None:
    """Show the plan, and train nothing."""
    _run("describe", words)


def _run(command: Command, words: Sequence[str]) -> None:
    brief = command not in ("fit", "validate", "test") or "--all" not in words
    words = [word for word in words if brief or word != "--all"]
    if has_mixture(words):
        refuse_ranks("a mixture of several parts")
        execute_mixture(command, words, brief)
        return
    asked = read(command, words)  # what is not there is said before torch is imported
    if sys.stderr.isatty() and command in ("fit", "describe") and not asked.help:
        say(f"Reading {', '.join(map(str, asked.configs))}")
    from fedlit.run.load import parse

    run, config = parse(asked)
    if command == "describe":
        _describe(run, config.format, _again(asked, words, run.name))
    elif command == "fit":
        _fit(run, config.ckpt_path, brief, _again(asked, words, run.name))
    elif command == "predict":
        print(for_terminal(run.predict(config.ckpt_path, format=config.format or "csv")))
    else:
        (run.test if command == "test" else run.validate)(config.ckpt_path, brief=brief)


def _describe(run: Run, style: str | None, again: str) -> None:
    from fedlit.data.sources.tables import Tables

    plan = run.describe()
    if style == "json":
        print(json.dumps(plan.to_dict(), indent=2, default=str))
        return
    print(for_terminal(plan))
    if run.data.notes and isinstance(run.data.source, Tables):
        print(for_terminal(f"\nfedlit check {again} shows more about the tables."))


def _fit(run: Run, checkpoint: Any, brief: bool, again: str) -> None:
    from lightning.pytorch.callbacks import EarlyStopping

    from fedlit.exchange.named import check_left_out
    from fedlit.explain.clusters import CLUSTERS, in_words, judged
    from fedlit.files import read_named

    results = run.fit(checkpoint)
    print(f"\n{for_terminal(results.brief() if brief else results)}\n")
    if run.folder is not None and (run.folder / CLUSTERS).is_file():
        belong = in_words(judged(read_named(run.folder / CLUSTERS)))
        print(for_terminal(f"Clusters, by the majority of the last five exchanges: {belong}"))
    if run.last_checkpoint is not None and run.trainer is not None:
        stops = any(isinstance(own, EarlyStopping) for own in run.trainer.callbacks)  # type: ignore[attr-defined]
        best = " --ckpt_path best" if stops and list(run.last_checkpoint.parent.glob("best-*.ckpt")) else ""
        print(f"Next: fedlit test {again}{best}")
    for line in _curves(run):
        print(line)
    if run.lost is not None:
        raise RunError(run.lost)
    check_left_out(run.exchange.found)


def _again(asked: Asked, words: Sequence[str], name: str) -> str:
    """The arguments by which another command finds the run that these words made."""
    pairs = list(pairs_of(words))
    named = {"--config": "--config", "-c": "--config", METHOD: METHOD}
    parts = [part for flag, value in pairs if flag in named for part in (named[flag], value)]
    parts += ["--name", name] if title(asked.configs) != name else []
    root = dict(pairs).get("--trainer.default_root_dir")
    return shlex.join([*parts, *(["--trainer.default_root_dir", root] if root else [])])


def _curves(run: Run) -> list[str]:
    """How to look at what was logged. TensorBoard ticks nothing where it finds more than forty runs, hence the folder
    of this run alone; a client has one of its own.
    """
    from fedlit.train.logger import FederatedTensorBoardLogger

    lines = []
    for logger in run.trainer.loggers if run.trainer is not None else ():
        if not isinstance(logger, FederatedTensorBoardLogger):
            lines += [f"Logged by {type(logger).__name__}: {logger.log_dir}"] if logger.log_dir else []
            continue
        folder = Path(logger.log_dir)
        if any(events.stat().st_size for events in folder.rglob("events.out.tfevents.*")):
            lines += [
                f"Curves: tensorboard --logdir {shlex.quote(str(folder))}",
                f"To compare all runs: tensorboard --logdir {shlex.quote(str(folder.parent.parent))} (tab HParams)",
            ]
    return lines
