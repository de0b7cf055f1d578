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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentParser
from jsonargparse._parameter_resolvers import get_signature_parameters

import fedlit
from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.config import parse_yaml, read_yaml

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
        default = defaults.get(action.dest)
        if isinstance(node, _Class) and "class_path" not in node and isinstance(default, Mapping):
            node["class_path"] = _Value(default.get("class_path"), "", None, -1)
        elif isinstance(node, _Class) and "class_path" not in node and hasattr(default, "class_path"):
            node["class_path"] = _Value(default.class_path, "", None, -1)
        problem = _against(node, hint, action.dest)
        if problem:
            return problem
    return None


def in_one_line(message: str) -> str:
    """What jsonargparse says where its reason is not found: the key and the value, as far as it names them.

    Example:
        >>> in_one_line('Parser key "seed":\\n  Expected a <class \\'int\\'>. Got value: text')
        "seed: expected another value, found 'text'"
    """
    keys = re.findall(r'Parser key "([^"]+)"', message)
    values = re.findall(r"(?:Given|Got) value: (.*?)\.?\s*$", message, re.MULTILINE)
    if keys:
        found = f", found {values[-1]!r}" if values and "Namespace(" not in values[-1] else ""
        return f"{'.'.join(dict.fromkeys(keys))}: expected another value{found}"
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
            known = tree[key] = _Class() if known is None else _Class(class_path=known)
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
    return f"{Path(value.file).name}: {key}"


def _plain(node: _Node) -> Any:
    return {key: _plain(value) for key, value in node.items()} if isinstance(node, _Class) else node.value


def _found(node: _Node) -> str:
    if isinstance(node, _Value) and node.text is not None and not isinstance(node.value, list | dict):
        return repr(node.text)
    text = repr(_plain(node))
    return text if len(text) <= 80 else f"{text[:77]}…"


def _alternatives(hint: Any) -> list[Any]:
    return [one for own in get_args(hint) for one in _alternatives(own)] if _is_union(hint) else [hint]


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


_LISTS = ("list", "Sequence", "Iterable", "tuple", "set", "frozenset", "Collection")
_MAPPINGS = ("dict", "Mapping", "MutableMapping")
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    NoneType: "null",
}


def _name(hint: Any) -> str:
    origin = get_origin(hint) or hint
    return getattr(origin, "__name__", "")


def _words(hint: Any, plural: bool = False) -> str:
    """What a type asks for, in plain words."""
    many = {int: "whole numbers", float: "numbers", bool: "true and false", str: "words", Path: "paths"}
    arguments = get_args(hint)
    if hint in _WORDS:
        return many.get(hint, _WORDS[hint]) if plural else _WORDS[hint]
    if _is_union(hint):
        parts = list(dict.fromkeys(_words(own, plural) for own in _alternatives(hint) if _words(own)))
        return f"{', '.join(parts[:-1])} or {parts[-1]}" if len(parts) > 1 else "".join(parts)
    if get_origin(hint) is Literal:
        texts = [str(value) for value in arguments]
        return f"{', '.join(texts[:-1])} or {texts[-1]}" if len(texts) > 1 else texts[0]
    if _name(hint) in _LISTS:
        each = next((own for own in arguments if own is not Ellipsis), Any)
        such = {str: " such as [a, b]", int: " such as [64, 64]"}.get(each, "")
        return f"a list of {_words(each, plural=True) or 'values'}{such}"
    if _name(hint) in _MAPPINGS:
        each = arguments[1] if len(arguments) > 1 else Any
        return f"names with {_words(each, plural=True) or 'values'}, such as {{name: {1 if each is int else '…'}}}"
    classes = _classes(hint)
    if classes:
        return " or ".join(
            ("classes of the kind " if plural else "a class of the kind ") + own.__name__ for own in classes
        )
    return ""


