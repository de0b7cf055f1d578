"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``: of one federation, or of a mixture of parts."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.cli.composite import execute_mixture
from fedlit.composite.settings import is_composite
from fedlit.errors import ConfigError, RunError
from fedlit.exchange.place import refuse_ranks
from fedlit.run.arguments import Asked, Command, pairs_of, read, title
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.folders import CHECKPOINTS
from fedlit.show.shown import for_terminal, say

if TYPE_CHECKING:
    from fedlit.run.run import Run

__all__ = ["describe", "fit", "predict", "test", "validate"]


def fit(*words: str) -> None:
    """Train a federation, or a mixture."""
    _run("fit", list(words))


def validate(*words: str) -> None:
    """Score the validation rows."""
    _run("validate", [word for word in words if word != "--all"], brief="--all" not in words)


def test(*words: str) -> None:
    """Score the test rows."""
    _run("test", [word for word in words if word != "--all"], brief="--all" not in words)


def predict(*words: str) -> None:
    """Write predictions for a split of the tables."""
    _run("predict", list(words))


def describe(*words: str) -> None:
    """Show the plan, and train nothing."""
    _run("describe", list(words))


def _run(command: Command, words: list[str], *, brief: bool = True) -> None:
    if is_composite(words):
        refuse_ranks("a mixture of several parts")
        execute_mixture(command, words, brief)
        return
    asked = read(command, words)  # what is not there is said before torch is imported
    if sys.stderr.isatty() and command in ("fit", "describe") and not asked.helping:
        say(f"Reading {', '.join(map(str, asked.configs))}")
    try:
        import fedlit.run.run  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"expected fedlit's dependencies, found that one cannot be imported: {error}; install fedlit again"
        ) from error
    _execute(asked, brief)


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
    from fedlit.train.logger import FederatedTensorBoardLogger

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


def _execute(asked: Asked, brief: bool) -> None:
    from fedlit.data.sources.tables import Tables
    from fedlit.exchange.named import check_left_out
    from fedlit.explain.clusters import CLUSTERS, in_words, judged
    from fedlit.files import read_named
    from fedlit.run.load import parse

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
            belong = in_words(judged(read_named(run.folder / CLUSTERS)))
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
