"""The keys of a configuration. Misspelt keys are reported before torch is imported, which takes seconds.

``keys.json`` is generated from the parser that Lightning and fedlit's classes make; a test compares the two. What a
class takes (``model.optimizer.lr``) is not there: it depends on the class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import fedlit
from fedlit.errors import ConfigError, closest, did_you_mean

FILE = Path(__file__).with_suffix(".json")
"""What :func:`fedlit.run.load.keys_of_parser` gave."""

_KEYS: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))

SINGLE = tuple(_KEYS[""])
"""Keys that have no group."""

GROUPS = {group: tuple(names) for group, names in _KEYS.items() if group}
"""Group → its keys."""

_ONLY_TYPED = ("config", "method", "help", "print_config")


def _known() -> list[str]:
    return [*SINGLE, *(f"{group}.{name}" for group, names in GROUPS.items() for name in names)]


def _hint(key: str, also: Iterable[str], dashes: str) -> str:
    """Return a hint at the intended key: one with this name in another group, one with similar spelling, or one with a
    similar name.
    """
    known = list(dict.fromkeys([*_known(), *also]))
    leaf = key.rpartition(".")[2]
    same = [f"{dashes + other!r}" for other in known if other.rpartition(".")[2] == leaf]
    if same:
        return f" Did you mean {' or '.join(same[:3])}?"
    leaves = {other.rpartition(".")[2]: other for other in known}
    words = [*known, *GROUPS, *(_ONLY_TYPED if dashes else ())]
    near = closest(key, words) or leaves.get(closest(leaf, leaves) or "")
    return f" Did you mean {dashes + near!r}?" if near else ""


def _shown(key: str, where: str) -> str:
    return f"--{key}" if not where else f"{where}{key}" if where.endswith(".") else f"{where}: {key}"


def check_key(key: str, where: str = "", also: Iterable[str] = ()) -> None:
    """Refuse a key that does not exist in any configuration.

    Args:
        key: a key such as ``trainer.max_epochs``; the arguments of a class are not checked.
        where: the file of the key, with the key above it, such as ``study.yaml: methods.gl.set.``; empty for the
            command line.
        also: keys of classes, such as ``model.optimizer.lr``, that may have been meant.

    Raises:
        ConfigError: the key does not exist; the message suggests a similar one.

    Example:
        >>> check_key("trainer.max_epochs")
        >>> check_key("lr", also=["model.optimizer.lr"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: --lr: expected a key that ... Did you mean '--model.optimizer.lr'? ...
    """
    group, *inner = key.split(".")
    name = inner[0].removesuffix("+") if inner else ""
    if (not inner and (key in (*SINGLE, *GROUPS) or (not where and key in _ONLY_TYPED))) or (
        group in GROUPS and name in (*GROUPS[group], "help")
    ):
        return
    shown = _shown(key, where)
    hint = _hint(key, also, "" if where else "--")
    raise ConfigError(
        f"{shown}: expected a key that fedlit knows, found none of this name.{hint} "
        "(fedlit fit --help all lists all keys)"
    )


def check_classes(key: str, value: Any, where: str = "") -> None:
    """Refuse a class that fedlit does not have, in the text of a key or in a ``class_path`` inside its value. Other
    text inside may be any name, and is left to the parser.

    Args:
        key: the key of the value.
        value: text such as ``fedlit.FedProx``, or a value that may contain it; classes of other packages pass.
        where: the file of the value; empty for the command line.

    Raises:
        ConfigError: the class does not exist; the message suggests a similar one.
    """
    if isinstance(value, Mapping):
        for name, own in value.items():
            if name == "class_path" or not isinstance(own, str):
                check_classes(key if name in ("class_path", "init_args") else f"{key}.{name}".strip("."), own, where)
    elif isinstance(value, list):
        for own in value:
            if not isinstance(own, str):
                check_classes(key, own, where)
    elif isinstance(value, str) and re.fullmatch(r"fedlit\.[A-Z]\w*", value) and value[7:] not in dir(fedlit):
        hint = did_you_mean(value[7:], [own for own in dir(fedlit) if own[0].isupper()], "fedlit.")
        raise ConfigError(f"{_shown(key, where)}: expected a class, found {value}, which fedlit does not have.{hint}")


def check_file(content: Mapping[Any, Any], where: str) -> None:
    """Refuse errors in a configuration that can be found without building it.

    Raises:
        ConfigError: a key or a class of fedlit does not exist, the file is a study, or a group has no keys.
    """
    if "methods" in content and not set(content) & set(GROUPS):
        raise ConfigError(
            f"{where}: expected a configuration, found a study (it has methods). Did you mean: fedlit compare {where}?"
        )
    for key, value in content.items():
        if key in GROUPS and value is not None and not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {key}: expected keys and values such as {GROUPS[key][0]}: …, found {value!r}")
        names = [f"{key}.{name}" for name in value] if key in GROUPS and value else [str(key)]
        for name in names:
            check_key(name, where)
    check_classes("", content, where)
