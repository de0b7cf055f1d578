"""Reads what is typed after a command, or given in Python, without torch. Missing files, unknown keys and missing
checkpoints are refused within a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, expect
from fedlit.run.allowed import check_allowed, check_no_links, is_of_run
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.catalogue import PLAIN
from fedlit.run.config import METHODS, find_config, flatten, known_configs, parse_yaml, read_yaml, shown
from fedlit.run.folders import check_name, newest_run, run_folder, to_resume, to_score
from fedlit.run.keys import GROUPS, check_file, check_key
from fedlit.run.layers import DEFAULTS, Layer, laid
from fedlit.show.shown import say

Command = Literal["fit", "validate", "test", "predict", "describe"]

ROOT = "lightning_logs"

_NO_METHODS = ("seed", "name", "ckpt_path", "format", "data.source", "data.leave_out", "trainer.default_root_dir")
"""Keys that say whose rows are used, or where a run lies: no method may set them."""
_MADE_FROM = "# made from "
_FORMATS = {"describe": ("table", "json"), "predict": ("csv", "parquet")}


@dataclass(frozen=True)
class Asked:
    """A command and its configuration.

    Attributes:
        command: the command.
        layers: the configuration in layers, each of which is laid over the previous ones.
        name: the name of the runs.
        configs: the files of the configuration.
        foreign: the files that somebody else may have written, for which only allowed classes are built.
        help: maps each flag such as ``--help`` to the word after it; a run is built only if there are no such flags.
        said: the words in the user's files that are no layers because a run's saved configuration replaces them.
    """

    command: Command
    layers: Sequence[Layer]
    name: str
    configs: Sequence[Path] = ()
    foreign: Sequence[Path] = ()
    help: Mapping[str, str] = field(default_factory=dict)
    said: frozenset[str] = frozenset()

    @cached_property
    def content(self) -> dict[str, Any]:
        """The whole configuration, as the parser gets it."""
        return laid([DEFAULTS, *self.layers])

    @property
    def topic(self) -> str | None:
        """The word after ``--help``; None if nobody asked for help about keys."""
        return self.help.get("--help", self.help.get("-h"))

    @property
    def own(self) -> list[Path]:
        """The configurations that the user wrote."""
        return [path for path in self.configs if path not in self.foreign and not is_of_run(path)]

    @property
    def words(self) -> set[str]:
        """All that the user has written. Classes among it are allowed."""
        return _words(self.layers) | self.said


def _words(layers: Sequence[Layer]) -> set[str]:
    texts = {str(value) for layer in layers if layer.own for _, value in flatten(dict(layer.values))}
    return texts | {word for text in texts for word in re.split(r"[\s=,{}\[\]'\"]+", text)}


def title(configs: Sequence[Path]) -> str:
    """Return the name of the runs of these configurations. It contains all their names, because one base that is
    trained with different changes makes different kinds of runs.

    Example:
        >>> title([Path("quickstart.yaml"), Path("more.yaml")])
        'quickstart+more'
    """
    return "+".join(dict.fromkeys(path.stem for path in configs))


def made_from(configs: Sequence[Path]) -> str:
    """Return the first line of a run's configuration, which names the files that it came from."""
    return _MADE_FROM + " and ".join(" and ".join(map(str, origins(path))) for path in configs)


def origins(config: Path) -> list[Path]:
    """Return the files that a configuration came from: the file itself, or, for a run's configuration, the files that
    its first line names.
    """
    with config.open(encoding="utf-8", errors="replace") as file:
        head = file.readline(10_000).rstrip("\n")
    own = head.removeprefix(_MADE_FROM).split(" and ") if head.startswith(_MADE_FROM) else [config]
    return [Path(path) for path in own]