def _classes(hint: Any) -> tuple[type, ...]:
    """The classes of which a subclass is asked for: of a factory, those that it makes."""
    if get_origin(hint) is not None and _name(hint) == "Callable":
        made = get_args(hint)[1] if len(get_args(hint)) > 1 else Any
        return tuple(own for own in _alternatives(made) if inspect.isclass(own))
    return (hint,) if inspect.isclass(hint) and hint not in _WORDS and get_origin(hint) is None else ()


def _against(node: _Node, hint: Any, key: str) -> str | None:
    """What speaks against a value under a type, None if nothing."""
    alternatives = _alternatives(hint)
    problems = [_one(node, own, key) for own in alternatives]
    if any(problem is None for problem in problems):
        return None
    deep = [problem for problem in problems if problem]  # of a class, or of what is inside a list
    if deep:
        return deep[0]
    literal = [str(value) for own in alternatives if get_origin(own) is Literal for value in get_args(own)]
    value = _plain(node)
    hint_text = did_you_mean(value, literal).replace("'", "") if isinstance(value, str) else ""
    if isinstance(value, str) and any(own in (list[str],) for own in alternatives):
        hint_text = f" Did you mean [{value}]?"
    elif isinstance(value, int) and any(_name(own) in _LISTS for own in alternatives):
        hint_text = f" Did you mean [{value}]?"
    return f"{_place(key, node)}: expected {_words(hint) or 'another value'}, found {_found(node)}.{hint_text}"


def _one(node: _Node, hint: Any, key: str) -> str | None:
    """Against one alternative of a type: None if it fits, an empty text if not, or what is wrong inside."""
    value = node.value if isinstance(node, _Value) else None
    if hint is NoneType:
        return None if isinstance(node, _Value) and (value is None or node.text == "null") else ""
    if get_origin(hint) is Literal:
        known = get_args(hint)
        texts = isinstance(node, _Value) and node.text in known
        return None if texts or (isinstance(node, _Value) and value in known) else ""
    if hint in (int, float, bool, str) or (inspect.isclass(hint) and issubclass(hint, Path)):
        return _scalar(node, hint)
    if _name(hint) in _LISTS:
        if not isinstance(node, _Value) or not isinstance(value, list | tuple):
            return ""
        inner = next((own for own in get_args(hint) if own is not Ellipsis), Any)
        return _first(_against(_node(own, node), inner, f"{key}[{place}]") for place, own in enumerate(value))
    if _name(hint) in _MAPPINGS:
        if not isinstance(node, _Class):
            return None if value == {} else ""
        inner = get_args(hint)[1] if len(get_args(hint)) > 1 else Any
        return _first(_against(own, inner, f"{key}.{name}") for name, own in node.items())
    classes = _classes(hint)
    if not classes:
        return None
    if isinstance(node, _Class) and "class_path" not in node and all(map(dataclasses.is_dataclass, classes)):
        return _parameters(node, classes[0], key, -1, 0)
    return _class(node, classes, key, len(get_args(hint)[0]) if _name(hint) == "Callable" else 0)


def _scalar(node: _Node, hint: Any) -> str | None:
    if not isinstance(node, _Value):
        return ""
    value = node.value
    if hint is str or (inspect.isclass(hint) and issubclass(hint, Path)):
        return None if isinstance(value, str) or (node.text is not None and not isinstance(value, list)) else ""
    if hint is bool:
        return None if isinstance(value, bool) or str(value).lower() in ("yes", "no") else ""
    fits = isinstance(value, int) or (hint is float and isinstance(value, float))
    return None if fits and not isinstance(value, bool) else ""


def _first(problems: Iterable[str | None]) -> str | None:
    return next((problem for problem in problems if problem), None)


def _node(value: Any, like: _Value) -> _Node:
    """A value inside a list, with the place of the list."""
    if not isinstance(value, Mapping):
        return _Value(value, None if like.text is None else str(value), like.file, like.number)
    tree = _Class()
    _put(tree, ["it"], value, like.text, like.file, like.number)
    return tree["it"]  # type: ignore[no-any-return]


