"""``fedlit fit --help``: the keys that matter first, in groups, and how to see the others. Made of the parser, whose
words are those of docstrings, so that it cannot say anything else than the code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from fedlit.errors import ConfigError, did_you_mean
from fedlit.show.text import definitions, shorten, wrap

__all__ = ["help_text", "plain", "topic_of"]

# Group → what it is called. A group that is not here goes by what its class says of itself.
TITLES = {
    "": "The run",
    "data": "Data",
    "model": "Clients, and how they are trained",
    "exchange": "What is exchanged, when, and by which rule",
    "checkpoint": "Checkpoints",
    "board": "TensorBoard",
    "trainer": "Lightning's Trainer",
}

_RUN = ("name", "seed", "trainer.default_root_dir", "trainer.accelerator")
_TABLES = ("data.source", "data.batches", "data.align", "model.client", "exchange.federated", "exchange.every")

# The keys that are explained when no topic is named; of the other groups' keys the names are listed. A test holds
# these to the parser.
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


# Where a federation gives a key of Lightning's another meaning, or Lightning's first sentence says too little.
OWN_WORDS = {
    "trainer.accelerator": "what to compute on: cpu, gpu, mps, or the best that there is (auto)",
    "trainer.precision": "of computing (16-mixed is refused: it scales all clients' losses by one factor)",
    "trainer.default_root_dir": "the folder of all runs (default: lightning_logs)",
    "trainer.log_every_n_steps": "aligned steps between two writings to the log (default: 1)",
    "trainer.num_sanity_val_steps": "validation batches to try before training (default: 0)",
    "trainer.enable_model_summary": "print Lightning's summary of the loop (default: false)",
    "trainer.max_epochs": "epochs of training (default: 1000, if trainer.max_steps is not given either)",
}

_MOST_WORDS = 160  # of a brief explanation: of a longer one the first sentence


def topic_of(args: list[str]) -> str | None:
    """What stands behind ``--help``: ``all``, a group, a key, or nothing; None where help is not asked for.

    Example:
        >>> topic_of(["--help", "data"]), topic_of(["-h"]), topic_of(["--config", "mine.yaml"])
        ('data', '', None)
    """
    for arg, following in zip(args, [*args[1:], "-"], strict=True):
        flag, equals, value = arg.partition("=")
        if flag in ("-h", "--help"):
            return value if equals else "" if following.startswith("-") else following
    return None


def plain(text: str) -> str:
    """Words of a docstring without markup.

    Example:
        >>> plain("``none``, or as :func:`fedlit.sharing.select` says, with :attr:`~lightning.Trainer.callbacks`")
        'none, or as fedlit.sharing.select says, with callbacks'
    """
    text = _unions(text)
    text = re.sub(r":(?:\w+:)?\w+:`(?:~(?:[\w.]+\.)?)?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)


def _unions(text: str) -> str:
    """Types as Python writes them now.

    Example:
        >>> _unions("(type: Union[str, dict[str, list[str]], null])")
        '(type: str | dict[str, list[str]] | null)'
    """
    while (start := text.find("Union[")) >= 0:
        depth, parts, end = 0, [""], start + len("Union[")
        while end < len(text) and (depth or text[end] != "]"):
            depth += (text[end] == "[") - (text[end] == "]")
            if text[end] == "," and not depth:
                parts.append("")
            else:
                parts[-1] += text[end]
            end += 1
        text = text[:start] + " | ".join(part.strip() for part in parts) + text[end + 1 :]
    return text


def help_text(parser: Any, command: str, about: str, topic: str, width: int | None = None) -> str:
    """The help of a command.

    Args:
        parser: with all keys.
        command: one of :data:`SHOWN`.
        about: what the command does.
        topic: empty for the keys that matter, ``all``, a group, or a key.
        width: of the lines; the terminal's if None.

    Raises:
        ConfigError: there is no such topic.
    """
    width = width or shutil.get_terminal_size().columns
    groups: dict[str, dict[str, Any]] = {group: {} for group in TITLES}
    for key, action in _keys(parser):
        groups.setdefault(key.partition(".")[0] if "." in key else "", {})[key] = action
    titles = {group: TITLES.get(group) or plain(parser.groups[group].title) for group in groups}
    if topic and topic != "all":
        title, chosen = titles.get(topic, f"Key {topic}"), _chosen(topic, groups, command)
        return _explained(title, chosen, parser, width)
    head = (
        f"usage: fedlit {command} --config NAME [--KEY VALUE ...]",
        "",
        about,
        "NAME is a YAML file: in this folder, in configs/, or one that came with fedlit. Keys stand in it, or here "
        "(what is said here counts).",
    )
    parts = ["\n".join(wrap(line, width) for line in head)]
    for group, own in groups.items():
        shown = {key: own[key] for key in own if topic == "all" or key in SHOWN[command]}
        more = [key.removeprefix(f"{group}.") for key in own if key not in shown]
        names = f"{len(more)} keys" if group == "trainer" else ", ".join(more)
        told = "\n" + wrap(f"  more, with --help {group or 'all'}: {names}", width) if more else ""
        parts += [_explained(titles[group], shown, parser, width, brief=topic != "all") + told] if shown else []
    return "\n\n".join([*parts, _further(groups, command, width)])


def _chosen(topic: str, groups: Mapping[str, Mapping[str, Any]], command: str) -> dict[str, Any]:
    """The keys of a group, or a key and those below it."""
    keys = {key: action for own in groups.values() for key, action in own.items()}
    chosen = {key: action for key, action in keys.items() if f"{key}.".startswith(f"{topic}.")}
    if not chosen:
        known = [group for group in groups if group]
        raise ConfigError(
            f"fedlit {command} --help: expected all, a group ({', '.join(known)}) or a key, found {topic!r}."
            + did_you_mean(topic, [*known, *keys, "all"])
        )
    return chosen


def _further(groups: Mapping[str, Mapping[str, Any]], command: str, width: int) -> str:
    """Return how to see the other keys."""
    classes = [
        f"--{key}.help"
        for group, own in groups.items()
        for key, action in own.items()
        if group != "trainer" and key != "data.source" and _is_class(_hint(action))
    ]
    asked = [
        (f"fedlit {command} --help all", "all keys, with those of Lightning's Trainer"),
        (f"fedlit {command} --help data", f"those of a group: {', '.join(filter(None, groups))}"),
        (f"fedlit {command} --help data.batches", "one key"),
        (f"fedlit {command} --data.source.help fedlit.Tables", f"what a class takes; likewise {', '.join(classes)}"),
        (f"fedlit {command} --config NAME --print_config", "all keys with the values that they would have"),
    ]
    return "More:\n" + definitions(asked, width)


def _keys(parser: Any) -> Iterator[tuple[str, Any]]:
    """What can be set, in the parser's order: not the flags that only help, nor what is linked to another key."""
    for action in parser._actions:
        options = [option for option in action.option_strings if option.startswith("--")]
        helps = action.dest.endswith(".help") or _hint(action) is None
        if not helps and options in ([f"--{action.dest}"], [f"--{action.dest}", f"--{action.dest}+"]):
            yield action.dest, action


