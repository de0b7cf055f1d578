"""The run of a configuration, by Lightning's command line."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentError
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import yaml
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, FedlitError, told_as
from fedlit.exchange.exchange import Exchange
from fedlit.run.allowed import only_allowed, trusted
from fedlit.run.arguments import ROOT, Asked, Command, class_folders, made_from, read
from fedlit.run.config import flatten, read_yaml
from fedlit.run.help import help_text, plain, topic_of
from fedlit.run.loggers import RunTrainer
from fedlit.run.messages import given_in, in_one_line, why_not_made, why_refused
from fedlit.run.optimizers import own_defaults
from fedlit.run.run import Run
from fedlit.show.text import terminal_width
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop

__all__ = ["load", "parse"]


class _Parser(LightningArgumentParser):
    """Errors are one message instead of a page of usage, and the help of classes has no markup."""

    def format_help(self, *args: Any) -> str:
        """What a class takes (``--data.source.help CLASS``); of the command itself see :mod:`fedlit.run.help`."""
        return plain(super().format_help(*args))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ArgumentError(None, message) from ex


class FedlitCLI(LightningCLI):
    """Lightning's command line, with one flat set of keys for all commands, so that a run's saved ``config.yaml``
    serves them all.

    Args:
        asked: what will be done, with what.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.run: Run
        super().__init__(
            FederatedLoop,
            FederatedData,
            save_config_callback=None,
            trainer_class=RunTrainer,
            seed_everything_default=False,
            parser_kwargs={"prog": f"fedlit {asked.command}", "allow_abbrev": False},
            parser_class=_Parser,
            args=asked.args,
            run=False,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
        )

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The run's own keys. There is no ``seed_everything``: no global generator is used."""
        parser.add_argument(
            "--name",
            type=str | None,
            default=None,
            help="Folder of the runs in lightning_logs (default: the config's name).",
        )
        parser.add_argument(
            "--seed", type=int, default=0, help="The run's seed: splits, initial values, order of rows, dropout."
        )
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="Checkpoint: last, best, or a file.")
        parser.add_argument(
            "--format", type=str | None, default=None, help="describe: table or json; predict: csv or parquet."
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The exchange, the checkpoints, and what TensorBoard shows."""
        parser.add_class_arguments(Exchange, "exchange")
        # so that --exchange.rule.weights works where a file names no rule
        parser.set_defaults({"exchange.rule": {"class_path": "fedlit.Mean"}})
        parser.add_class_arguments(Checkpoints, "checkpoint")
        parser.add_class_arguments(BoardSettings, "board")
        parser.link_arguments("seed", "model.seed")
        parser.link_arguments("seed", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, or help; what is refused is said in fedlit's words."""
        if (topic := topic_of(args)) is not None:
            print(help_text(parser, self.asked.command, _DESCRIPTIONS[self.asked.command], topic, terminal_width()))
            raise SystemExit(0)
        given = given_in(self.asked.args)
        try:
            self.config = parser.parse_args(args)
        except FedlitError:
            raise
        except ArgumentError as error:
            raise ConfigError(in_one_line(str(error), given)) from error
        except Exception as error:
            raise why_refused(error, given) from error
        own_defaults(self.config, self.asked.args)

    def _set_seed(self) -> None:
        """Seed nothing global."""

    def instantiate_classes(self) -> None:
        """Build the run instead of a bare Trainer."""
        settings = self.config.clone()
        settings.name = settings.name or self.asked.name
        for key in ("config", "ckpt_path", "format"):
            settings.pop(key, None)
        text = self.parser.dump(settings, skip_link_targets=True, skip_unset=False, skip_validation=True)
        if self.asked.configs:
            text = f"{made_from(self.asked.configs)}\n{text}"
        with told_as(lambda error: why_not_made(error, given_in(self.asked.args))):
            ready = self.parser.instantiate(self.config)
        trainer = {key: value for key, value in vars(ready.trainer).items() if value is not None}
        self.run = Run(
            ready.model,
            ready.data,
            ready.exchange,
            name=settings.name,
            root=trainer.pop("default_root_dir", None) or ROOT,
            checkpoints=ready.checkpoint,
            board=ready.board,
            settings=dict(flatten(yaml.safe_load(text))),
            config_text=text,
            **trainer,
        )


def keys_of_parser() -> dict[str, list[str]]:
    """Group → its keys, as the parser has them; keys without a group stand under the empty name.

    After a change of keys write them anew, in ``fedlit/run/keys.json``:
    ``python -c "import json; from fedlit.run.load import keys_of_parser; print(json.dumps(keys_of_parser()))"``
    """

    class Parsed(FedlitCLI):
        def instantiate_classes(self) -> None: ...

    parser = Parsed(read("fit", ["--config", "quickstart"])).parser
    keys = parser.get_defaults(skip_validation=True).as_dict()
    groups = {group: sorted(own) for group, own in sorted(keys.items()) if isinstance(own, dict)}
    return {"": sorted(set(keys) - set(groups) - {"config"}), **groups}


_DESCRIPTIONS: dict[str, str] = {
    "fit": "Train the federation of a configuration.",
    "validate": "Score the validation split of a trained run; --all shows every score.",
    "test": "Score the test split of a trained run; prints the main score, loss and accuracy (--all: every score) and "
    "writes all as CSV and JSON. Classes of your own that a run names: fedlit test --config NAME --trust MODULE.",
    "predict": "Write each client's predictions for a split of its table. "
    "New rows: fedlit predict --run RUN --client NAME --data FILE.",
    "describe": "Show the plan: who has which rows and parameters, and what travels. Trains nothing.",
}


def load(config: str, *args: str, command: Command = "fit") -> Run:
    """The run of a configuration.

    Args:
        config: its name or path.
        args: keys to change, as on the command line: ``"--trainer.max_epochs=3"``.
        command: with ``test``, ``validate`` or ``predict`` the newest run's *own* saved configuration, changed by
            ``args``, takes the place of the file's.

    Raises:
        ConfigError: the configuration is not valid.

    Example:
        >>> run = load("quickstart.yaml", "--trainer.max_epochs=2")
        >>> sorted(run.describe().clients)
        ['breast_cancer', 'digits', 'wine']
    """
    return parse(read(command, ["--config", config, *args], "fedlit.load"))[0]


def parse(asked: Asked) -> tuple[Run, Any]:
    """The run that is asked for, and all that was parsed."""
    # A class of the user is found in the working directory and beside the configuration that names it.
    here = [str(Path.cwd())] if asked.own or not asked.foreign or trusted() else []
    for folder in (*class_folders(*asked.own), *here):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    folders = [path.parent for path in asked.foreign]
    with only_allowed(_typed_classes(asked), folders) if asked.foreign else nullcontext():
        cli = FedlitCLI(asked)
    return cli.run, cli.config


def _typed_classes(asked: Asked) -> list[str]:
    """Return the classes that users have named themselves, on the command line or in a configuration of their own."""
    own = [read_yaml(path) for path in asked.own]
    texts = [*asked.typed, *(str(value) for content in own for _, value in flatten(content))]
    return [name for text in texts for name in re.findall(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", text)]