def _class(node: _Node, classes: tuple[type, ...], key: str, made_with: int) -> str | None:
    """Against the classes of which a subclass is asked for."""
    if isinstance(node, _Class):
        if "class_path" not in node:
            near = did_you_mean(next(iter(node), ""), ["class_path"]).replace("'", "")
            names = ", ".join(node) or "nothing"
            return f"{_place(key, node)}: expected class_path and init_args, found {names}.{near}"
        path = node["class_path"]
    else:
        path = node
    if not isinstance(path, _Value) or not isinstance(path.value, str):
        return ""
    place, asked = _place(key, path), " or ".join(own.__name__ for own in classes)
    found, problem = _imported(path.value, classes)
    if found is None:
        return f"{place}: expected a class of the kind {asked}, {problem}"
    if inspect.isclass(found) and not issubclass(found, classes):
        known = ", ".join(sorted({_public(own) for base in classes for own in _subclasses(base)})[:8])
        return f"{place}: expected a class of the kind {asked} ({known}), found {path.value}, which is none"
    children = (
        _Class({name: own for name, own in node.items() if name != "class_path"}) if node is not path else _Class()
    )
    return _parameters(children, found, key, path.number, made_with) if inspect.isclass(found) else None


def _parameters(node: _Class, found: type, key: str, since: int, made_with: int) -> str | None:
    """Against what a class takes; its first ``made_with`` arguments are not the configuration's."""
    taken = [own for own in get_signature_parameters(found, None) if own.name not in ("args", "kwargs")]
    hints = {own.name: own.annotation for own in taken[made_with:]}
    for name, own in node.items():
        if name in hints:
            problem = _against(own, hints[name], f"{key}.{name}")
            if problem:
                return problem
        elif _number(own) >= since:  # those given for the class before are dropped
            known = ", ".join(hints)
            return (
                f"{_place(f'{key}.{name}', own)}: expected what {found.__name__} takes ({known}), found {name!r}."
                + did_you_mean(name, hints).replace("'", "")
            )
    missing = [own.name for own in taken[made_with:] if own.default is inspect.Parameter.empty and own.name not in node]
    if missing:
        shown = " and ".join(f"{key}.{name}" for name in missing)
        return f"{shown}: expected a value, for {found.__name__} needs {'one' if len(missing) == 1 else 'them'}, found none"
    return None


def _number(node: _Node) -> int:
    return max(map(_number, node.values()), default=0) if isinstance(node, _Class) else node.number


def _subclasses(base: type) -> list[type]:
    return [own for child in base.__subclasses__() for own in (child, *_subclasses(child))]


def _public(own: type) -> str:
    """The name by which a configuration names a class."""
    short = getattr(fedlit, own.__name__, None) if own.__name__ in dir(fedlit) else None
    return f"fedlit.{own.__name__}" if short is own else own.__name__


def _imported(path: str, classes: tuple[type, ...]) -> tuple[Any, str]:
    """What a class path means; None and what was found instead."""
    module, _, name = path.rpartition(".")
    if not module:
        known = {own.__name__: own for base in classes for own in (base, *_subclasses(base))}
        if name in known:
            return known[name], ""
        near = did_you_mean(name, known) or did_you_mean(name, dir(fedlit)).replace("mean '", "mean 'fedlit.")
        return None, f"found {path}.{near.replace(chr(39), '')}"
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
        near = did_you_mean(name, dir(home))
        return None, f"found {path}, which {module} does not have." + near.replace("mean '", f"mean {module}.").replace(
            "'", ""
        )
    return getattr(home, name), ""


def _line(error: Exception, module: str) -> str:
    """File and line of an error in a person's own module."""
    if isinstance(error, SyntaxError):
        return "" if "line" in str(error) else f" ({error.filename}, line {error.lineno})"
    frames = [own for own in traceback.extract_tb(error.__traceback__) if "importlib" not in own.filename]
    own = [frame for frame in frames if not frame.filename.startswith((sys.prefix, str(Path(__file__).parents[1])))]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
