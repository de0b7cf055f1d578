"""Lays configurations over one another, as plain keys and values. The parser gets one mapping."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from itertools import chain
from pathlib import PurePath
from pydoc import ErrorDuringImport, locate
from typing import Any, NamedTuple

from fedlit.errors import expect
from fedlit.run.config import flatten, listed
from fedlit.yaml_text import TABLES, TEXT

Given = Mapping[str, tuple[Any, str]]
"""Full key → its value, and the key as a message shows it: with two dashes, or with its file."""

_CLASS = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*")
_BY_CLIENT = TEXT | {"files", "missing", "steps", "task"}
"""Keys with a value for all clients, or one by client. None of them takes a class."""
_SPEC = ("class_path", "init_args")
_OF_TABLES = ("data.source.", "data.known")
_RESET = ("model.optimizer", "model.scheduler")
"""Of another class, these start from that class's own defaults: SGD would inherit the weight decay
of AdamW."""


class Layer(NamedTuple):
    """Keys and values from one origin.

    Attributes:
        values: keys and values, nested as in a file or with dotted keys as on the command line.
        where: the text before a key in messages: ``--``, or the file.
        method: whether it is the file of a method, which does not change the learning rate.
        own: whether the user wrote it, so that the classes that it names are allowed.
    """

    values: Mapping[str, Any]
    where: str = "--"
    method: bool = False
    own: bool = True


def leaves(layers: Iterable[Layer]) -> list[tuple[str, Any]]:
    """Return the keys of all layers, with points, and their values."""
    return list(chain.from_iterable(flatten(dict(layer.values)) for layer in layers))


DEFAULTS = Layer({"model.optimizer": {"class_path": "torch.optim.AdamW"}})
"""What lies below all others. The parser has no default of its own here: it would leave AdamW's
settings to SGD."""


def laid(layers: Iterable[Layer]) -> dict[str, Any]:
    """Merge several configurations into one. Later ones take precedence.

    Classes are merged argument by argument. If a class is replaced, its given arguments are kept if
    the new class accepts them; optimizers and schedulers start from their defaults. Lists and other
    mappings are replaced as a whole; a key that ends with ``+`` adds to a list, or to a setting of
    tables.

    Example:
        >>> files = Layer({"model": {"optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}}})
        >>> laid([files, Layer({"model.optimizer.momentum": 0.9})])["model"]["optimizer"]["init_args"]
        {'lr': 0.1, 'momentum': 0.9}
        >>> laid([files, Layer({"model.optimizer": "torch.optim.Adam"})])
        {'model': {'optimizer': 'torch.optim.Adam'}}
        >>> own = Layer({"model.client": {"class_path": "mine.Net", "dict_kwargs": {"width": 8}}})
        >>> laid([own, Layer({"model": {"client": {"class_path": "mine.Net", "init_args": {"depth": 2}}}})])
        {'model': {'client': {'class_path': 'mine.Net', 'init_args': {'depth': 2}, 'dict_kwargs':
        {'width': 8}}}}
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.values.items():
            path = str(key).split(".")
            if isinstance(value, Mapping) and len(path) == 1:
                for name, setting in value.items():
                    setting = _without_rate(merged, key, name, setting) if layer.method else setting
                    merged = _put(merged, [*path, str(name)], setting)
            elif value is not None or len(path) > 1 or not isinstance(merged.get(path[0]), Mapping):
                merged = _put(merged, path, value)
    return deepcopy(merged)


def _put(tree: Any, path: list[str], value: Any, key: str = "") -> Any:
    """Return the tree with a value at a path. Everything outside the path is shared with the old
    tree.
    """
    if not path:
        if isinstance(value, PurePath):
            value = str(value)
        return _over(tree, value, key)
    name, *rest = path
    if isinstance(tree, list) and tree:  # of several callbacks the last
        return [*tree[:-1], _put(tree[-1], path, value, key)]
    if isinstance(tree, str) and _named(tree, key):
        tree = {"class_path": tree}
    tree = dict(tree) if isinstance(tree, Mapping) else {}
    if name == "class_path" and key:
        return _over(tree, {"class_path": value}, key)
    if "class_path" in tree and name not in _SPEC:
        return {**tree, "init_args": _put(tree.get("init_args") or {}, path, value, key)}
    if name.endswith("+") and not rest:
        name = name[:-1]
        return {**tree, name: _added(name, tree.get(name), value, f"{key}.{name}")}
    inside = key if name in _SPEC else f"{key}.{name}".lstrip(".")
    return {**tree, name: _put(tree.get(name), rest, value, inside)}


def _added(name: str, before: Any, value: Any, key: str) -> Any:
    """Return a list or a setting of tables after a value has been added."""
    if not key.startswith(_OF_TABLES):
        return [*listed(before), *listed(value)]
    from fedlit.data.merging import merged  # pandas, which light commands do not need

    change = value if isinstance(value, Mapping) else listed(value)
    return merged({name: before}, {name: change})[name]


def _over(base: Any, over: Any, key: str) -> Any:
    """Lay a value over another: classes are merged argument by argument, all other values are
    replaced.
    """
    old = _named(base, key)
    new = _named(over, key)
    if not (old and isinstance(over, Mapping | str)) and not (new and isinstance(base, Mapping)):
        return over
    if isinstance(over, str) and not new:
        return over
    for name, kind, kind_name in (
        ("class_path", str, "a class"),
        ("init_args", Mapping, "keys and values"),
    ):
        value = over.get(name) if isinstance(over, Mapping) else None
        expect(value is None or isinstance(value, kind), f"{key}.{name}", kind_name, value)
    same = not new or new.rpartition(".")[2] == old.rpartition(".")[2]
    args = dict(_args(base) if same else _still_taken(_args(base), new, key))
    for name, value in _args(over).items():
        args[name] = _over(args.get(name), value, f"{key}.{name}")
    keywords = (
        {"dict_kwargs": base["dict_kwargs"]}
        if same and isinstance(base, Mapping) and "dict_kwargs" in base
        else {}
    )
    if isinstance(over, str) and not args and not keywords:
        return over
    wrong = (
        {name: setting for name, setting in over.items() if name not in _SPEC}
        if new and isinstance(over, Mapping)
        else {}
    )
    # which the parser refuses
    return {"class_path": new or old, "init_args": args, **keywords, **wrong}


def _named(value: Any, key: str) -> str:
    """Return the class that the value of a key names, or an empty text if it names none. ``Yes``
    may be a label, and ``Churn`` a column, where the key says so.
    """
    if isinstance(value, Mapping):
        named = value.get("class_path")
        return named if isinstance(named, str) else ""
    names = set(key.split("."))
    named = isinstance(value, str) and _CLASS.fullmatch(value) is not None
    of_tables = TABLES & names and _BY_CLIENT & names
    return value if named and not of_tables else ""


def _args(value: Any) -> Mapping[str, Any]:
    content = value if isinstance(value, Mapping) else {}
    args = content.get("init_args") if set(content) & set(_SPEC) else content
    return args if isinstance(args, Mapping) else {}


def _still_taken(args: Mapping[str, Any], path: str, key: str) -> Mapping[str, Any]:
    if key in _RESET or not args:
        return {}
    taken = parameters_of(path)
    return args if taken is None else {name: value for name, value in args.items() if name in taken}


def _without_rate(made: Mapping[str, Any], group: str, name: str, value: Any) -> Any:
    """Keep the given learning rate if a method asks for an optimizer that is already configured."""
    before = (made.get(group) or {}).get(name)
    has_rate = f"{group}.{name}" in _RESET and "lr" in _args(before)
    if (
        not has_rate
        or _named(before, name).rpartition(".")[2] != _named(value, name).rpartition(".")[2]
    ):
        return value
    return {
        **value,
        "init_args": {key: setting for key, setting in _args(value).items() if key != "lr"},
    }


@cache
def parameters_of(path: Any) -> list[str] | None:
    """Return the arguments of a class, with those that it passes on to its bases; None if it cannot
    be imported.
    """
    from jsonargparse import ArgumentParser

    try:
        class_or_function = find_class(path)
    except ErrorDuringImport:
        class_or_function = None
    return (
        ArgumentParser().add_class_arguments(class_or_function, fail_untyped=False)
        if inspect.isclass(class_or_function)
        else None
    )


def find_class(path: Any) -> Any:
    """Return the class of a dotted path; None if there is none.

    Raises:
        ErrorDuringImport: its module raises when it is imported.
    """
    return (
        locate(path) if isinstance(path, str) and "." in path and _CLASS.fullmatch(path) else None
    )


def given_in(layers: Iterable[Layer]) -> dict[str, tuple[Any, str]]:
    """Map each key, without ``init_args`` and ``class_path``, to its value and its name in
    messages, in the order in which they were given last.
    """
    settings = dict[str, tuple[Any, str]]()
    for layer in layers:
        for key, value in flatten(dict(layer.values)):
            plain = re.sub(r"\.(init_args|class_path)\b", "", key)
            settings.pop(plain, None)
            settings[plain] = (value, layer.where + plain)
    return settings
