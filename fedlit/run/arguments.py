"""Reads what is typed after a command, or given in Python, without torch. Missing files, unknown
keys and missing checkpoints are refused within a second.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, Told, did_you_mean, expect
from fedlit.run.allowed import NAMES, check_allowed, check_no_links, is_of_run, without_training
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.catalogue import PLAIN
from fedlit.run.config import (
    METHODS,
    find_config,
    flatten,
    known_configs,
    parse_yaml,
    read_settings,
    read_yaml,
    shown,
)
from fedlit.run.folders import CONFIG, check_name, run_folder, to_resume, to_score
from fedlit.run.keys import FORMATS, KEYS, check_keys
from fedlit.run.layers import DEFAULTS, Layer, laid, leaves
from fedlit.show.shown import say
from fedlit.train.whole import CHECKPOINTS, LAST
from fedlit.yaml_text import as_read, as_text, is_text

Command = Literal["fit", "validate", "test", "predict", "describe"]

ROOT = "lightning_logs"

_NO_METHODS = (
    "seed",
    "name",
    "ckpt_path",
    "format",
    "data.source",
    "data.leave_out",
    "trainer.default_root_dir",
)
"""Keys that say whose rows are used, or where a run lies: no method may set them."""
_MADE_FROM = "# made from "


@dataclass(frozen=True)
class Asked:
    """A command and its configuration.

    Attributes:
        command: the command.
        layers: the configuration in layers, each of which is laid over the previous ones.
        name: the name of the runs.
        configs: the files of the configuration.
        foreign: the files that somebody else may have written, for which only allowed classes are
            built.
        said: the words in the user's files that are no layers because a run's saved configuration
            replaces them.
    """

    command: Command
    layers: Sequence[Layer]
    name: str
    configs: Sequence[Path] = ()
    foreign: Sequence[Path] = ()
    said: frozenset[str] = frozenset()

    @cached_property
    def content(self) -> dict[str, Any]:
        """The whole configuration, as the parser gets it."""
        return laid([DEFAULTS, *self.layers])

    @property
    def own(self) -> list[Path]:
        """The configurations that the user wrote."""
        return [path for path in self.configs if path not in self.foreign and not is_of_run(path)]

    @property
    def words(self) -> set[str]:
        """All that the user has written. Classes among it are allowed."""
        return _words(self.layers) | self.said


def _words(layers: Sequence[Layer]) -> set[str]:
    by_user = [layer for layer in layers if layer.own]
    texts = {str(value) for _, value in leaves(by_user)}
    parts = (re.split(r"[\s=,{}\[\]'\"]+", text) for text in texts)
    return texts.union(*parts)


def title(configs: Sequence[Path]) -> str:
    """Return the name of the runs of these configurations. It contains all their names, because one
    base that is trained with different changes makes different kinds of runs.

    Example:
        >>> title([Path("quickstart.yaml"), Path("more.yaml")])
        'quickstart+more'
    """
    return "+".join(dict.fromkeys(path.stem for path in configs))


def made_from(configs: Sequence[Path]) -> str:
    """Return the first line of a run's configuration, which names the files that it came from."""
    return _MADE_FROM + " and ".join(" and ".join(map(str, origins(path))) for path in configs)


def origins(config: Path) -> list[Path]:
    """Return the files that a configuration came from: the file itself, or, for a run's
    configuration, the files that its first line names.
    """
    with config.open(encoding="utf-8", errors="replace") as file:
        head = file.readline(10_000).rstrip("\n")
    names = (
        head.removeprefix(_MADE_FROM).split(" and ") if head.startswith(_MADE_FROM) else [config]
    )
    return [Path(path) for path in names]


