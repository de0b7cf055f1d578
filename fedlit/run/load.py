"""Builds the run of a configuration with Lightning's parser."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import set_dumper, set_loader
from jsonargparse.typing import register_type
from lightning.pytorch.cli import LightningArgumentParser

from fedlit import yaml_text
from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, told_as
from fedlit.exchange.exchange import Exchange
from fedlit.names import Word
from fedlit.run.allowed import only_allowed
from fedlit.run.arguments import ROOT, Asked, Command, made_from, read
from fedlit.run.early_stopping import with_stop
from fedlit.run.folders import CONFIG
from fedlit.run.layers import given_in
from fedlit.run.messages import why_refused
from fedlit.run.modules import find_modules
from fedlit.run.resolved import Resolved
from fedlit.run.run import Run
from fedlit.run.scoring import ScoreSettings
from fedlit.run.trainer import RunTrainer
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop

_YAML = "fedlit"
"""What jsonargparse knows fedlit's YAML by."""


@cache
def _parser() -> LightningArgumentParser:
    """Return the parser, with one flat set of keys for all commands, so that a run's saved
    ``config.yaml`` is valid for all of them. There is no ``seed_everything``, because no global
    generator is used.
    """
    register_type(Word, serializer=lambda word: word, type_check=isinstance)
    set_loader(_YAML, yaml_text.load_dumped, exceptions=(yaml.YAMLError,))
    set_dumper(_YAML, yaml_text.dump)
    parser = LightningArgumentParser(
        prog="fedlit", description="", parser_mode=_YAML, exit_on_error=False, allow_abbrev=False
    )
    for key, kind, default, about in (
        ("name", str | None, None, "Folder of the runs (default: the config's name)."),
        ("seed", int, 0, "Seed of splits, initial values, the order of rows and dropout."),
        ("ckpt_path", str | None, None, "Checkpoint: last, best, or a file."),
        (
            "format",
            str | None,
            None,
            "Format of the output. describe: table or json; predict: csv or parquet.",
        ),
    ):
        parser.add_argument(f"--{key}", type=kind, default=default, help=about)
    parser.add_lightning_class_args(FederatedData, "data")
    parser.add_lightning_class_args(FederatedLoop, "model")
    parser.add_class_arguments(Exchange, "exchange")
    parser.set_defaults({
        "model.optimizer": None,  # see fedlit.run.layers.DEFAULTS
        "exchange.rule": {"class_path": "fedlit.Mean"},  # for --exchange.rule.weights alone
    })  # fmt: skip
    parser.add_class_arguments(Checkpoints, "checkpoint")
    parser.add_class_arguments(BoardSettings, "board")
    parser.add_class_arguments(ScoreSettings, "score")
    parser.add_lightning_class_args(RunTrainer, "trainer")
    parser.link_arguments("seed", "model.seed")
    parser.link_arguments("seed", "data.seed")
    return parser


def load(
    config: str | Path,
    *args: str,
    overrides: Mapping[str, Any] | None = None,
    command: Command = "fit",
    of_run: bool = False,
    trusted: tuple[Path, ...] = (),
) -> Run:
    """Load the run of a configuration.

    Args:
        config: the name or path of the configuration.
        args: keys to change, written as on the command line: ``"--trainer.max_epochs=3"``.
        overrides: maps keys to change to their values, which are Python objects and override
            ``args``: ``{"trainer.max_epochs": 3}``. ``{"method": "fedprox"}`` applies a method's
            configuration to the file, before all other changes.
        command: with ``test``, ``validate`` or ``predict``, the saved configuration of the newest
            run, changed by ``args`` and ``overrides``, replaces the file's.
        of_run: whether the configuration is that of a run, which may have been copied from
            elsewhere: only allowed classes are built (see :mod:`fedlit.run.allowed`).
        trusted: files of the user from which it was made; the classes that they name are allowed.

    Raises:
        ConfigError: the configuration is not valid.

    Example:
        >>> run = load("quickstart.yaml", overrides={"trainer.max_epochs": 2})
        >>> sorted(run.describe().clients)
        ['north', 'south', 'west']
    """
    typed = ["--config", str(config), *args]
    return parse(read(command, typed, overrides=overrides, of_run=of_run, trusted=trusted))[0]


def run_of(folder: Path) -> Run:
    """Load the run of a run's folder, from its saved configuration.

    Raises:
        ConfigError: the folder has no configuration.
    """
    if not (folder / CONFIG).is_file():
        raise ConfigError(
            f"{folder}: expected the run's config.yaml, found none; a run that was made in Python "
            "has none: there, use run.client(name)"
        )
    return load(folder / CONFIG, command="describe", of_run=True)


def parse(asked: Asked) -> tuple[Run, Any]:
    """Build the run, and return it with all that was parsed.

    Raises:
        ConfigError: a key or a value is refused.
    """
    find_modules(asked)
    folders = [path.parent for path in asked.foreign]
    typed_values = given_in(asked.layers)
    with (
        only_allowed(asked.words, folders) if asked.foreign else nullcontext(),
        told_as(lambda error: why_refused(error, typed_values)),
    ):
        parser = _parser()
        config = parser.parse_object(with_stop(asked.content))
        settings = config.clone()
        settings.name = settings.name or asked.name
        for key in ("ckpt_path", "format"):
            settings.pop(key, None)
        with warnings.catch_warnings():  # a default of a class of Lightning's may be no plain value
            warnings.filterwarnings("ignore", r"\s*Unable to serialize instance")
            text = parser.dump(
                settings, skip_link_targets=True, skip_unset=False, skip_validation=True
            )
        ready = parser.instantiate(config)
    head = made_from(asked.configs) if asked.configs else ""
    trainer = {key: value for key, value in vars(ready.trainer).items() if value is not None}
    run = Run(
        ready.model,
        ready.data,
        ready.exchange,
        name=settings.name,
        root=trainer.pop("default_root_dir", None) or ROOT,
        checkpoints=ready.checkpoint,
        board=ready.board,
        score=ready.score,
        config=Resolved(yaml.safe_load(text), head),
        **trainer,
    )
    return run, config