def _hint(action: Any) -> Any:
    return getattr(action, "_typehint", None)


def _explained(title: str, own: Mapping[str, Any], parser: Any, width: int | None, brief: bool = False) -> str:
    pairs = [(f"--{key}", _told(key, action, parser, brief)) for key, action in own.items()]
    return wrap(f"{title}:", width) + "\n" + definitions(pairs, width)


def _told(key: str, action: Any, parser: Any, brief: bool) -> str:
    """Describe a key, its type and its default."""
    text = re.sub(r"\s+", " ", (action.help or "").replace("%%", "%")).strip()
    text = OWN_WORDS.get(key, plain(text).rstrip("."))
    text = re.sub(r" \(see [^)]*\)", "", text)
    text = re.sub(r"\.? ?Default: None$", "", text)  # Lightning's; what it is by default is said below
    if brief:
        text = re.split(r"(?<=[^.])\. (?=[A-Z0-9])", text)[0] if len(text) > _MOST_WORDS else text
    value = "required" if action.required else f"default: {_value(parser.get_default(key))}"
    *most, last = _choices(_hint(action), unsaid=type(None) if value == "default: none" else None)
    kind = f"{', '.join(most)} or {last}" if 0 < len(most) < 8 else shorten([*most, last])
    return f"{text} [{'; '.join([kind] if re.search('[Dd]efault: ', text) else [kind, value])}]"


def _value(default: Any) -> str:
    """A default as it would be written."""
    if default is None or default == []:
        return "none"
    path = default.get("class_path") if hasattr(default, "get") else None
    return str(path or (str(default).lower() if isinstance(default, bool) else default))


_FACTORY = get_origin(Callable[[], Any])
_WORDS: dict[Any, str] = {
    int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "none", Any: "anything",
    dict: "mapping", list: "list",
}  # fmt: skip


def _alternatives(hint: Any) -> list[Any]:
    """The types of a union, of unions inside too; of another type itself."""
    several = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    return [one for own in several for one in _alternatives(own)] or [hint]


def _choices(hint: Any, unsaid: Any = None) -> list[str]:
    """Return what a value may be, in plain words; of several without ``unsaid``.

    Example:
        >>> _choices(dict[str, int | list[int]] | None), _choices(Literal["step", "epoch"])
        (['whole number or list of whole number, by name', 'none'], ['step', 'epoch'])
    """
    origin, inside, several = get_origin(hint), get_args(hint), _alternatives(hint)
    if len(several) > 1:
        return list(dict.fromkeys(word for own in several if own is not unsaid for word in _choices(own)))
    if origin is Literal:
        return list(map(str, inside))
    if origin is _FACTORY:
        return [word if word.startswith("class") else f"class: {word}" for word in _choices(inside[1])]
    if origin is dict:
        return [f"{' or '.join(_choices(inside[1]))}, by name"]
    if origin is not None and inside:
        return [f"list of {' or '.join(_choices(inside[0]))}"]
    name = getattr(hint, "__name__", str(hint))
    return [_WORDS.get(hint) or (f"class: {name}" if _is_class(hint) else name)]


def _is_class(hint: Any) -> bool:
    """Return whether the value names a class that has keys of its own."""
    if len(several := _alternatives(hint)) > 1:
        return any(map(_is_class, several))
    ours = isinstance(hint, type) and hint not in _WORDS and hint.__module__.startswith("fedlit")
    return ours or get_origin(hint) is _FACTORY
