"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe``, for one federation or for a
mixture of parts.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.cli.commands import COMMANDS
from fedlit.errors import expect
from fedlit.exchange.place import refuse_ranks
from fedlit.mixture.folders import CONFIG, newest
from fedlit.mixture.settings import MixtureSettings
from fedlit.mixture.typed import typed_pairs
from fedlit.mixture.written import has_mixture, settings_of
from fedlit.run.arguments import Command, check_format, pairs_of, read
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.config import find_config, shown
from fedlit.run.keys import help_of
from fedlit.show.shown import for_terminal, say

if TYPE_CHECKING:
    from fedlit.mixture.mixture import Mixture
    from fedlit.run.run import Run


def _run(command: Command, *typed: str) -> None:
    arguments = [argument for argument in typed if argument != "--all"]
    brief = "--all" not in typed
    for position, argument in enumerate(arguments):
        flag, _, topic = argument.partition("=")
        if flag in ("-h", "--help"):
            following = "".join(arguments[position + 1 : position + 2])
            if not topic and not following.startswith("-"):
                topic = following
            print(help_of(command, COMMANDS[command].help, topic))
            return
    run: Run | Mixture
    if has_mixture(arguments):
        refuse_ranks("a mixture of several parts")
        run, checkpoint, style = _mixture(command, arguments)
    else:
        request = read(command, arguments)  # a missing file is reported before torch is imported
        if (sys.stderr.isatty() or len(request.configs) > 1) and not request.foreign:
            say(f"Reading {', '.join(map(shown, request.configs))}; runs are called {request.name}")
        from fedlit.run.load import parse

        run, config = parse(request)
        checkpoint = config.ckpt_path
        style = config.format
    repeated = ("--config", METHOD, "--name", "--trainer.default_root_dir")
    same_run = [pair for pair in pairs_of(arguments) if pair[0] in repeated]
    again = shlex.join(chain.from_iterable(same_run))
    if command == "describe":
        plan = run.describe()
        if style == "json":
            print(json.dumps(plan.to_dict(), indent=2, default=str))
        else:
            print(for_terminal(plan))
    elif command == "fit":
        _fit(run, checkpoint, brief, again)
    elif command == "predict":
        print(for_terminal(run.predict(checkpoint, format=style or "csv")))
    else:
        evaluate = run.test if command == "test" else run.validate
        evaluate(checkpoint, brief=brief)


def _mixture(command: str, typed: Sequence[str]) -> tuple[Mixture, str | None, str | None]:
    """Return the mixture, its ``--ckpt_path`` and its ``--format``."""
    configs, changed = typed_pairs(typed)
    expect(
        len(configs) == 1,
        "--config",
        "one, because a mixture cannot be built from several",
        len(configs),
    )
    checkpoint = changed.pop("ckpt_path", None)
    style = changed.pop("format", None)
    if style is not None:
        check_format(command, style)
    settings = _settings(command, find_config(configs[0]), changed, checkpoint)
    say(f"Reading {len(settings.parts)} parts of {settings.name}")
    from fedlit.mixture.mixture import Mixture

    return Mixture(settings), checkpoint, style


def _settings(
    command: str, config: Path, changed: dict[str, str], checkpoint: str | None
) -> MixtureSettings:
    """Return the settings of the file, or those of a trained run, with the typed changes."""
    settings = settings_of(config, changed)
    if command == "describe" or (command == "fit" and checkpoint is None):
        return settings
    run = newest(settings.root.absolute() / settings.name)
    if run is None or not (run / CONFIG).is_file():
        return settings
    origin = settings.origin
    run_origin = settings_of(run / CONFIG).origin
    expect(
        run_origin == origin,
        f"{run}",
        f"the newest run of {settings.name} to be made from {origin}",
        run_origin,
        "give --name",
    )
    say(f"Using the run's own configuration {shown(run / CONFIG)}")
    return settings_of(run / CONFIG, changed)


def _fit(run: Run | Mixture, checkpoint: str | None, brief: bool, again: str) -> None:
    from fedlit.run.run import Run

    if not isinstance(run, Run):
        run.fit(checkpoint, brief=brief)
        print(f"\nNext: fedlit test {again}")
        return
    from fedlit.exchange.named import check_left_out
    from fedlit.explain.clusters import CLUSTERS, judged
    from fedlit.files import read_named
    from fedlit.train.logger import FederatedTensorBoardLogger, board_address

    results = run.fit(checkpoint)
    printed = results.brief() if brief else results
    print(f"\n{for_terminal(printed)}\n")
    if run.folder is not None and (run.folder / CLUSTERS).is_file():
        belong = " | ".join(map(", ".join, judged(read_named(run.folder / CLUSTERS))))
        print(for_terminal(f"Clusters, by the majority of the last five exchanges: {belong}"))
    if run.last_checkpoint is not None and run.trainer is not None:
        stopped_early = run.loop.federation.ending.stop is not None
        if stopped_early and list(run.last_checkpoint.parent.glob("best-*.ckpt")):
            again += " --ckpt_path best"
        print(f"Next: fedlit test {again}")
    loggers = run.trainer.loggers if run.trainer is not None else []
    for logger in loggers:
        if not logger.log_dir:
            continue
        folder = shlex.quote(str(logger.log_dir))
        if isinstance(logger, FederatedTensorBoardLogger):
            print(f"Curves: tensorboard --logdir {folder}")
            print(f"        {board_address(results.main.name)}")
        else:
            print(f"Logged by {type(logger).__name__}: {folder}")
    check_left_out(run.exchange.incident_counts)


fit, validate, test, predict, describe = (
    partial(_run, command) for command in ("fit", "validate", "test", "predict", "describe")
)
