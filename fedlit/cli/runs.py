"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``: what they print."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

from fedlit.data.sources.tables import Tables
from fedlit.errors import RunError
from fedlit.exchange.named import check_left_out
from fedlit.explain.clusters import CLUSTERS, in_words, judged, read_clusters
from fedlit.run.arguments import Asked, pairs_of, title
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.folders import CHECKPOINTS
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.show.shown import for_terminal
from fedlit.train.logger import FederatedTensorBoardLogger

__all__ = ["execute"]


def _program() -> str:
    """How the command was called, as far as it must be typed again: ``make fit`` calls one that is not on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return "python -m fedlit"
    return "fedlit" if shutil.which("fedlit") or called.name != "fedlit" else str(called)


def _stops_early(run: Run) -> bool:
    from lightning.pytorch.callbacks import EarlyStopping

    assert run.trainer is not None and run.folder is not None
    stops = any(isinstance(own, EarlyStopping) for own in run.trainer.callbacks)  # type: ignore[attr-defined]
    return stops and any((run.folder / CHECKPOINTS).glob("best-*.ckpt"))


def _same_run(asked: Asked, name: str) -> str:
    """The arguments by which another command finds the run that these arguments made."""
    pairs = list(pairs_of(asked.typed))
    named = {"--config": "--config", "-c": "--config", METHOD: METHOD}
    parts = [part for flag, value in pairs if flag in named for part in (named[flag], value)]
    parts += ["--name", name] if title(asked.configs) != name else []
    root = dict(pairs).get("--trainer.default_root_dir")
    parts += ["--trainer.default_root_dir", root] if root else []
    return shlex.join(parts)


def _curves(run: Run) -> list[str]:
    """How to look at what was logged. TensorBoard ticks nothing where it finds more than forty runs, hence the folder
    of this run alone; a client has one of its own.
    """
    lines = []
    for logger in run.trainer.loggers if run.trainer is not None else ():
        if isinstance(logger, FederatedTensorBoardLogger):
            folder = Path(logger.log_dir)
            if not any(events.stat().st_size for events in folder.rglob("events.out.tfevents.*")):
                continue  # none could be written, which was said
            above = folder.parent.parent
            lines += [
                f"Curves: tensorboard --logdir {shlex.quote(str(folder))}",
                f"To compare all runs: tensorboard --logdir {shlex.quote(str(above))} (tab HParams)",
            ]
        elif logger.log_dir:
            lines.append(f"Logged by {type(logger).__name__}: {logger.log_dir}")
    return lines


def execute(asked: Asked, brief: bool) -> None:
    """Run one command and print what it has to say; of scores the main ones if it is ``brief``."""
    run, config = parse(asked)
    command = asked.command
    if command == "describe":
        plan = run.describe()
        if config.format == "json":
            print(json.dumps(plan.to_dict(), indent=2, default=str))
            return
        print(for_terminal(plan))
        if run.data.notes and isinstance(run.data.source, Tables):
            print(for_terminal(f"\nOf the tables {_program()} check {_same_run(asked, run.name)} shows more."))
    elif command == "fit":
        print(f"\n{for_terminal(run.fit(config.ckpt_path))}\n")
        if run.folder is not None and (run.folder / CLUSTERS).is_file():
            belong = in_words(judged(read_clusters(run.folder / CLUSTERS)))
            print(for_terminal(f"Who belongs together, by the majority of the last five exchanges: {belong}"))
        if run.last_checkpoint is not None:
            best = " --ckpt_path best" if _stops_early(run) else ""  # the last state is the one that was no better
            print(f"Next: {_program()} test {_same_run(asked, run.name)}{best}")
        for line in _curves(run):
            print(line)
        if run.lost is not None:
            raise RunError(run.lost)
        check_left_out(run.exchange.found)
    elif command == "validate":
        run.validate(config.ckpt_path, brief=brief)
    elif command == "test":
        run.test(config.ckpt_path, brief=brief)
    else:
        print(for_terminal(run.predict(config.ckpt_path, format=config.format or "csv")))
