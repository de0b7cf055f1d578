"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``, for one federation or for a
mixture of parts.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.cli.commands import COMMANDS
from fedlit.errors import expect
from fedlit.exchange.place import refuse_ranks
from fedlit.mixture.settings import CONFIG, WEIGHTS, MixtureSettings, has_mixture, newest, settings_of, typed_pairs
from fedlit.run.arguments import Command, check_format, pairs_of, read, title
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.config import find_config
from fedlit.run.keys import help_of
from fedlit.show.shown import for_terminal, say

if TYPE_CHECKING:
    from fedlit.mixture.mixture import Mixture
    from fedlit.run.run import Run

MIXTURE_HELP = f"""A configuration of several parts (mixture:). Keys:
  --seed, --name, --folds, --workers, --trainer.default_root_dir
  --mixture.weights {" | ".join(WEIGHTS)}, or --mixture.weights.PART NUMBER
  --mixture.shrink ROWS, --mixture.admit, --mixture.by SCORE
  --parts.PART.KEY VALUE: any key of the part's configuration; --parts.PART.grid.SETTING [VALUES] of a local baseline
  --ckpt_path last: continue the newest run, or mix it anew
  --format: of describe table or json, of predict csv or parquet"""


def _run(command: Command, *typed: str) -> None:
    brief = command not in ("fit", "validate", "test") or "--all" not in typed
    words = [word for word in typed if brief or word != "--all"]
    made: Run | Mixture
    if has_mixture(words):
        refuse_ranks("a mixture of several parts")
        if any(word.partition("=")[0] in ("-h", "--help", "--print_config") for word in words):
            print(MIXTURE_HELP)
            return
        made, checkpoint, style = _mixture(command, words)
        name = made.settings.name
    else:
        asked = read(command, words)  # what is not there is said before torch is imported
        if asked.topic is not None:
            print(help_of(command, COMMANDS[command].help, asked.topic))
            return
        if sys.stderr.isatty() and command in ("fit", "describe") and not asked.help:
            say(f"Reading {', '.join(map(str, asked.configs))}")
        from fedlit.run.load import parse

        made, config = parse(asked)
        checkpoint, style, name = config.ckpt_path, config.format, made.name
    again = shlex.join(_again(words, name))
    if command == "describe":
        _describe(made, style, again)
    elif command == "fit":
        _fit(made, checkpoint, brief, again)
    elif command == "predict":
        print(for_terminal(made.predict(checkpoint, format=style or "csv")))
    else:
        (made.test if command == "test" else made.validate)(checkpoint, brief=brief)


def _mixture(command: str, typed: Sequence[str]) -> tuple[Mixture, str | None, str | None]:
    """Return the mixture, its ``--ckpt_path`` and its ``--format``."""
    configs, changed = typed_pairs(typed)
    expect(len(configs) == 1, "--config", "one, for a mixture cannot be put together of several", len(configs))
    checkpoint, style = changed.pop("ckpt_path", None), changed.pop("format", None)
    if style is not None:
        check_format(command, style)
    settings = _settings(command, find_config(configs[0]), changed, checkpoint)
    say(f"Reading {len(settings.parts)} parts of {settings.name}")
    from fedlit.mixture.mixture import Mixture

    return Mixture(settings), checkpoint, style


def _settings(command: str, config: Path, changed: dict[str, str], checkpoint: str | None) -> MixtureSettings:
    """Return the settings of the file, or those of a trained run, with the typed changes."""
    settings = settings_of(config, changed)
    if command == "describe" or (command == "fit" and checkpoint is None):
        return settings
    found = newest(settings.root.absolute() / settings.name)
    if found is None or not (found / CONFIG).is_file():
        return settings
    own, made = settings.origin, settings_of(found / CONFIG).origin
    expect(made == own, f"{found}", f"the newest run of {settings.name} to be made from {own}", made, "give --name")
    say(f"Using the run's own configuration {found / CONFIG}")
    return settings_of(found / CONFIG, changed)


def _describe(made: Run | Mixture, style: str | None, again: str) -> None:
    from fedlit.data.sources.tables import Tables

    plan = made.describe()
    if style == "json":
        print(json.dumps(plan.to_dict(), indent=2, default=str))
        return
    print(for_terminal(plan))
    data = getattr(made, "data", None)
    if data is not None and data.notes and isinstance(data.source, Tables):
        print(for_terminal(f"\nfedlit check {again} shows more about the tables."))


def _fit(run: Run | Mixture, checkpoint: Any, brief: bool, again: str) -> None:
    from fedlit.run.run import Run

    if not isinstance(run, Run):
        run.fit(checkpoint)
        print(f"\nNext: fedlit test {again}")
        return
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
    check_left_out(run.exchange.found)


def _again(words: Sequence[str], name: str) -> list[str]:
    """Return the arguments by which another command finds the run that these words made."""
    pairs = [("--config" if flag == "-c" else flag, value) for flag, value in pairs_of(words)]
    named = [pair for pair in pairs if pair[0] in ("--config", METHOD)]
    usual = title([Path(value) for _, value in sorted(named, key=lambda pair: pair[0] == METHOD)])
    more = [("--name", name)] if name != usual else []
    more += [pair for pair in pairs if pair[0] == "--trainer.default_root_dir"]
    return [word for pair in [*named, *more] for word in pair]


def _curves(run: Run) -> list[str]:
    """Describe how to view what was logged. TensorBoard selects no runs if it finds more than forty, so the command
    names the folder of this run only; each client has a run there.
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


fit, validate, test, predict, describe = (
    partial(_run, command) for command in ("fit", "validate", "test", "predict", "describe")
)
