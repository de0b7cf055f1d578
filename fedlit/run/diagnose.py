"""Why a configuration is refused: the value that does not fit, by the types of the classes that take it.

jsonargparse says what each alternative of a type said against a value, without the class's key. Here its verdict is
taken, and the reason is looked for anew: every value given is held against the type of its key.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from fedlit.errors import ConfigError, closest, did_you_mean
from fedlit.run.classes import imported, lightnings, ours
from fedlit.run.config import parse_yaml, read_yaml, shown
from fedlit.run.words import (
    SUCH,
    alternatives,
    classes_of,
    each_of,
    handed,
    is_list,
    is_mapping,
    is_scalar,
    literals,
    words,
)
from fedlit.show.text import shorten

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["diagnose", "misfit"]


@dataclass(frozen=True)
class _Value:
    """A value, as it was written (None where it stands in a file), with the place and how early it was given."""

    value: Any
    text: str | None
    file: Path | None
    number: int


class _Class(dict[str, Any]):
    """Values by key; what a class takes lies beside its ``class_path``."""


_Node = _Value | _Class


def diagnose(parser: ArgumentParser, args: list[str]) -> str | None:
    """Why a parser refuses arguments.

    Args:
        parser: what refused them.
        args: what it refused, ``--config=FILE`` or ``--config FILE`` and ``--key=value``.

    Returns:
        One message, None where every value seems to fit.
    """
    given = _Class()
    for number, (key, value, text, file) in enumerate(_given(args)):
        _put(given, [part for part in key.split(".") if part != "init_args"], value, text, file, number)
    defaults = parser.get_defaults(skip_validation=True)
    for action in parser._actions:
        hint = getattr(action, "_typehint", None)
        node: Any = given
        for part in action.dest.split("."):
            node = node.get(part) if isinstance(node, _Class) else None
        if hint is None or node is None:
            continue
        usual = getattr(defaults.get(action.dest), "class_path", None)  # exchange.rule has one
        if isinstance(node, _Class) and usual is not None:
            node.setdefault("class_path", _Value(usual, "", None, -1))
        problem = _against(node, hint, action.dest)
        if problem:
            return problem
    return None


def misfit(content: Mapping[str, Any], hints: Mapping[str, Any], file: Path) -> str | None:
    """What speaks against the values in a file under the types of its keys, None if nothing.

    Args:
        content: what the file says.
        hints: key → type; other keys are not looked at. Classes of a kind, as dataclasses, are written as mappings.
        file: where it stands.
    """
    given = _Class()
    for key, value in content.items():
        _put(given, [str(key)], value, None, file, 0)
    return _first(_against(own, hints[key], key) for key, own in given.items() if key in hints)


def _given(args: list[str]) -> Iterator[tuple[str, Any, str | None, Path | None]]:
    """(key, value, text, file) of all that is given, in the order in which later counts over earlier."""
    position = 0
    while position < len(args):
        flag, equals, text = args[position].partition("=")
        if not equals and position + 1 < len(args):
            position += 1
            text = args[position]
        position += 1
        if flag == "--config":
            path = Path(text)
            yield from ((str(key), value, None, path) for key, value in read_yaml(path).items())
        elif flag.startswith("--"):
            try:
                value = parse_yaml(text, flag)
            except ConfigError:
                value = text
            yield flag.removeprefix("--").removesuffix("+"), [value] if flag.endswith("+") else value, text, None


def _put(tree: _Class, keys: list[str], value: Any, text: str | None, file: Path | None, number: int) -> None:
    """Write a value into a tree, dictionaries key by key."""
    key, *inner = keys
    known = tree.get(key)
    if inner or isinstance(value, Mapping):
        if not isinstance(known, _Class):
            named = isinstance(known, _Value) and "." in str(known.value)  # a class, by its path alone
            known = tree[key] = _Class(class_path=known) if named else _Class()
        if inner:
            _put(known, inner, value, text, file, number)
            return
        for name, own in value.items():
            for under, each in own.items() if name == "init_args" and isinstance(own, Mapping) else [(name, own)]:
                _put(known, [str(under)], each, None if text is None else str(each), file, number)
    elif isinstance(known, _Class) and isinstance(value, str):  # a class in the place of the one before
        known["class_path"] = _Value(value, text, file, number)
    else:
        tree[key] = _Value(value, text, file, number)


def _place(key: str, node: _Node) -> str:
    """How a key is shown: as it was typed, or with its file."""
    value = node
    while isinstance(value, _Class):
        value = next(iter(value.values()), _Value(None, "", None, 0))
    if value.file is None:
        return f"--{key}"
    return f"{shown(value.file)}: {key}"


def _plain(node: _Node) -> Any:
    return {key: _plain(value) for key, value in node.items()} if isinstance(node, _Class) else node.value


def _found(node: _Node) -> str:
    if isinstance(node, _Value) and node.text is not None and not isinstance(node.value, list | dict):
        return repr(node.text)
    text = repr(_plain(node))
    return text if len(text) <= 80 else f"{text[:77]}…"


def _against(node: _Node, hint: Any, key: str) -> str | None:
    """What speaks against a value under a type, None if nothing."""
    found = alternatives(hint)
    problems = [_one(node, own, key) for own in found]
    if any(problem is None for problem in problems):
        return None
    value = _plain(node)
    deep = [problem for problem in problems if problem]  # of a class, or of what is inside a list
    # not of true and false, beside which a class is meant
    word = isinstance(value, str) and "." not in value and any(map(is_scalar, set(found) - {NoneType, bool}))
    if deep and not word:
        return deep[0]
    near = did_you_mean(value, literals(hint)) if isinstance(value, str) else ""
    lists = [each_of(own) for own in found if is_list(own)]
    such = next((told for pattern, told in SUCH.items() if fnmatchcase(key, pattern)), "")
    if not such and any(each in (str, int) and isinstance(value, each) for each in lists):
        near = f" Did you mean [{value}]?"
    return f"{_place(key, node)}: expected {such or words(hint) or 'another value'}, found {_found(node)}.{near}"


def _one(node: _Node, hint: Any, key: str) -> str | None:
    """Against one alternative of a type: None if it fits, an empty text if not, or what is wrong inside."""
    if is_scalar(hint):
        return None if isinstance(node, _Value) and _fits(node, hint) else ""
    if is_list(hint):
        if not isinstance(node, _Value) or not isinstance(node.value, list | tuple):
            return ""
        inside = ((_node(own, node), f"{key}[{place}]") for place, own in enumerate(node.value))
        return _first(_against(own, each_of(hint), where) for own, where in inside)
    if is_mapping(hint):
        if not isinstance(node, _Class):
            return None if node.value == {} else ""
        return _first(_against(own, each_of(hint), f"{key}.{name}") for name, own in node.items())
    classes = classes_of(hint)
    if not classes:
        return None
    if isinstance(node, _Class) and "class_path" not in node and all(map(dataclasses.is_dataclass, classes)):
        return _parameters(node, classes[0], key, None, 0)
    return _class(node, classes, key, handed(hint))


def _fits(node: _Value, hint: Any) -> bool:
    """Whether a value is the number, word or the like that is asked for; what was typed is text, too."""
    value = node.value
    if hint is NoneType:
        return value is None and node.text != ""  # --key= says nothing at all
    if get_origin(hint) is Literal:
        return value in get_args(hint) or node.text in get_args(hint)
    if hint in (str, Path):
        return isinstance(value, str) or (node.text is not None and not isinstance(value, list))
    if hint is bool:
        return isinstance(value, bool) or str(value).lower() in ("yes", "no")
    return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


def _node(value: Any, like: _Value) -> _Node:
    """A value inside a list, with the place of the list."""
    if not isinstance(value, Mapping):
        return _Value(value, None if like.text is None else str(value), like.file, like.number)
    tree = _Class()
    _put(tree, ["it"], value, like.text, like.file, like.number)
    found: _Node = tree["it"]
    return found


def _class(node: _Node, classes: tuple[type, ...], key: str, made_with: int | Collection[str]) -> str | None:
    """Against the classes of which a subclass is asked for."""
    path = node.get("class_path") if isinstance(node, _Class) else node
    if path is None:
        assert isinstance(node, _Class)
        near = did_you_mean(next(iter(node), ""), ["class_path"])
        return f"{_place(key, node)}: expected class_path and init_args, found {', '.join(node) or 'nothing'}.{near}"
    if not isinstance(path, _Value) or not isinstance(path.value, str):
        return ""
    kind = f"{_place(key, path)}: expected a class of the kind {' or '.join(own.__name__ for own in classes)}"
    found, problem = imported(path.value, classes)
    known = ", ".join(sorted(ours(classes))) or shorten(lightnings(classes))
    if found is None:
        return f"{kind}{known and f' ({known})'}, {problem}"
    if not inspect.isclass(found):
        return None
    if not issubclass(found, classes):
        return f"{kind}{known and f' ({known})'}, found {path.value}, which is none"
    if lacks := sorted(map(str, getattr(found, "__abstractmethods__", ()))):
        mine = [name for name in vars(found) if name not in dir(found.__base__)]
        meant = [f" Did you mean {name} by its {like}?" for name in lacks if (like := closest(name, mine))]
        return f"{kind} that defines {' and '.join(lacks)}, found {path.value}, which does not.{''.join(meant)}"
    inner = {name: own for name, own in node.items() if name != "class_path"} if isinstance(node, _Class) else {}
    return _parameters(_Class(inner), found, key, path, made_with)


def _parameters(
    node: _Class, found: type, key: str, path: _Value | None, made_with: int | Collection[str]
) -> str | None:
    """Against what a class takes; of its arguments the first are not the configuration's, or some need not be."""
    hints, needed = _taken(found)
    if isinstance(made_with, int):
        hints = dict(list(hints.items())[made_with:])
    for name, own in node.items():
        if name not in hints and (path is None or _number(own) >= path.number):  # else given for the class before
            return (
                f"{_place(f'{key}.{name}', own)}: expected what {found.__name__} takes ({', '.join(hints)}), found "
                f"{name!r}.{did_you_mean(name, hints)}{_not_followed(found)}"
            )
        problem = _against(own, hints[name], f"{key}.{name}") if name in hints else None
        if problem:
            return problem
    given = node.keys() | (set() if isinstance(made_with, int) else set(made_with))
    missing = [name for name in hints if name in needed and name not in given]
    if not missing:
        return None
    place = _place(key, path if path is not None else node)
    return f"{place}: expected {' and '.join(missing)}, without which there is no {found.__name__}, found nothing"


