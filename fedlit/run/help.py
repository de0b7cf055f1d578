"""``fedlit fit --help``: the keys that matter first, in groups, and how to see the others. Made of the parser, whose words
are those of docstrings, so that it cannot say anything else than the code.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from fedlit.errors import ConfigError, did_you_mean
from fedlit.show.text import definitions, wrap

__all__ = ["help_text", "plain", "topic_of"]

# What a group is called. A group that is not here goes by what its class says of itself.
GROUPS = {
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
        *_RUN, "ckpt_path", *_TABLES, "data.batch_size", "model.optimizer", "exchange.rule", "checkpoint.best",
        "board.clients", "trainer.max_epochs", "trainer.precision",
    ),
    "describe": ("format", "seed", *_TABLES),
    "validate": ("ckpt_path", *_RUN),
    "test": ("ckpt_path", *_RUN),
    "predict": ("ckpt_path", "format", "data.predict", *_RUN),
}  # fmt: skip


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
        >>> plain("``none``, or as :func:`~fedlit.sharing.select` says")
        'none, or as fedlit.sharing.select says'
    """
    text = re.sub(r":(?:\w+:)?\w+:`~?([^`<]+?)(?:\s*<[^>]*>)?`", r"\1", text)
    return re.sub(r"(`{1,2})([^`]+)\1", r"\2", text)


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
    keys = dict(_keys(parser))
    groups: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for key, action in keys.items():
        groups.setdefault(key.rpartition(".")[0].partition(".")[0], {})[key] = action
    titles = {group: GROUPS.get(group) or plain(parser.groups[group].title) for group in groups}
    program, ask = f"fedlit {command}", f"fedlit {command} --help"
    if topic and topic != "all":
        chosen = {group: own for group, own in groups.items() if group == topic} if topic else {}
        chosen = chosen or {topic: {key: keys[key] for key in keys if f"{key}.".startswith(f"{topic}.")}}
        if not any(chosen.values()):
            known = [*filter(None, groups), *keys, "all"]
            raise ConfigError(
                f"{ask}: expected all, a group ({', '.join(filter(None, groups))}) or a key, found {topic!r}."
                + did_you_mean(topic, known)
            )
        parts = [_explained(titles.get(group, f"Key {group}"), own, parser, width) for group, own in chosen.items()]
        return "\n\n".join(parts)
    head = [f"usage: {program} --config NAME [--KEY VALUE ...]", "", plain(about)]
    head += [
        "NAME is a YAML file: in this folder, in configs/, or one that came with fedlit. Keys stand in it, or here "
        "(what is said here counts)."
    ]
    parts = ["\n".join(wrap(line, width) for line in head)]
    for group, own in groups.items():
        shown = own if topic == "all" else {key: own[key] for key in SHOWN[command] if key in own}
        if not shown:
            continue
        parts.append(_explained(titles[group], shown, parser, width, brief=topic != "all"))
        more = [key.removeprefix(f"{group}.") for key in own if key not in shown]
        if more and group == "trainer":
            parts[-1] += "\n" + wrap(f"  and {len(more)} more: {ask} {group}", width)
        elif more:
            parts[-1] += "\n" + wrap(f"  and {', '.join(more)}: {ask}{group and ' '}{group or 'all'}", width)
    classes = [key for key, action in keys.items() if _is_class(_hint(action)) and not key.startswith("trainer.")]
    asked = [
        (f"{ask} all", "all keys, with those of Lightning's Trainer"),
        (f"{ask} data", f"those of a group: {', '.join(filter(None, groups))}"),
        (f"{ask} data.batches", "one key"),
        (f"{program} --data.source.help fedlit.Tables", f"what a class takes; likewise {', '.join(classes[1:])}"),
        (f"{program} --config NAME --print_config", "all keys with the values that they would have"),
    ]
    parts.append("More:\n" + definitions(asked, width))
    return "\n\n".join(parts)


def _keys(parser: Any) -> Iterator[tuple[str, Any]]:
    """What can be set, in the parser's order: not the flags that only help, nor what is linked to another key."""
    for action in parser._actions:
        options = [option for option in action.option_strings if option.startswith("--")]
        if options == [f"--{action.dest}"] or options == [f"--{action.dest}", f"--{action.dest}+"]:
            if _hint(action) is not None and not action.dest.endswith(".help"):
                yield action.dest, action


def _hint(action: Any) -> Any:
    return getattr(action, "_typehint", None)


def _explained(title: str, own: Mapping[str, Any], parser: Any, width: int | None, brief: bool = False) -> str:
    pairs = [(f"--{key}", _told(key, action, parser, brief)) for key, action in own.items()]
    return f"{title}:\n" + definitions(pairs, width)


def _told(key: str, action: Any, parser: Any, brief: bool) -> str:
    """What a key is, of which type, and what it is if nobody says."""
    text = re.sub(r"\s*\n\s*", " ", (action.help or "").replace("%%", "%")).strip()
    text = plain(re.sub(r"\s*Defaults?(?: to|:) ``[^`]*``\.?", "", text)).rstrip(".")
    if brief:
        text = re.split(r"(?<=[^.])\. (?=[A-Z0-9])", text)[0]
    default = "required" if action.required else f"default: {_value(parser.get_default(key))}"
    told = [_words(_hint(action)), *([] if "default" in text else [default])]
    return f"{text} ({'; '.join(told)})"


def _value(default: Any) -> str:
    """A default as it would be written."""
    if default is None or default == []:
        return "none"
    path = default.get("class_path") if hasattr(default, "get") else None
    return str(path or (str(default).lower() if isinstance(default, bool) else default))


_WORDS: dict[Any, str] = {
    int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "none", Any: "anything",
    dict: "mapping", list: "list",
}  # fmt: skip


def _words(hint: Any) -> str:
    """A type in plain words.

    Example:
        >>> _words(dict[str, int | list[int]] | None), _words(Literal["step", "epoch"])
        ('whole number or list of whole number by name or none', 'step or epoch')
    """
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_words(own) for own in inside])
    if origin is Literal:
        return _any_of([str(own) for own in inside])
    if _is_class(hint):
        return f"class: {getattr(_made(hint), '__name__', _made(hint))}"
    if origin is dict:
        return f"{_words(inside[1])} by name"
    if origin is not None and inside:
        return f"list of {_words(inside[0])}"
    return _WORDS.get(hint) or getattr(hint, "__name__", str(hint))


def _any_of(words: list[str]) -> str:
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _made(hint: Any) -> Any:
    """What a factory makes, or a class itself; of several the first."""
    if get_origin(hint) in (Union, types.UnionType):
        return _made(get_args(hint)[0])
    return _made(get_args(hint)[1]) if get_origin(hint) is Callable_ else hint


def _is_class(hint: Any) -> bool:
    """Whether the value names a class that has keys of its own."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_class(own) for own in get_args(hint))
    if get_origin(hint) is Callable_:
        return True
    return isinstance(hint, type) and hint not in _WORDS and hint.__module__.startswith(("fedlit", "torch"))


Callable_ = get_origin(Callable[[], Any])
