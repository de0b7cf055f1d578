"""The commands that need torch: fit, validate, test, predict, describe. ``fedlit.__main__`` answers the light ones
without it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, FedlitError, did_you_mean
from fedlit.exchange.exchange import Exchange
from fedlit.run.config import find_config, flatten, known_configs, parse_yaml, read_yaml
from fedlit.run.folders import newest_run, run_folder
from fedlit.run.help import help_text, plain, topic_of
from fedlit.run.loggers import RunTrainer
from fedlit.run.run import Run
from fedlit.show.text import terminal_width
from fedlit.train.callbacks import Checkpoints
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop

__all__ = ["Command", "load", "option", "options", "parse"]

Command = Literal["fit", "validate", "test", "predict", "describe"]

ROOT = "lightning_logs"

MADE_FROM = "# made from "


class _Parser(LightningArgumentParser):
    """Errors are one message instead of a page of usage, and the help of classes has no markup."""

    def format_help(self, *args: Any) -> str:
        """What a class takes (``--data.source.help CLASS``); of the command itself see :mod:`fedlit.run.help`."""
        return plain(super().format_help(*args))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        known = [key for key in self.get_defaults(skip_validation=True).keys(branches=True)]
        unknown = re.search(r"(?:Option|[Kk]ey|argument[s]?:?)\s+['\"]?-*([\w.]+)", message)
        hint = did_you_mean(unknown.group(1), known) if unknown and unknown.group(1) not in known else ""
        raise ConfigError(message.strip().rstrip(".") + "." + hint + " (fedlit fit --help all lists all keys)") from ex


class FedlitCLI(LightningCLI):
    """Lightning's command line, with one flat set of keys for all commands, so that a run's saved ``config.yaml``
    serves them all.

    Args:
        command: what will be done with the run.
        args: command-line arguments behind the command, ``--config`` resolved to files.
        name: name of the runs where neither the arguments nor the configuration give one.
        config: the file that the run's configuration came from; noted in the saved one.
    """

    def __init__(self, command: Command, args: list[str], name: str, config: Path | None) -> None:
        self.default_name, self.made_from, self.command = name, config, command
        self.run: Run
        super().__init__(
            FederatedLoop,
            FederatedData,
            save_config_callback=None,
            trainer_class=RunTrainer,
            seed_everything_default=False,
            parser_kwargs={"prog": f"fedlit {command}", "allow_abbrev": False},
            parser_class=_Parser,
            args=args,
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
        """Parse, or help."""
        if (topic := topic_of(args)) is not None:
            print(help_text(parser, self.command, _DESCRIPTIONS[self.command], topic, terminal_width()))
            raise SystemExit(0)
        self.config = parser.parse_args(args)

    def _set_seed(self) -> None:
        """Nothing global is seeded."""

    def instantiate_classes(self) -> None:
        """Build the run instead of a bare Trainer."""
        settings = self.config.clone()
        settings.name = settings.name or self.default_name
        for key in ("config", "ckpt_path", "format"):
            settings.pop(key, None)
        text = self.parser.dump(settings, skip_link_targets=True, skip_unset=False, skip_validation=True)
        if self.made_from is not None:
            text = f"{MADE_FROM}{_origin(self.made_from)}\n{text}"
        try:
            ready = self.parser.instantiate(self.config)
        except FedlitError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the configuration could not be put together ({type(error).__name__}: {error})"
            ) from error
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


_DESCRIPTIONS: dict[str, str] = {
    "fit": "Train the federation of a configuration.",
    "validate": "Score the validation split of a trained run.",
    "test": "Score the test split of a trained run; prints a table and writes it as CSV and JSON.",
    "predict": "Write each client's predictions to a file.",
    "describe": "Show the plan: who has which rows and parameters, and what travels. Trains nothing.",
}


def _resolve(args: list[str]) -> tuple[list[str], list[Path]]:
    """Replace what stands behind each ``--config`` by the file that it means."""
    resolved, configs = [], []
    position = 0
    while position < len(args):
        flag, equals, value = args[position].partition("=")
        if flag in ("--config", "-c"):
            if not equals:
                position += 1
                if position == len(args):
                    raise ConfigError(
                        "--config: expected a configuration behind it, found nothing; for instance --config "
                        "quickstart.yaml"
                    )
                value = args[position]
            configs.append(find_config(value))
            read_yaml(configs[-1])
            resolved += ["--config", str(configs[-1])]
        else:
            written = value if equals else args[position]
            if written.startswith(("{", "[")):
                parse_yaml(written, "command line")
            resolved.append(args[position])
        position += 1
    return resolved, configs


def options(args: list[str]) -> list[tuple[str, str | None]]:
    """(flag, value) of every argument that is a flag, in order; the value may stand behind ``=`` or behind the flag."""
    pairs = []
    for arg, following in zip(args, [*args[1:], None], strict=True):
        flag, equals, value = arg.partition("=")
        if flag.startswith("-"):
            pairs.append((flag, value if equals else following))
    return pairs


def option(args: list[str], name: str) -> str | None:
    """The value of ``--name`` among arguments; the last one counts, as for the parser."""
    return dict(options(args)).get(name)


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
    return parse(command, ["--config", config, *args])[0]


def parse(command: Command, args: list[str]) -> tuple[Run, Any]:
    """The run that a command's arguments ask for, and all that was parsed."""
    args, configs = _resolve(args)
    helping = {"-h", "--help", "--print_config"} & {arg.partition("=")[0] for arg in args} or any(
        arg.partition("=")[0].endswith(".help") for arg in args
    )
    if not configs and not helping:
        raise ConfigError(f"expected --config NAME, found none; known by name are {', '.join(known_configs())}")
    name = _setting(args, configs, "name") or (configs[0].stem if configs else "fedlit")
    root = _setting(args, configs, "trainer.default_root_dir") or ROOT
    ckpt_path = _setting(args, configs, "ckpt_path")
    saved: Path | None = None
    if not helping and (command in ("validate", "test", "predict") or (command == "fit" and ckpt_path is not None)):
        saved = _run_config(configs[0], Path(root), name, ckpt_path)
    if saved is not None:
        print(f"Using the run's own configuration {saved}", file=sys.stderr)
        args = ["--config", str(saved), *_without_configs(args)]
    # A class of the user is found in the working directory and beside the configuration that names it.
    for folder in (*(str(path.parent) for path in configs), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    cli = FedlitCLI(command, args, name, configs[0] if configs else None)
    return cli.run, cli.config


def _setting(args: list[str], configs: list[Path], key: str) -> str | None:
    """The value of a key that says where runs are, before everything is parsed: command line, else the last file."""
    found = option(args, f"--{key}")
    for path in reversed(configs):
        node: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        found = found or node
    return found


def _run_config(config: Path, root: Path, name: str, ckpt_path: str | None) -> Path | None:
    """The configuration that the run in question was trained with, to take the place of the file's."""
    newest = ckpt_path in (None, "last", "best")
    folder = newest_run(root, name) if newest else run_folder(Path(str(ckpt_path)).absolute())
    saved = folder / "config.yaml" if folder is not None else None
    if saved is None or not saved.is_file():
        return None
    if newest and _origin(config) != _origin(saved):
        raise ConfigError(
            f"expected the newest run of {name} to be one of {_origin(config)}, found that {saved.parent} was "
            "made from "
            f"{_origin(saved)}; give --name, or --ckpt_path with a file"
        )
    return saved


def _origin(config: Path) -> Path:
    """The file that a configuration came from: itself, or what a run's saved one names in its first line."""
    head = config.read_text(encoding="utf-8").partition("\n")[0]
    return Path(head.removeprefix(MADE_FROM)) if head.startswith(MADE_FROM) else config


def _without_configs(args: list[str]) -> list[str]:
    pairs = zip(args, ["", *args], strict=False)
    return [arg for arg, before in pairs if arg != "--config" and before != "--config"]