def read(
    command: Command,
    typed: Sequence[str] = (),
    *,
    overrides: Mapping[str, Any] | None = None,
    of_run: bool = False,
    trusted: Sequence[Path] = (),
) -> Asked:
    """Read what is typed after a command.

    Args:
        command: the command.
        typed: the words after the command.
        overrides: maps further keys to their values, which override what is typed; ``method`` is
            the name of a method.
        of_run: whether the configuration is that of a run, in whatever folder it is.
        trusted: files of the user from which it was made; what they name is allowed.

    Raises:
        ConfigError: an error that can be found without building a run: in files, keys, or
            checkpoints that do not exist.

    Example:
        >>> read("describe", ["--config", "quickstart"], overrides={"seed": 3}).content["seed"]
        3
    """
    inputs = _given(typed, overrides or {})
    configs = inputs.configs
    files = [*configs, *inputs.methods]
    foreign = [path for path in configs if of_run or is_of_run(path)]
    written = {
        path: Layer(read_settings(path), f"{shown(path)}: ")
        for path in configs
        if path not in foreign
    }
    trusted_layers = [Layer(read_yaml(path)) for path in trusted]
    texts = _words([*written.values(), *inputs.keys, *trusted_layers])
    layers = [written.get(path) or _foreign(path, texts, command) for path in configs]
    _check_layers(list(written.values()), layers, inputs)
    settings = dict(leaves([*layers, *inputs.keys]))
    if style := settings.get("format"):
        check_format(command, style)
    if "name" in settings:
        check_name(str(settings["name"]), "--name")
    keys = list(inputs.keys)
    checkpoint = _of_this_run(command, files, keys, settings)
    if checkpoint is not None:
        settings["ckpt_path"] = str(checkpoint)
        keys.append(Layer({"ckpt_path": str(checkpoint)}))
    name = str(settings.get("name") or title(files))
    root = Path(str(settings.get("trainer.default_root_dir") or ROOT))
    layers += [*_method_layers(inputs.methods), *keys]
    saved = _own_config(command, files, root, name, settings.get("ckpt_path"))
    if saved is not None:
        say(f"Using the run's own configuration {shown(saved)}")
        foreign = [*foreign, saved]
        layers = [_foreign(saved, texts, command), *keys]
    return Asked(command, layers, name, files, foreign, frozenset(texts))


@dataclass(frozen=True)
class _Given:
    """What was typed after a command, or given in Python: files of configurations and methods, and
    a layer for each other key.
    """

    configs: list[Path]
    methods: list[Path]
    keys: list[Layer]


def _given(typed: Sequence[str], overrides: Mapping[str, Any]) -> _Given:
    """Return the files and keys that were typed, and those that were given in Python."""
    files: dict[str, list[Path]] = {"--config": [], METHOD: []}
    keys = list[Layer]()
    pairs = [(flag, value, "--") for flag, value in pairs_of(typed)]
    pairs += [(f"--{key}", value, "") for key, value in overrides.items()]
    for flag, value, dashes in pairs:
        if flag not in files:
            keys.append(_layer(flag, value, dashes))
            continue
        name = dashes + flag.removeprefix("--")
        below = METHODS if flag == METHOD else ""
        path = find_config(value, below, what=name)
        if path in files[flag]:
            raise ConfigError(
                f"{name} {value}: expected each file once, found it twice; leave one out"
            )
        files[flag].append(path)
    return _Given(files["--config"], files[METHOD], keys)


def _check_layers(written: Sequence[Layer], layers: Sequence[Layer], given: _Given) -> None:
    """Refuse unknown keys in the user's files and among those that were typed, and no file at
    all.
    """
    for layer in written:
        check_keys(layer.values, layer.where)
    also = [key.replace(".init_args", "") for key, _ in leaves(layers)]
    for layer in given.keys:
        check_keys(layer.values, layer.where, also)
    if not layers:
        raise ConfigError(
            f"--config NAME: expected one of {', '.join(known_configs())}, or a file, found none"
        )


def _foreign(path: Path, words: Collection[str], command: Command) -> Layer:
    """Return the layer of a file that somebody else may have written, as far as the command reads
    it; ``words`` are those of the user.
    """
    check_no_links(path.parent)
    content = read_settings(path)
    if command != "fit":
        content = without_training(content)
    layer = Layer(content, f"{shown(path)}: ", own=False)
    check_allowed(layer.values, shown(path), words)
    check_keys(layer.values, layer.where)
    return layer


def layers_of(typed: Sequence[str]) -> list[Layer]:
    """Return a layer for each typed key, with its value."""
    return [_layer(flag, value) for flag, value in pairs_of(typed)]


def _layer(flag: str, value: Any, dashes: str = "--") -> Layer:
    """Return a layer with one key, which messages show after ``dashes``: in Python there are none.
    Brackets are parsed here. Names are taken as they are, and one name is a list of one; the type
    of the key determines what other plain text means.
    """
    key = flag.removeprefix("--")
    if isinstance(value, str) and value.startswith(("{", "[")):
        value = parse_yaml(value, dashes + key, key)
    elif isinstance(value, Mapping):
        value = as_read(value, key)
    elif isinstance(value, str) and is_text(key):
        value = None if value == "null" else as_text(value)
    if isinstance(value, str) and value != "null" and key.removesuffix("+") in NAMES:
        value = [value]
    return Layer({key: value}, dashes)


