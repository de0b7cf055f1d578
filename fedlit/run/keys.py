"""The keys of a configuration: what ``fedlit fit --help`` prints, and errors that can be found by keys alone. Neither
imports torch, which takes seconds.

``keys.json`` is generated from the parser that Lightning and fedlit's classes make; a test compares the two. What a
class takes (``model.optimizer.lr``) is not there: it depends on the class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, closest, did_you_mean
from fedlit.show.text import definitions

KEYS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""Key → its type, its default and its meaning, in Markdown, in the order of the parser."""

SINGLE = tuple(key for key in KEYS if "." not in key)
"""Keys that have no group."""

GROUPS = {
    group: tuple(key.partition(".")[2] for key in KEYS if key.startswith(f"{group}."))
    for group in dict.fromkeys(key.partition(".")[0] for key in KEYS if "." in key)
}
"""Group → its keys."""

_ONLY_TYPED = ("config", "method", "help", "print_config")


def _hint(key: str, also: Iterable[str], dashes: str) -> str:
    """Return a hint at the intended key: one with this name in another group, one with similar spelling, or one with a
    similar name.
    """
    known = list(dict.fromkeys([*KEYS, *also]))
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


def check_file(content: Mapping[Any, Any], where: str) -> None:
    """Refuse errors in a configuration that can be found without building it.

    Raises:
        ConfigError: a key does not exist, the file is a study, or a group has no keys.
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


# ---------------------------------------------------------------------- help

_RUN = ("name", "seed", "trainer.default_root_dir", "trainer.accelerator")
_TABLES = ("data.source", "data.batches", "data.align", "model.client", "exchange.federated", "exchange.every")
SHOWN: dict[str, tuple[str, ...]] = {
    "fit": (
        *_RUN, "ckpt_path", *_TABLES, "model.optimizer", "exchange.rule", "checkpoint.best",
        "board.clients", "trainer.max_epochs", "trainer.precision",
    ),
    "describe": ("format", "seed", *_TABLES),
    "validate": ("ckpt_path", *_RUN),
    "test": ("ckpt_path", *_RUN),
    "predict": ("ckpt_path", "format", "data.predict", *_RUN),
}  # fmt: skip
"""Command → the keys that its help explains; ``--help all`` explains the others, too."""
_MORE = {
    "--help all": "all keys, with those of Lightning's Trainer",
    "--help data": f"those of a group: {', '.join(GROUPS)}",
    "--help data.batches": "one key",
    "--data.source.help fedlit.Tables": "what a class takes",
    "--config NAME --method METHOD": "with a method that fedlit methods lists",
    "--config NAME --print_config": "all keys with their values",
}
_NEW_ROWS = ("fedlit predict --run RUN --help", "to predict new rows")


def help_of(command: str, about: str, topic: str) -> str:
    """Return the help of a command, of a group of keys, or of a key.

    Args:
        command: one of :data:`SHOWN`.
        about: what the command does.
        topic: empty, ``all``, a group or a key.

    Raises:
        ConfigError: there is no such topic.
    """
    asked = [key for key in KEYS if topic == "all" or f"{key}.".startswith(f"{topic}.")]
    shown = asked if topic else SHOWN[command]
    if not shown:
        raise ConfigError(
            f"fedlit {command} --help: expected all, a group ({', '.join(GROUPS)}) or a key, found {topic!r}."
            + did_you_mean(topic, [*GROUPS, *KEYS, "all"])
        )
    lines = [f"usage: fedlit {command} --config NAME [--KEY VALUE ...]", "", f"{about[:1].upper()}{about[1:]}."]
    for group in ("", *GROUPS):
        own = [key for key in KEYS if key in shown and key.rpartition(".")[0] == group]
        if own:
            lines += ["", f"{group or 'The run'}:", definitions((f"--{key}", _told(*KEYS[key])) for key in own)]
    more = [*((f"fedlit {command} {flags}", told) for flags, told in _MORE.items()), _NEW_ROWS]
    return "\n".join([*lines, "", "More:", definitions(more)])


def _told(kind: str, default: str, about: str) -> str:
    return plain(f"{about} ({kind}; default: {default})")


def plain(text: str) -> str:
    """Return the text of docstrings without markup."""
    text = re.sub(r":(?:\w+:)?\w+:`(?:~(?:[\w.]+\.)?)?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)