def read(
    command: Command,
    typed: Sequence[str] = (),
    source: str = "",
    *,
    overrides: Mapping[str, Any] | None = None,
    of_run: bool = False,
    trusted: Sequence[Path] = (),
) -> Asked:
    """Read what is typed after a command.

    Args:
        command: the command.
        typed: the words after the command.
        source: the name of the caller that gives the configurations, if nobody typed ``--config``.
        overrides: maps further keys to their values, which override what is typed; ``method`` is the name of a method.
        of_run: whether the configuration is that of a run, in whatever folder it is.
        trusted: files of the user from which it was made; what they name is allowed.

    Raises:
        ConfigError: an error that can be found without building a run: in files, keys, or checkpoints that do not
            exist.

    Example:
        >>> read("describe", ["--config", "quickstart"], overrides={"seed": 3}).content["seed"]
        3
    """
    helping, words = _apart(typed)
    configs, methods = list[Path](), list[Path]()
    typed_layers = []
    for flag, value in [*pairs_of(words), *((f"--{key}", value) for key, value in (overrides or {}).items())]:
        if flag in ("--config", "-c", METHOD):
            found = find_config(value, METHODS) if flag == METHOD else find_config(value, what=source and f"{source}:")
            if found in (*configs, *methods):
                raise ConfigError(f"{flag} {value}: expected each configuration once, found it twice; leave one out")
            (methods if flag == METHOD else configs).append(found)
        else:
            typed_layers.append(_layer(flag, value))
    foreign = [path for path in configs if of_run or is_of_run(path)]
    files = [Layer(read_yaml(path), f"{shown(path)}: ", own=path not in foreign) for path in configs]
    own = _words([*files, *typed_layers, *(Layer(read_yaml(path)) for path in trusted)])
    for path, layer in zip(configs, files, strict=True):
        if path in foreign:
            check_no_links(path.parent)
            check_allowed(layer.values, shown(path), own)
        check_file(layer.values, shown(path))
    laid_over = _method_layers(methods) if configs else []
    for layer in typed_layers:
        _check_typed(layer, files)
    if not configs and not helping:
        raise ConfigError(f"expected --config NAME, found none; known by name are {', '.join(known_configs())}")
    configs += methods if configs else []
    settings = {key: value for layer in [*files, *typed_layers] for key, value in flatten(dict(layer.values))}
    if style := settings.get("format"):
        check_format(command, style)
    name = settings.get("name")
    if name is not None:
        check_name(str(name), "--name")
    name = str(name or title(configs) or "fedlit")
    layers = [*files, *laid_over, *typed_layers]
    root, checkpoint = Path(settings.get("trainer.default_root_dir") or ROOT), settings.get("ckpt_path")
    saved = None if helping else _own_config(command, configs, root, name, checkpoint)
    if saved is not None:
        say(f"Using the run's own configuration {saved}")
        check_no_links(saved.parent)
        kept = Layer(read_yaml(saved), f"{shown(saved)}: ", own=False)
        check_allowed(kept.values, shown(saved), own)
        foreign.append(saved)
        layers = [kept, *typed_layers]
    elif len(configs) > 1 and not source and not helping:
        base, *more = (path.name for path in configs)
        say(f"Settings of {base}, changed by {', then '.join(more)}; runs are called {name}")
    return Asked(command, layers, name, configs, tuple(foreign), helping, frozenset(own))