def _method_layers(methods: Sequence[Path]) -> list[Layer]:
    """Return the layers of a method, which are laid over all files. Below the method's file,
    everything that belongs to another method is reset to its default.
    """
    one = "one method; to put two together lay one over the other with --config"
    expect(len(methods) < 2, METHOD, one, Told(" and ".join(path.stem for path in methods)))
    layers = [Layer(read_settings(path), f"{shown(path)}: ", method=True) for path in methods]
    for layer in layers:
        wrong = [key for key, _ in flatten(dict(layer.values)) if key.startswith(_NO_METHODS)]
        makes = f"{METHOD} {layer.where}".removesuffix(": ")
        expect(
            not wrong,
            makes,
            "what makes a method",
            Told(", ".join(wrong)),
            "give the file with --config",
        )
    return [Layer(read_yaml(PLAIN), f"{PLAIN.name}: "), *layers] if layers else []


def pairs_of(typed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield flags and their values, one value for each flag.

    Raises:
        ConfigError: a flag has no value, or a value has no flag.
    """
    arguments = iter(typed)
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if not flag.startswith("--"):
            hint = (
                f" Did you mean --{argument}?" if flag in KEYS else did_you_mean(flag, KEYS, "--")
            )
            raise ConfigError(f"expected --KEY VALUE, found {argument!r} without two dashes.{hint}")
        if not equals:
            value = next(arguments, "")
            instead = Told(f"the next key, {value}" if value else "nothing")
            expect(bool(value) and not value.startswith("--"), flag, "a value after it", instead)
        yield flag, value


def check_format(command: str, style: str) -> None:
    """Refuse a ``--format`` that a command does not have."""
    styles = FORMATS.get(command, ())
    expect(
        style in styles,
        "--format",
        " or ".join(styles) or f"no format with {command}",
        style,
        known=styles,
    )


def _of_this_run(
    command: Command, configs: Sequence[Path], typed: Sequence[Layer], settings: Mapping[str, Any]
) -> Path | None:
    """Return the checkpoint of the run whose own configuration is given, which is not always the
    newest of its name; None if something else is asked for.
    """
    checkpoint_name = settings.get("ckpt_path")
    scores = command in ("validate", "test", "predict") and checkpoint_name in (
        None,
        "last",
        "best",
    )
    resumes = command == "fit" and checkpoint_name == "last"
    if not (scores or resumes) or len(configs) != 1 or not is_of_run(configs[0]):
        return None
    folder = configs[0].absolute().parent
    named = any({"name", "trainer.default_root_dir"} & layer.values.keys() for layer in typed)
    if (
        named
        or run_folder(folder / CHECKPOINTS / LAST) is None
        or not (folder / CHECKPOINTS).is_dir()
    ):
        return None
    purpose = "validation" if command == "validate" else command
    checkpoint, _ = to_score(
        folder.parent.parent, folder.parent.name, checkpoint_name, folder, purpose
    )
    return checkpoint


def _own_config(
    command: Command, configs: Sequence[Path], root: Path, name: str, checkpoint: Any
) -> Path | None:
    """Return the configuration with which the run was trained. It replaces the configuration of the
    files.

    Raises:
        ConfigError: there is no such run, it has no such checkpoint, or it belongs to another
            configuration.
    """
    if command in ("validate", "test", "predict"):
        purpose = "validation" if command == "validate" else command
        _, folder = to_score(root.absolute(), name, checkpoint, None, purpose)
    else:
        resumed = checkpoint if command == "fit" else None
        _, folder = to_resume(root.absolute(), name, resumed)
    if folder is None or not (folder / CONFIG).is_file():
        return None
    origin_of_run = made_from([folder / CONFIG])
    origin_of_configs = made_from(configs)
    how = "give --config and --method as there, --name, or --ckpt_path with a file"
    newest = checkpoint in (None, "last", "best")
    expect(
        origin_of_run == origin_of_configs or not newest,
        f"{folder}",
        f"the newest run of {name} {origin_of_configs[2:]}",
        Told(f"one {origin_of_run[2:]}"),
        how,
    )
    return folder / CONFIG
