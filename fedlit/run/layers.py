"""Lays configurations over one another, as plain keys and values. The parser gets one mapping."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
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
"""If their class is replaced, these start from the defaults of the new class: SGD would inherit the
weight decay of AdamW."""


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


@dataclass(frozen=True)
class ClassSpec:
    """A class with its arguments, or the arguments of a class that another layer names.

    Attributes:
        class_path: the class; empty for arguments alone.
        init_args: its arguments.
        extras: the other keys beside them: ``dict_kwargs``, or one that the parser refuses.
    """

    class_path: str
    init_args: Mapping[str, Any]
    extras: Mapping[str, Any]

    @classmethod
    def read(cls, value: object, key: str) -> ClassSpec | None:
        """Return what the value of a key names; None for a value that is neither a class nor
        arguments.
        """
        if not isinstance(value, Mapping):
            name = _named(value, key)
            return cls(name, {}, {}) if name else None
        if not set(value) & set(_SPEC):
            return cls("", value, {})
        args = value.get("init_args")
        if not isinstance(args, Mapping):
            args = {}
        extras = {name: setting for name, setting in value.items() if name not in _SPEC}
        return cls(_named(value, key), args, extras)

    def merged(self, over: ClassSpec, key: str) -> ClassSpec:
        """Return the class with another layer laid over it, argument by argument. An argument of a
        class that is replaced is kept if the new class takes it.
        """
        same = not over.class_path or self.is_named_as(over)
        args = dict(self.init_args if same else _still_taken(self.init_args, over.class_path, key))
        for name, value in over.init_args.items():
            args[name] = _over(args.get(name), value, f"{key}.{name}")
        keywords = {"dict_kwargs"} & set(self.extras) if same else set[str]()
        extras = {name: self.extras[name] for name in keywords}
        return ClassSpec(over.class_path or self.class_path, args, {**extras, **over.extras})

    def is_named_as(self, other: ClassSpec) -> bool:
        """Return whether two classes have one name, wherever they are imported from."""
        return self.class_path.rpartition(".")[2] == other.class_path.rpartition(".")[2]

    def written(self) -> dict[str, Any]:
        """Return the keys and values that the parser reads."""
        return {"class_path": self.class_path, "init_args": self.init_args, **self.extras}


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
    below = ClassSpec.read(base, key)
    above = ClassSpec.read(over, key)
    if below is None or above is None or not (below.class_path or above.class_path):
        return over
    if isinstance(over, Mapping):
        _check_spec(over, key)
    spec = below.merged(above, key)
    if isinstance(over, str) and not spec.init_args and not spec.extras:
        return over
    return spec.written()


def _check_spec(content: Mapping[str, Any], key: str) -> None:
    path = content.get("class_path")
    expect(path is None or isinstance(path, str), f"{key}.class_path", "a class", path)
    args = content.get("init_args")
    valid = args is None or isinstance(args, Mapping)
    expect(valid, f"{key}.init_args", "keys and values", args)


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


def _still_taken(args: Mapping[str, Any], path: str, key: str) -> Mapping[str, Any]:
    if key in _RESET or not args:
        return {}
    taken = parameters_of(path)
    return args if taken is None else {name: value for name, value in args.items() if name in taken}


def _without_rate(merged: Mapping[str, Any], group: str, name: str, value: Any) -> Any:
    """Keep the given learning rate if a method asks for an optimizer that is already configured."""
    before = ClassSpec.read((merged.get(group) or {}).get(name), name)
    requested = ClassSpec.read(value, name)
    if f"{group}.{name}" not in _RESET or before is None or requested is None:
        return value
    if (
        not isinstance(value, Mapping)
        or "lr" not in before.init_args
        or not before.is_named_as(requested)
    ):
        return value
    args = {key: setting for key, setting in requested.init_args.items() if key != "lr"}
    return {**value, "init_args": args}


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
    if not inspect.isclass(class_or_function):
        return None
    names: list[str] = ArgumentParser().add_class_arguments(class_or_function, fail_untyped=False)
    return names


def find_class(path: Any) -> Any:
    """Return the class of a dotted path; None if there is none.

    Raises:
        ErrorDuringImport: its module raises when it is imported.
    """
    dotted = isinstance(path, str) and "." in path and _CLASS.fullmatch(path)
    return locate(path) if dotted else None


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