def _not_followed(found: type) -> str:
    """Where a class hands on its ``**kwargs`` in a way that hides what they may be."""
    own = inspect.signature(found).parameters.values()
    known = {parameter.name for parameter in own}
    hidden = any(parameter.kind is parameter.VAR_KEYWORD for parameter in own) and set(_taken(found)[0]) <= known
    return f" What {found.__name__} takes beside is not seen: write super().__init__(spec, **kwargs)" if hidden else ""


def _taken(found: type) -> tuple[dict[str, Any], set[str]]:
    """What a class takes: name → type, and the names without which there is none."""
    if dataclasses.is_dataclass(found):
        named = {own.name: own for own in dataclasses.fields(found) if own.init}
        hints = get_type_hints(found)
        required = {
            name
            for name, own in named.items()
            if own.default is dataclasses.MISSING and own.default_factory is dataclasses.MISSING
        }
        return {name: hints[name] for name in named}, required
    # a private name of jsonargparse: without it a message is less exact, and no more than that
    from jsonargparse._parameter_resolvers import get_signature_parameters

    taken = [own for own in get_signature_parameters(found, None) if own.name not in ("args", "kwargs")]
    return {own.name: own.annotation for own in taken}, {
        own.name for own in taken if own.default is inspect.Parameter.empty
    }


def _number(node: _Node) -> int:
    return max(map(_number, node.values()), default=0) if isinstance(node, _Class) else node.number
