"""``fedlit fit --help``: prints the parser's help, with the most important keys first."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import yaml
from jsonargparse import Namespace

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.layers import DEFAULTS
from fedlit.show.text import definitions

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
_ABOUT = {
    "fit": "Train the federation of a configuration; --all shows every score at the end.",
    "validate": "Score the validation split of a trained run; --all shows every score.",
    "test": "Score the test split of a trained run; --all shows every score.",
    "predict": "Write each client's predictions for a split of its table.\n"
    "New rows: fedlit predict --run RUN --client NAME --data FILE\n"
    "The options for new rows: fedlit predict --run RUN --help",
    "describe": "Show the plan: rows, parameters, what is sent. Trains nothing.",
}
_WORDS: dict[Any, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", list: "list", dict: "mapping", Any: "anything",
}  # fmt: skip


def print_help(parser: Any, command: str, asked: Mapping[str, str]) -> NoReturn:
    """Print the help of a command, of a group of keys, of a key, or of a class, and exit.

    Args:
        parser: the parser with all keys.
        command: one of :data:`SHOWN`.
        asked: maps ``--help`` to nothing, ``all``, a group or a key, or ``--data.source.help`` to a class.

    Raises:
        ConfigError: there is no such topic.
        SystemExit: the help was printed.
    """
    (flag, topic), *_ = asked.items()
    if flag.endswith(".help"):
        text = io.StringIO()
        with redirect_stdout(text), suppress(SystemExit):
            parser.parse_args([f"{flag}={topic}" if topic else flag])
        print(_plain(text.getvalue().partition("\n\n")[2]))
    else:
        print(_chosen(parser, command, topic))
    raise SystemExit(0)


def _chosen(parser: Any, command: str, topic: str) -> str:
    """Return the keys that are asked for, group by group."""
    rows = list(_rows(parser))
    keys = [key for key, *_ in rows]
    groups = list(dict.fromkeys(key.partition(".")[0] for key in keys if "." in key))
    shown = (
        SHOWN[command] if not topic else [key for key in keys if topic == "all" or f"{key}.".startswith(f"{topic}.")]
    )
    if not shown:
        raise ConfigError(
            f"fedlit {command} --help: expected all, a group ({', '.join(groups)}) or a key, found {topic!r}."
            + did_you_mean(topic, [*groups, *keys, "all"])
        )
    lines = [f"usage: fedlit {command} --config NAME [--KEY VALUE ...]", "", _ABOUT[command]]
    for group in ("", *groups):
        own = [row for row in rows if row[0] in shown and row[0].rpartition(".")[0] == group]
        if own:
            told = ((f"--{key}", _plain(f"{about} ({kind}; default: {default})")) for key, kind, default, about in own)
            lines += ["", f"{group or 'The run'}:", definitions(told)]
    more = {
        "--help all": "all keys, with those of Lightning's Trainer",
        "--help data": f"those of a group: {', '.join(groups)}",
        "--help data.batches": "one key",
        "--data.source.help fedlit.Tables": "what a class takes",
        "--config NAME --method METHOD": "with a method that fedlit methods lists",
        "--config NAME --print_config": "all keys with their values",
    }
    told = ((f"fedlit {command} {flags}", about) for flags, about in more.items())
    return "\n".join([*lines, "", "More:", definitions(told)])


def keys_markdown(parser: Any) -> str:
    """All configuration keys for a page: a table for each group, with type, default and meaning.

    Of the keys of Lightning's Trainer, it contains only those that ``fedlit fit --help`` shows.

    Args:
        parser: the parser with all keys.
    """
    rows: dict[str, list[str]] = {}
    for key, kind, default, about in _rows(parser):
        group = key.rpartition(".")[0]
        if group != "trainer" or key in SHOWN["fit"]:
            meaning = re.split(r"(?<=\.)\s+(?=[A-Z`])", about)[0].rstrip(".")
            line = " | ".join([f"`{key}`", kind, default, meaning[:1].upper() + meaning[1:]]).replace("``", "`")
            rows.setdefault(group or "The run", []).append(f"| {line} |")
    head = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    return "\n\n".join("\n".join([f"## {group}", "", *head, *own]) for group, own in rows.items())


def _rows(parser: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield each key with its type, its default and its meaning."""
    for action in parser._actions:
        typed = getattr(action, "_typehint", None)
        if typed is not None and action.dest.count(".") < 2:
            default = "required" if action.required else _default(DEFAULTS.values.get(action.dest, action.default))
            yield action.dest, _type(typed), default, " ".join(_without_roles(action.help or "").split())


def _type(hint: Any) -> str:
    """Return a type in the terms of YAML."""
    if hint in (None, NoneType):
        return "null"
    outer, inner = get_origin(hint), get_args(hint)
    if outer in (Literal, Union, UnionType):
        return " or ".join(dict.fromkeys(_choices(hint)))
    if outer is Callable:
        return "class"
    if inner:
        return f"mapping to {_type(inner[-1])}" if outer in (dict, Mapping) else f"list of {_type(inner[0])}"
    return _WORDS.get(hint, f"`{hint.__name__}`" if isinstance(hint, type) else "anything")


def _choices(hint: Any) -> list[str]:
    """Return each value or type of a choice; the same word may be there twice, as of 64 and '64'."""
    outer, inner = get_origin(hint), get_args(hint)
    if outer is Literal:
        return [f"`{own}`" for own in inner]
    return [word for own in inner for word in _choices(own)] if outer in (Union, UnionType) else [_type(hint)]


def _default(value: Any) -> str:
    value = value["class_path"] if isinstance(value, Mapping | Namespace) and "class_path" in value else value
    return f"`{yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix('...' + chr(10)).strip()}`"


def _plain(text: str) -> str:
    """Return the text of docstrings without markup."""
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", _without_roles(text))


def _without_roles(text: str) -> str:
    return re.sub(r":(?:\w+:)?\w+:`(?:~(?:[\w.]+\.)?)?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
