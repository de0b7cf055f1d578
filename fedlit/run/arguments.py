"""What is typed behind a command, read without torch: files, keys and checkpoints that are not there are refused within
a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.allowed import check_allowed, check_no_links, is_of_run
from fedlit.run.catalogue import FLAG as METHOD
from fedlit.run.catalogue import PLAIN, find_method
from fedlit.run.config import find_config, flatten, known_configs, parse_yaml, read_yaml, shown
from fedlit.run.folders import check_name, newest_run, run_folder, to_resume, to_score
from fedlit.run.keys import GROUPS, check_class_path, check_file, check_key
from fedlit.show.shown import say

__all__ = ["ROOT", "Asked", "Command", "class_folders", "made_from", "origins", "pairs_of", "read", "title"]

Command = Literal["fit", "validate", "test", "predict", "describe"]

ROOT = "lightning_logs"

_NO_METHODS = ("seed", "name", "ckpt_path", "format", "data.source", "data.leave_out", "trainer.default_root_dir")
"""Keys that begin so say whose rows there are, or where a run lies: of a method they would be a surprise."""
_MADE_FROM = "# made from "
_FORMATS = {"describe": ("table", "json"), "predict": ("csv", "parquet")}


@dataclass(frozen=True)
class Asked:
    """The request of a command line.

    Attributes:
        command: the command.
        typed: what was typed behind it.
        args: the same with files in the place of names; those of a trained run in the place of the configurations'.
        configs: the configurations, each over those before it.
        name: of the runs.
        helping: whether keys are asked for, and no run.
        foreign: configurations that somebody else may have written, so that only allowed classes are built.
    """

    command: Command
    typed: list[str]
    args: list[str]
    configs: list[Path]
    name: str
    helping: bool
    foreign: tuple[Path, ...] = ()

    @property
    def own(self) -> list[Path]:
        """The user's own configurations."""
        return [path for path in self.configs if path not in self.foreign and not is_of_run(path)]


def title(configs: list[Path]) -> str:
    """What runs of these configurations are called: the name of all, for a base trained twice with other changes makes
    two kinds of runs.

    Example:
        >>> title([Path("quickstart.yaml"), Path("more.yaml")])
        'quickstart+more'
    """
    return "+".join(dict.fromkeys(path.stem for path in configs))


def made_from(configs: list[Path]) -> str:
    """The first line of a run's own configuration: the files that it came from."""
    return _MADE_FROM + " and ".join(_origin(path) for path in configs)


def origins(config: Path) -> list[Path]:
    """The files that a run's own configuration came from, as its first line has them; they may be gone."""
    return [Path(path) for path in _origin(config).split(" and ")]


def _origin(*configs: Path) -> str:
    """The files that configurations came from: themselves, or what a run's own says in its first line."""
    heads = {path: _head(path) for path in configs}
    return " and ".join(
        head.removeprefix(_MADE_FROM) if head.startswith(_MADE_FROM) else str(path) for path, head in heads.items()
    )