def _apart(typed: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the flags that ask for help, with the words after them, and the other words."""
    helping, words, asks = dict[str, str](), list[str](), ""
    for word in typed:
        flag, _, value = word.partition("=")
        if flag in ("-h", "--help", "--print_config") or (flag.startswith("--") and flag.endswith(".help")):
            helping[flag], asks = value, flag
        elif asks and not helping[asks] and not word.startswith("-"):
            helping[asks] = word
        else:
            words.append(word)
            asks = ""
    return helping, words


def layers_of(typed: Sequence[str]) -> list[Layer]:
    """Return a layer for each typed key, with its value."""
    return [_layer(flag, value) for flag, value in pairs_of(typed)]


def _layer(flag: str, value: Any) -> Layer:
    """Return a layer with one key. Brackets are parsed here; the type of the key determines what plain text means."""
    brackets = isinstance(value, str) and value.startswith(("{", "["))
    return Layer({flag.removeprefix("--"): parse_yaml(value, flag) if brackets else value})


def _method_layers(methods: Sequence[Path]) -> list[Layer]:
    """Return the layers of a method, which are laid over all files. Below the method's file, everything that belongs to
    another method is reset to its default.
    """
    if len(methods) > 1:
        named = " and ".join(path.stem for path in methods)
        raise ConfigError(
            f"{METHOD}: expected one method, found {named}; to put two together write a YAML file of your own, or lay "
            "one over the other with --config"
        )
    layers = [Layer(read_yaml(path), f"{shown(path)}: ", method=True) for path in methods]
    for layer in layers:
        if wrong := [key for key, _ in flatten(dict(layer.values)) if key.startswith(_NO_METHODS)]:
            raise ConfigError(
                f"{METHOD} {layer.where}expected what makes a method, found {', '.join(wrong)}; put that into a "
                "configuration of its own: --config FILE"
            )
    return [Layer(read_yaml(PLAIN), f"{PLAIN.name}: "), *layers] if layers else []


def pairs_of(typed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield flags and their values, one value for each flag.

    Raises:
        ConfigError: a flag has no value, or a value has no flag.
    """
    words = iter(typed)
    for word in words:
        flag, equals, value = word.partition("=")
        if not flag.startswith("-"):
            name = flag if flag.endswith(".yaml") else f"{flag}.yaml"
            meant = f"--{word}" if equals else f"--config {flag}" if name in known_configs() else ""
            hint = f" Did you mean {meant}?" if meant else ""
            raise ConfigError(f"expected --KEY VALUE, found {word!r} without a key.{hint}")
        if not flag.startswith("--") and flag != "-c":
            raise ConfigError(f"expected a key with two dashes, found {flag}. Did you mean -{flag}?")
        if not equals:
            value = next(words, "")
            if not value or value.startswith("--"):
                if flag != "-c":
                    check_key(flag.removeprefix("--"))
                found = f"the next key, {value}" if value else "nothing"
                raise ConfigError(f"{flag}: expected a value after it, found {found}")
        yield flag, value


def _check_typed(layer: Layer, files: Sequence[Layer]) -> None:
    """Refuse an unknown key. The message suggests similar keys, including those of the files' classes."""
    ((key, value),) = layer.values.items()
    check_key(key, also=[own.replace(".init_args", "") for file in files for own, _ in flatten(dict(file.values))])
    if key in GROUPS and not isinstance(value, Mapping):
        raise ConfigError(f"--{key}: expected its keys, such as --{key}.{GROUPS[key][0]}, found {value!r} for all")


def check_format(command: str, style: str) -> None:
    """Refuse a ``--format`` that a command does not have."""
    styles = _FORMATS.get(command, ())
    expect(style in styles, "--format", " or ".join(styles) or f"none with {command}", style, known=styles)


def _own_config(command: Command, configs: Sequence[Path], root: Path, name: str, checkpoint: Any) -> Path | None:
    """Return the configuration with which the run was trained. It replaces the configuration of the files.

    Raises:
        ConfigError: there is no such run, it has no such checkpoint, or it belongs to another configuration.
    """
    scoring = command in ("validate", "test", "predict")
    if not scoring and (command != "fit" or checkpoint is None):
        return None
    newest = checkpoint in (None, "last", "best")
    folder = newest_run(root, name) if newest else run_folder(Path(str(checkpoint)).absolute())
    saved = folder / "config.yaml" if folder is not None else None
    if saved is not None and not saved.is_file():
        saved = None
    if saved is not None and newest and made_from(configs) != made_from([saved]):
        raise ConfigError(
            f"expected the newest run of {name} to be {made_from(configs)[2:]}, found that {saved.parent} was "
            f"{made_from([saved])[2:]}; give --config and --method as there, --name, or --ckpt_path with a file"
        )
    if scoring:
        to_score(root.absolute(), name, checkpoint, None, "validation" if command == "validate" else command)
    else:
        to_resume(root.absolute(), name, checkpoint)
    return saved
