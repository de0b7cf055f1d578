"""Why a configuration is refused: the value that does not fit, by the types of the classes that take it.

jsonargparse says what each alternative of a type said against a value, without the class's key. Here its verdict is
taken, and the reason is looked for anew: every value given is held against the type of its key.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from jsonargparse import ArgumentParser

from fedlit.errors import ConfigError, did_you_mean
from fedlit.lazy import HOMES
from fedlit.run.config import parse_yaml, read_yaml, shown
from fedlit.run.words import alternatives, classes_of, each_of, is_list, is_mapping, is_scalar, literals, words

__all__ = ["diagnose", "in_one_line"]


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


def in_one_line(message: str) -> str:
    r"""What jsonargparse says where its reason is not found: the key and the value, as far as it names them.

    Example:
        >>> in_one_line('Parser key "seed":\n  Expected a <class \'int\'>. Got value: text')
        "seed: expected another value, found 'text' (fedlit fit --help seed says which)"
    """
    keys = re.findall(r'Parser key "([^"]+)"', message)
    values = re.findall(r"(?:Given|Got) value: (.*?)\.?\s*$", message, re.MULTILINE)
    if keys:
        found = f", found {values[-1]!r}" if values and "Namespace(" not in values[-1] else ""
        key = ".".join(dict.fromkeys(keys))
        return f"{key}: expected another value{found} (fedlit fit --help {key} says which)"
    text = re.sub(r"\bParser key\b|<class '([\w.]+)'>", r"\1", " ".join(message.split())).rstrip(".")
    return f"{text} (fedlit fit --help lists all keys)"


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
            named = isinstance(known, _Value) and isinstance(known.value, str)  # a class, by its path alone
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
    word = isinstance(value, str) and "." not in value and any(map(is_scalar, set(found) - {NoneType}))
    if deep and not word:
        return deep[0]
    near = did_you_mean(value, literals(hint)) if isinstance(value, str) else ""
    lists = [each_of(own) for own in found if is_list(own)]
    if any(each in (str, int) and isinstance(value, each) for each in lists):
        near = f" Did you mean [{value}]?"
    return f"{_place(key, node)}: expected {words(hint) or 'another value'}, found {_found(node)}.{near}"


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
    return _class(node, classes, key, len(get_args(hint)[0]) if get_args(hint) else 0)


def _fits(node: _Value, hint: Any) -> bool:
    """Whether a value is the number, word or the like that is asked for; what was typed is text, too."""
    value = node.value
    if hint is NoneType:
        return value is None
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


def _class(node: _Node, classes: tuple[type, ...], key: str, made_with: int) -> str | None:
    """Against the classes of which a subclass is asked for."""
    path = node.get("class_path") if isinstance(node, _Class) else node
    if path is None:
        assert isinstance(node, _Class)
        near = did_you_mean(next(iter(node), ""), ["class_path"])
        return f"{_place(key, node)}: expected class_path and init_args, found {', '.join(node) or 'nothing'}.{near}"
    if not isinstance(path, _Value) or not isinstance(path.value, str):
        return ""
    kind = f"{_place(key, path)}: expected a class of the kind {' or '.join(own.__name__ for own in classes)}"
    found, problem = _imported(path.value, classes)
    if found is None:
        return f"{kind}, {problem}"
    if not inspect.isclass(found):
        return None
    if not issubclass(found, classes):
        known = ", ".join(sorted(_ours(classes)))
        return f"{kind}{known and f' ({known})'}, found {path.value}, which is none"
    inner = {name: own for name, own in node.items() if name != "class_path"} if isinstance(node, _Class) else {}
    return _parameters(_Class(inner), found, key, path, made_with)


def _parameters(node: _Class, found: type, key: str, path: _Value | None, made_with: int) -> str | None:
    """Against what a class takes; its first ``made_with`` arguments are not the configuration's."""
    # a private name of jsonargparse: without it a message is less exact, and no more than that
    from jsonargparse._parameter_resolvers import get_signature_parameters

    taken = [own for own in get_signature_parameters(found, None) if own.name not in ("args", "kwargs")][made_with:]
    hints = {own.name: own.annotation for own in taken}
    for name, own in node.items():
        if name not in hints and (path is None or _number(own) >= path.number):  # else given for the class before
            return (
                f"{_place(f'{key}.{name}', own)}: expected what {found.__name__} takes ({', '.join(hints)}), found "
                f"{name!r}.{did_you_mean(name, hints)}"
            )
        problem = _against(own, hints[name], f"{key}.{name}") if name in hints else None
        if problem:
            return problem
    missing = [own.name for own in taken if own.default is inspect.Parameter.empty and own.name not in node]
    if not missing:
        return None
    place = _place(key, path if path is not None else node)
    return f"{place}: expected {' and '.join(missing)}, without which there is no {found.__name__}, found nothing"


def _number(node: _Node) -> int:
    return max(map(_number, node.values()), default=0) if isinstance(node, _Class) else node.number


def _subclasses(base: type) -> list[type]:
    children: list[type] = base.__subclasses__()
    return [own for child in children for own in (child, *_subclasses(child))]


def _ours(classes: tuple[type, ...]) -> dict[str, type]:
    """Classes of a kind that come with fedlit, by the name by which a configuration names them."""
    # not those of version 0.1, which warn
    named = {name: getattr(importlib.import_module(home), name) for name, home in HOMES.items() if name != "Grouping"}
    return {
        f"fedlit.{name}": own
        for name, own in named.items()
        if inspect.isclass(own) and issubclass(own, classes) and not inspect.isabstract(own)
    }


def _imported(path: str, classes: tuple[type, ...]) -> tuple[Any, str]:
    """What a class path means; None and what was found instead."""
    module, _, name = path.rpartition(".")
    if not module:
        known = {own.__name__: own for base in classes for own in (base, *_subclasses(base))}
        if name in known:
            return known[name], ""
        ours = [own.removeprefix("fedlit.") for own in _ours(classes)]
        return None, f"found {path}.{did_you_mean(name, ours, 'fedlit.') or did_you_mean(name, known)}"
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if module == missing or module.startswith(f"{missing}."):
            folders = f"{Path.cwd()} and beside the configuration"
            return None, f"found {path}, whose module {missing} does not exist (looked in {folders})"
        return None, f"found that {module} needs a module that is not installed: {missing}{_line(error, module)}"
    except Exception as error:
        return None, f"found an error in {module}: {type(error).__name__}: {error}{_line(error, module)}"
    if not hasattr(home, name):
        return None, f"found {path}, which {module} does not have.{did_you_mean(name, dir(home), f'{module}.')}"
    return getattr(home, name), ""


def _line(error: Exception, module: str) -> str:
    """File and line of an error in a person's own module."""
    if isinstance(error, SyntaxError):
        return "" if "line" in str(error) else f" ({error.filename}, line {error.lineno})"
    frames = [own for own in traceback.extract_tb(error.__traceback__) if "importlib" not in own.filename]
    own = [frame for frame in frames if not frame.filename.startswith((sys.prefix, str(Path(__file__).parents[1])))]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