def _head(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(10_000).rstrip("\n")


def class_folders(*configs: Path) -> list[str]:
    """Return where a user's class may lie: beside the user's own configurations that name it."""
    return [str(path.parent) for path in dict.fromkeys(configs)]


def read(
    command: Command, typed: list[str], source: str = "", *, of_run: bool = False, trusted: Sequence[Path] = ()
) -> Asked:
    """Read what is typed behind a command.

    Args:
        command: the command.
        typed: what is behind it.
        source: who names the configurations, where nobody typed ``--config``.
        of_run: whether the configuration is a run's own, wherever it lies.
        trusted: files of the user's own from which it was made; what they name is allowed.

    Raises:
        ConfigError: what can be known to be wrong without building a run: files, keys, classes of fedlit, checkpoints
            that do not exist.

    Example:
        >>> read("describe", ["--config", "quickstart"]).name
        'quickstart'
    """
    helping = any(
        flag in ("-h", "--help", "--print_config") or flag.endswith(".help")
        for flag in (arg.partition("=")[0] for arg in typed)
    )
    pairs, configs, args = _collected(typed, source, helping=helping)
    foreign = [path for path in configs if of_run or is_of_run(path)]
    own: list[Path | str] = [*(path for path in configs if path not in foreign), *trusted, *typed]
    for path in foreign:
        check_no_links(path.parent)
        check_allowed(path, own)
    contents = [read_yaml(path) for path in configs]
    for content, path in zip(contents, configs, strict=True):
        check_file(content, shown(path))
    if helping:
        return Asked(command, typed, args, configs, title(configs) or "fedlit", helping, tuple(foreign))
    of_classes = [key.replace(".init_args", "") for content in contents for key, _ in flatten(content)]
    for flag, value in pairs:
        _check_flag(flag, str(value), of_classes)
    if not configs:
        raise ConfigError(f"expected --config NAME, found none; known by name are {', '.join(known_configs())}")
    given = dict(pairs)
    if style := given.get("--format"):
        _check_format(command, style)

    def setting(key: str) -> str | None:
        """Return the value of a key that says where runs are: that of the command line, else of the last file."""
        found: Any = given.get(f"--{key}")
        for content in reversed(contents):
            found = found or dict(flatten(content)).get(key)
        return None if found is None else str(found)

    name = setting("name")
    if name is not None:
        check_name(name, "--name")
    name = name or title(configs)
    root, checkpoint = Path(setting("trainer.default_root_dir") or ROOT), setting("ckpt_path")
    saved = _own_config(command, configs, root, name, checkpoint)
    if saved is not None:
        say(f"Using the run's own configuration {saved}")
        check_no_links(saved.parent)
        check_allowed(saved, own)
        foreign.append(saved)
        args = ["--config", str(saved), *(f"{flag}={value}" for flag, value in pairs)]
    elif len(configs) > 1 and not source:
        say(_put_together(configs, contents, name))
    return Asked(command, typed, args, configs, name, helping, tuple(foreign))


def _collected(typed: list[str], source: str, *, helping: bool) -> tuple[list[tuple[str, Any]], list[Path], list[str]]:
    """Keys and values that are typed, the configurations, and both as arguments. A method's configuration lies over all
    others, in which whatever makes another method goes back to its default, and below what is typed.
    """
    pairs: list[tuple[str, Any]] = []
    configs, methods, args = list[Path](), list[Path](), list[str]()
    for flag, value in pairs_of(typed) if not helping else _as_typed(typed):
        if flag in ("--config", "-c", METHOD) and value is not None:
            found = find_method(value) if flag == METHOD else find_config(value, what=source and f"{source}:")
            if found in (*configs, *methods):
                raise ConfigError(f"{flag} {value}: expected each configuration once, found it twice; leave one out")
            (methods if flag == METHOD else configs).append(found)
            args += [] if flag == METHOD else ["--config", str(found)]
        else:
            pairs.append((flag, value))
            args += [flag] if value is None else [f"{flag}={value}"] if flag else [value]
    if len(methods) > 1:
        named = " and ".join(path.stem for path in methods)
        raise ConfigError(
            f"{METHOD}: expected one method, found {named}; to put two together write a YAML file of your own, or lay "
            "one over the other with --config"
        )
    for path in methods:
        said = dict(flatten(read_yaml(path)))
        if wrong := [key for key in said if key.startswith(_NO_METHODS)]:
            raise ConfigError(
                f"{METHOD} {shown(path)}: expected what makes a method, found {', '.join(wrong)}; put that into a "
                "configuration of its own: --config FILE"
            )
    if methods and configs:
        place = max(at for at, arg in enumerate(args) if arg == "--config") + 2
        args[place:place] = [arg for own in (PLAIN, *methods) for arg in ("--config", str(own))]
        configs += methods
    return pairs, configs, args


def _as_typed(typed: list[str]) -> Iterator[tuple[str, str | None]]:
    """Flags and values where keys are asked for: only configurations must be found."""
    position = 0
    while position < len(typed):
        flag, equals, value = typed[position].partition("=")
        if flag in ("--config", "-c", METHOD) and not equals and position + 1 < len(typed):
            position += 1
            yield flag, typed[position]
        elif flag in ("--config", "-c", METHOD):
            yield flag, value or None
        else:
            yield ("", typed[position])
        position += 1


def pairs_of(typed: list[str]) -> Iterator[tuple[str, str]]:
    """Flags and their values, each with one.

    Raises:
        ConfigError: a flag without value, a value without flag.
    """
    position = 0
    while position < len(typed):
        flag, equals, value = typed[position].partition("=")
        if not flag.startswith("-"):
            raise ConfigError(
                f"expected --KEY VALUE, found {typed[position]!r} without a key.{_meant(typed[position])}"
            )
        if not flag.startswith("--") and flag != "-c":
            raise ConfigError(f"expected a key with two dashes, found {flag}. Did you mean -{flag}?")
        if not equals:
            position += 1
            value = typed[position] if position < len(typed) else ""
            if position == len(typed) or value.startswith("--"):
                if flag != "-c":
                    check_key(flag.removeprefix("--"))
                what = "a configuration" if flag in ("--config", "-c") else "a value"
                found = f"the next key, {value}" if value else "nothing"
                such = "; for instance --config quickstart.yaml" if what != "a value" else ""
                raise ConfigError(f"{flag}: expected {what} behind it, found {found}{such}")
        yield flag, value
        position += 1


def _meant(word: str) -> str:
    """Return a hint at what a word without a key may mean."""
    if "=" in word:
        return f" Did you mean --{word}?"
    name = word if word.endswith(".yaml") else f"{word}.yaml"
    return f" Did you mean --config {word}?" if name in known_configs() or Path(name).is_file() else ""


def _check_flag(flag: str, value: str, of_classes: list[str]) -> None:
    key = flag.removeprefix("--")
    check_key(key, also=of_classes)
    if key in GROUPS and not value.startswith("{") and not Path(value).is_file():
        raise ConfigError(
            f"--{key}: expected one of its keys, such as --{key}.{GROUPS[key][0]}, found {value!r} for all"
        )
    if value.startswith(("{", "[")):
        parse_yaml(value, f"--{key}")
    check_class_path(key, value)


def _check_format(command: Command, style: str) -> None:
    if command not in _FORMATS:
        known = " or ".join(f"{name} ({' or '.join(own)})" for name, own in _FORMATS.items())
        raise ConfigError(
            f"--format: expected it with {known}, found it with {command}, where it would be ignored; leave it out"
        )
    styles = _FORMATS[command]
    if style not in styles:
        raise ConfigError(f"--format: expected {' or '.join(styles)}, found {style!r}." + did_you_mean(style, styles))


def _put_together(configs: list[Path], contents: list[dict[str, Any]], name: str) -> str:
    base, *more = (path.name for path in configs)
    line = f"Settings of {base}, changed by {', then '.join(more)}; runs are called {name}"
    named = zip(configs, contents, strict=True)
    whole = [path.name for path, own in named if "model" in own and "source" in (own.get("data") or ())]
    if len(whole) > 1:
        line += f" ({' and '.join(whole)} are whole configurations: of what both say, the later one's counts)"
    return line


def _own_config(command: Command, configs: list[Path], root: Path, name: str, checkpoint: str | None) -> Path | None:
    """The configuration that the run in question was trained with, to take the place of the files'.

    Raises:
        ConfigError: there is no such run, it has no such checkpoint, or it is another configuration's.
    """
    scoring = command in ("validate", "test", "predict")
    if not scoring and (command != "fit" or checkpoint is None):
        return None
    newest = checkpoint in (None, "last", "best")
    folder = newest_run(root, name) if newest else run_folder(Path(str(checkpoint)).absolute())
    saved = folder / "config.yaml" if folder is not None else None
    if saved is not None and not saved.is_file():
        saved = None
    if saved is not None and newest and _origin(*configs) != _origin(saved):
        raise ConfigError(
            f"expected the newest run of {name} to be one of {_origin(*configs)}, found that "
            f"{saved.parent} was made from {_origin(saved)}; "
            "give --config and --method as they were there, --name, or --ckpt_path with a file"
        )
    if scoring:
        to_score(root.absolute(), name, checkpoint, None, "validation" if command == "validate" else command)
    else:
        to_resume(root.absolute(), name, checkpoint)
    return saved
