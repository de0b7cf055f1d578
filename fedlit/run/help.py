"""``fedlit fit --help``: the parser's own help, of the keys that matter first."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from textwrap import fill
from typing import Any, NoReturn

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["SHOWN", "print_help", "text_of"]

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
    "New rows: fedlit predict --run RUN --client NAME --data FILE",
    "describe": "Show the plan: rows, parameters, what is sent. Trains nothing.",
}


def print_help(parser: Any, command: str, asked: Mapping[str, str]) -> NoReturn:
    """Print the help of a command, of a group of keys, of a key, or of a class, and end.

    Args:
        parser: with all keys.
        command: one of :data:`SHOWN`.
        asked: ``--help`` → nothing, ``all``, a group or a key; ``--data.source.help`` → a class.

    Raises:
        ConfigError: there is no such topic.
        SystemExit: it was printed.
    """
    (flag, topic), *_ = asked.items()
    if flag.endswith(".help"):
        text = io.StringIO()
        with redirect_stdout(text), suppress(SystemExit):
            parser.parse_args([f"{flag}={topic}" if topic else flag])
        print(_plain(text.getvalue().partition("\n\n")[2]))
    else:
        print(text_of(parser, command, topic))
    raise SystemExit(0)


def text_of(parser: Any, command: str, topic: str) -> str:
    """The parts of the whole help that are asked for: titles, with the keys below each.

    Args:
        parser: with all keys.
        command: one of :data:`SHOWN`.
        topic: nothing, ``all``, a group or a key.

    Raises:
        ConfigError: there is no such topic.
    """
    sections: list[tuple[str, dict[str, str]]] = []
    for line in _plain(parser.format_help()).partition("\n\n")[2].splitlines():
        if line and not line.startswith(" "):
            sections.append((line, {}))
        elif found := re.match(r"  (?:-\w, )?--([\w.]+)", line):
            sections[-1][1][key := found[1]] = line
        elif line and sections[-1][1]:
            sections[-1][1][key] += f"\n{line}"
    keys = [key for _, own in sections for key in own if not key.endswith("help")]
    groups = list(dict.fromkeys(key.partition(".")[0] for key in keys if "." in key))
    known = [key for key in keys if key not in (*groups, "config")]
    shown = (
        SHOWN[command] if not topic else [key for key in known if topic == "all" or f"{key}.".startswith(f"{topic}.")]
    )
    if not shown:
        raise ConfigError(
            f"fedlit {command} --help: expected all, a group ({', '.join(groups)}) or a key, found {topic!r}."
            + did_you_mean(topic, [*groups, *known, "all"])
        )
    lines = [f"usage: fedlit {command} --config NAME [--KEY VALUE ...]", "", _ABOUT[command]]
    for title, own in sections:
        if entries := [entry for key, entry in own.items() if key in shown]:
            lines += ["", fill(title.replace("options:", "The run:"), 80)]
            lines += [re.sub(r",\s+known\s+subclasses:[^)]*", "", entry) for entry in entries]  # those imported so far
    more = {
        "--help all": "all keys, with those of Lightning's Trainer",
        "--help data": f"those of a group: {', '.join(groups)}",
        "--help data.batches": "one key",
        "--data.source.help fedlit.Tables": "what a class takes",
        "--config NAME --print_config": "all keys with their values",
    }
    return "\n".join(
        [*lines, "", "More:", *(f"  fedlit {command} {flags}\n      {about}" for flags, about in more.items())]
    )


def _plain(text: str) -> str:
    """Words of docstrings without markup."""
    text = re.sub(r":(?:\w+:)?\w+:`(?:~(?:[\w.]+\.)?)?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)
