"""The keys of a configuration: what ``fedlit fit --help`` prints, and errors that can be found by
keys alone. Neither imports torch, which takes seconds.

``keys.json`` is generated from the parser that Lightning and fedlit's classes make; a test compares
the two. What a class takes (``model.optimizer.lr``) is not there: it depends on the class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, Told, closest, expect
from fedlit.show.text import definitions

KEYS: dict[str, list[str]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""Key → its type, its default and its meaning, in Markdown, in the order of the parser."""


def _groups() -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for key in KEYS:
        group, point, rest = key.partition(".")
        if point:
            groups[group] = (*groups.get(group, ()), rest)
    return groups


GROUPS = _groups()
"""Group → its keys."""


_DEVICES = (
    "a process trains its clients on one device; leave it out. To split clients among several "
    "processes, each with a device: torchrun --nproc-per-node N -m fedlit fit …"
)
_PART = "would score a part as the whole; leave it out"
REFUSED = {
    "devices": _DEVICES,
    "strategy": _DEVICES,
    "barebones": "leaves out what a run needs (checkpoints, logs); leave it out",
    "fast_dev_run": "keeps nothing; set trainer.max_epochs: 1 and trainer.limit_train_batches: 2, "
    "which is as short",
    "limit_val_batches": _PART,
    "limit_test_batches": _PART,
    "limit_predict_batches": _PART,
    "overfit_batches": f"{_PART}, or set trainer.limit_train_batches to train on fewer batches",
    "gradient_clip_val": "clips one module; set model.gradient_clip_val, which clips each client",
    "accumulate_grad_batches": "does not reach the clients; set model.accumulate",
}
"""Option of the Trainer of which a federation of several optimizers takes only Lightning's default
or ours → why."""
FORMATS = {"describe": ("table", "json"), "predict": ("csv", "parquet")}
"""Command → the values of ``format``; the others refuse it."""


def check_key(key: str, where: str = "--", also: Iterable[str] = ()) -> None:
    """Refuse a key that does not exist in any configuration.

    Args:
        key: a key such as ``trainer.max_epochs``; the arguments of a class are not checked.
        where: the text before the key in the message: two dashes, or the file and the key above it,
            such as ``study.yaml: methods.gl.set.``.
        also: keys of classes, such as ``model.optimizer.lr``, that may have been meant.

    Raises:
        ConfigError: the key does not exist; the message suggests one with the same name in another
            group, or else one that is spelt alike.

    Example:
        >>> check_key("trainer.max_epochs")
        >>> check_key("lr", also=["model.optimizer.lr"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: --lr: expected a key that ... Did you mean
            '--model.optimizer.lr'? ...
    """
    if ".".join(key.split(".")[:2]).removesuffix("+") in KEYS or key in GROUPS:
        return
    dashes = "--" if where == "--" else ""
    leaf = key.rpartition(".")[2]
    names = [*KEYS, *also, *GROUPS, *(("config", "method") if dashes else ())]
    leaves = {name.rpartition(".")[2]: name for name in reversed(names)}
    near = leaves.get(leaf) or closest(key, names) or leaves.get(closest(leaf, leaves) or "")
    hint = f" Did you mean {dashes + near!r}?" if near else ""
    raise ConfigError(
        f"{where}{key}: expected a key that fedlit knows, found none of this name.{hint} "
        "(fedlit fit --help all lists all keys)"
    )


def check_keys(content: Mapping[Any, Any], where: str = "--", also: Iterable[str] = ()) -> None:
    """Refuse errors in a configuration that can be found without building it.

    Args:
        content: keys and values, nested as in a file or with dotted keys as on the command line.
        where: the text before a key in messages: two dashes, or the file with a colon and a blank.
        also: see :func:`check_key`.

    Raises:
        ConfigError: a key does not exist, the file is a study, or a group has no keys.
    """
    study = "methods" in content and not set(content) & set(GROUPS)
    expect(
        not study,
        f"{where}methods",
        "a configuration",
        Told("a study"),
        "to run it: fedlit compare FILE",
    )
    for key, value in content.items():
        if key in GROUPS:
            is_group = value is None or isinstance(value, Mapping)
            expect(is_group, f"{where}{key}", f"keys and values such as {GROUPS[key][0]}: …", value)
        for name in [f"{key}.{name}" for name in value] if key in GROUPS and value else [str(key)]:
            check_key(name, where, also)


# ---------------------------------------------------------------------- help

SHOWN = (
    "name", "seed", "ckpt_path", "format", "data.source", "data.batches", "data.align", "data.predict", "model.client",
    "model.optimizer", "exchange.federated", "exchange.every", "exchange.rule", "checkpoint.best", "board.clients",
    "trainer.default_root_dir", "trainer.accelerator", "trainer.max_epochs", "trainer.precision",
)  # fmt: skip
"""The keys that the help explains unless others are asked for."""
_OF_RUNS = (
    "name",
    "seed",
    "ckpt_path",
    "format",
    "data.predict",
    "trainer.default_root_dir",
    "trainer.accelerator",
)
"""Of them, those for commands that score a trained run."""
_MORE = """
More: --help all for all keys, with those of Lightning's Trainer
      --help WORD for the keys with a word, such as data or batches
      --config NAME --method METHOD applies a method that fedlit methods lists
      fedlit predict --run RUN --help: to predict new rows"""


def help_of(command: str, about: str, topic: str) -> str:
    """Return the help of a command.

    Args:
        command: the command.
        about: what the command does.
        topic: the word in the keys to explain, ``all`` for all of them; empty for :data:`SHOWN`.

    Raises:
        ConfigError: there are no such keys.
    """
    main = _OF_RUNS if command in ("validate", "test", "predict") else SHOWN
    useful = [key for key in KEYS if key.removeprefix("trainer.") not in REFUSED]
    if command not in FORMATS:
        useful.remove("format")
    if command not in ("predict", "describe"):
        useful.remove("data.predict")
    if topic and topic != "all":
        listed_keys = [key for key in useful if topic in key]
    else:
        listed_keys = [key for key in useful if topic == "all" or key in main]
    option = topic.removeprefix("trainer.")
    if not listed_keys and option in REFUSED:
        raise ConfigError(f"trainer.{option}: {REFUSED[option]}")
    choices = f"all, a group ({', '.join(GROUPS)}) or a part of a key"
    expect(bool(listed_keys), f"fedlit {command} --help", choices, topic, known=[*GROUPS, *useful])
    lines = [
        f"usage: fedlit {command} --config NAME [--KEY VALUE ...]",
        "",
        f"{about[:1].upper()}{about[1:]}.",
    ]
    for group in ("", *GROUPS):
        if group_keys := [key for key in listed_keys if key.rpartition(".")[0] == group]:
            lines += [
                "",
                f"{group or 'The run'}:",
                definitions((f"--{key}", _told(*KEYS[key])) for key in group_keys),
            ]
    return "\n".join([*lines, _MORE])


def _told(kind: str, default: str, about: str) -> str:
    return f"{about} ({kind}; default: {default})".replace("`", "")
