"""Finds and reads configurations. It imports nothing heavy, because light commands use it too."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from fedlit import yaml_text
from fedlit.errors import ConfigError, Told, did_you_mean, expect

STUDIES = "studies"
METHODS = "methods"
CARD = "card"
"""The key of a method's file that describes the method."""
"""Folders in that of configurations."""
_NAMED = {"": "--config", STUDIES: "study", METHODS: "--method"}
MOST_BYTES = 2**22
MOST_VALUES = 500_000
"""Of a configuration's file: a larger one is another file, or is meant to fill the memory."""


def config_folders() -> list[Path]:
    """Return the folders in which a configuration is searched by its name, in this order: the
    current folder, ``configs/``, and the folder that comes with the package.
    """
    package = Path(__file__).parents[1]
    shipped = package / "configs"  # in a wheel
    return [Path(), Path("configs"), shipped if shipped.is_dir() else package.parent / "configs"]


def known_configs(below: str = "") -> list[str]:
    """Return the names of the files in ``configs/`` and in the package, or in their folders
    ``studies`` or ``methods``.
    """
    files = chain.from_iterable((folder / below).glob("*.yaml") for folder in config_folders()[1:])
    return sorted({path.name for path in files})


def find_config(name: str, below: str = "", *, also: Path | None = None, what: str = "") -> Path:
    """Find the file of a configuration, a study or a method.

    Args:
        name: a path, or a bare file name, with or without ``.yaml``.
        below: :data:`STUDIES` or :data:`METHODS`; empty for configurations. A file in the current
            folder is taken as a method only if its name has an ending.
        also: a further folder, which is searched last; paths may also be relative to it.
        what: the place of the name, if it was not typed.

    Raises:
        ConfigError: there is no such file; the message lists the folders that were searched and the
            known names.

    Example:
        >>> find_config("quickstart").name, find_config("fedavg", METHODS).name
        ('quickstart.yaml', 'fedavg.yaml')
    """
    what = what or _NAMED[below]
    expect(
        bool(name),
        what,
        f"a name such as {'fedavg' if below == METHODS else 'quickstart'}",
        Told("nothing"),
    )
    path = Path(name).expanduser()
    working_folder, *shipped_folders = config_folders()
    bare = path.parent == Path()
    folders = [working_folder] if below != METHODS or path.suffix or not bare else []
    folders += [folder / below for folder in shipped_folders if bare]
    folders += [also] if also is not None else []
    for folder in folders:
        for candidate in (folder / path, folder / f"{path}.yaml"):
            if candidate.is_file():
                return candidate.resolve()
    other_kind, command = ("", "fit") if below else (STUDIES, "compare")
    near = [Path(config).stem for config in known_configs(below)] + [
        file.stem for file in path.parent.glob("*.y*ml")
    ]
    hint = did_you_mean(path.stem, near)
    if f"{path.stem}.yaml" in known_configs(other_kind):
        hint = f" Did you mean: fedlit {command} {path.stem}?"
    looked = ", ".join(dict.fromkeys(str(folder.resolve()) for folder in folders))
    raise ConfigError(f"{what} {name}: expected a YAML file, found none in {looked}.{hint}")


def shown(path: Path) -> str:
    """Return a file's name for messages: relative to the current folder if it is below it.

    Example:
        >>> shown(Path.cwd() / "own" / "config.yaml")
        'own/config.yaml'
    """
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def parse_yaml(text: str, where: str, key: str = "") -> Any:
    """Parse a text, and refuse text that is not YAML or has a key twice.

    Args:
        text: YAML.
        where: the beginning of messages.
        key: the key whose value the text is, if it is not a whole file (see
            :mod:`fedlit.yaml_text`).

    Raises:
        ConfigError: the text is not YAML; the message begins with ``where``.
    """
    try:
        content = yaml_text.load(text, key)
        if _values(content, {}) > MOST_VALUES:
            raise yaml.YAMLError(
                f"more than {MOST_VALUES:,} keys and values, or one that holds itself"
            )
        return content
    # of Python, for a date or a number that cannot be
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)  # the error's own text would quote the file
        location = where if mark is None else f"{where}, line {mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(
            f"{location}: expected YAML, found: {' '.join(problem.split())}"
        ) from error


def _values(tree: Any, known: dict[int, float]) -> float:
    """Return the number of values, each counted wherever an anchor repeats it; infinity if a value
    contains itself.
    """
    if not isinstance(tree, dict | list):
        return 1
    if id(tree) not in known:
        known[id(tree)] = math.inf
        known[id(tree)] = 1 + sum(
            _values(value, known) for value in (tree.values() if isinstance(tree, dict) else tree)
        )
    return known[id(tree)]


@lru_cache(256)
def _content(text: str, where: str) -> Any:
    """Parse a file that a study names in each of its methods only once, because parsing takes
    longer than copying the result.
    """
    return parse_yaml(text, where)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the keys and values of a configuration, without the card of a method that ships, which
    describes it.

    Raises:
        ConfigError: see :func:`read_yaml`.

    Example:
        >>> sorted(read_settings(find_config("ditto", METHODS)))
        ['data', 'exchange', 'model']
    """
    content = read_yaml(path)
    content.pop(CARD, None)
    return content


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the keys and values of a file.

    Raises:
        ConfigError: the file is not a YAML mapping; the message names the file (a parser's message
            would not).
    """
    size = path.stat().st_size
    expect(
        size <= MOST_BYTES,
        shown(path),
        f"a configuration of at most {MOST_BYTES:,} bytes",
        Told(f"{size:,}"),
    )
    try:
        content = deepcopy(_content(path.read_text(encoding="utf-8"), shown(path)))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{shown(path)}: expected a YAML file in UTF-8, found other bytes"
        ) from error
    # never more than its kind: it may be a table, of people who must not stand in a log
    instead = Told("other text")
    if content is None:
        instead = Told("an empty file")
    elif isinstance(content, list):
        instead = Told("a list")
    do = "for tables, fedlit init writes a configuration" if isinstance(content, str) else ""
    expect(isinstance(content, dict), shown(path), "keys and values such as seed: 8", instead, do)
    return dict(content)


def flatten(tree: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of nested mappings, as pairs (``a.b.c``, value)."""
    if not isinstance(tree, dict):
        return [] if tree is None else [(prefix, tree)]
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        leaves += flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def listed(value: Any) -> list[Any]:
    """Return None, one value or several values as a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def typed_value(value: Any) -> str:
    """Return a value as it is typed after a key: text unchanged, all other values as YAML in one
    line.

    Example:
        >>> typed_value("core"), typed_value([1, None]), typed_value(math.inf)
        ('core', '[1, null]', '.inf')
    """
    if isinstance(value, float) and math.isnan(value):
        return ".nan"
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return value if isinstance(value, str) else json.dumps(value)
