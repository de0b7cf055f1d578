"""Reads the settings of a YAML file into a dataclass, whose fields are the keys of the file, with
their types and defaults. It imports nothing heavy, so that misspellings are reported at once.

A run's configuration names classes, and goes through Lightning's parser (:mod:`fedlit.run.load`).
The files of mixtures, studies, coordinators and sites name none: they are read here.
"""

from __future__ import annotations

from argparse import ArgumentError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.config import read_yaml, shown

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

_Settings = TypeVar("_Settings")

Content = Mapping[str, object]
"""Keys and values, as a YAML file has them."""

_WORDS: dict[object, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", Path: "a path", NoneType: "null",
}  # fmt: skip
"""Types in the terms of the keys' page."""


def read(
    kind: type[_Settings],
    source: Path | object,
    overrides: Content | None = None,
    *,
    prefix: str = "",
    **given: object,
) -> _Settings:
    """Read settings. A key without a value has its default.

    Args:
        kind: a dataclass. Its fields may be dataclasses, too, or mappings of names to them.
        source: the file, or its content.
        overrides: maps dotted keys to the values that replace those of the source.
        prefix: the beginning of messages; the file if it is empty.
        given: fields that the source may not set, with their values.

    Raises:
        ConfigError: a key is not known, lacks a value that it needs, or has one of another type; or
            the dataclass refuses its value. The message has the whole key.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Limits:
        ...     rows: int
        ...     share: float = 0.5
        >>> read(Limits, {"rows": 3, "share": 1})
        Limits(rows=3, share=1.0)
        >>> read(Limits, {"rows": 3}, {"rwos": 4}, prefix="limits.yaml")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: limits.yaml: expected some of rows, share, found 'rwos'. Did you
            mean 'rows'?
    """
    content = source
    if isinstance(source, Path):
        content = read_yaml(source)
        prefix = prefix or shown(source)
    for key, value in (overrides or {}).items():
        content = placed(content, key.split("."), value)
    with located(prefix):
        return _settings(kind, content, given)


def placed(tree: object, path: Sequence[str], value: object) -> dict[str, object]:
    """Return a copy of nested mappings that has a value at a path.

    Example:
        >>> placed({"a": {"b": 1, "c": 2}}, ["a", "b"], 3)
        {'a': {'b': 3, 'c': 2}}
        >>> placed({"a": "text"}, ["a", "b"], 3)
        {'a': {'b': 3}}
    """
    name, *below = path
    branch = dict(tree) if isinstance(tree, Mapping) else {}
    branch[name] = placed(branch.get(name), below, value) if below else value
    return branch


def keys_of(kind: type[object], above: str = "") -> list[str]:
    """Return the dotted keys that a dataclass reads, without those of mappings.

    Example:
        >>> from fedlit.privacy.settings import Masked
        >>> keys_of(Masked)
        ['bits', 'norm', 'least']
    """
    hints = get_type_hints(kind)
    keys = list[str]()
    for field in _fields(kind):
        key = f"{above}{field.name}"
        inside = _group(hints[field.name])
        keys += [key] if inside is None else keys_of(inside, f"{key}.")
    return keys


@contextmanager
def located(prefix: str) -> Iterator[None]:
    """Begin the errors that are raised inside the block with a prefix, such as a file, unless they
    begin with it already.
    """
    try:
        yield
    except ConfigError as error:
        if str(error).startswith(prefix):
            raise
        raise type(error)(f"{prefix}: {error}") from error


@contextmanager
def below(key: str) -> Iterator[None]:
    """Put a key before the keys of errors that are raised inside the block.

    Example:
        >>> with below("methods.local"):
        ...     raise ConfigError("label: expected text, found 3")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: methods.local.label: expected text, found 3
    """
    try:
        yield
    except ConfigError as error:
        message = str(error)
        between = ": " if message.startswith("expected") else "."
        raise type(error)(f"{key}{between}{message}") from error


def _fields(kind: type[object]) -> list[Field[Any]]:
    assert is_dataclass(kind)
    return [field for field in fields(kind) if field.init]


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _group(hint: object) -> type[object] | None:
    """Return the dataclass that a field's type names, if it does."""
    for kind in _choices(hint):
        if isinstance(kind, type) and is_dataclass(kind):
            return kind
    return None


def _choices(hint: object) -> tuple[object, ...]:
    """Return the types of which a value may be one."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _settings(kind: type[_Settings], content: object, given: Content) -> _Settings:
    """Build a dataclass from the content of a file, or of a part of it."""
    open_fields = {field.name: field for field in _fields(kind) if field.name not in given}
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"expected {_words(kind)}, found {content!r}")
    for key in content:
        if key not in open_fields:
            hint = did_you_mean(str(key), open_fields)
            raise ConfigError(f"expected some of {', '.join(open_fields)}, found {key!r}.{hint}")
    filled = {key: value for key, value in content.items() if value is not None}
    hints = get_type_hints(kind)
    for key, field in open_fields.items():
        if _required(field) and key not in filled:
            raise ConfigError(f"{key}: expected {_words(hints[key])}, found nothing")
    values = dict[str, Any]()
    for key, value in filled.items():
        with below(key):
            values[key] = _value(hints[key], value)
    return kind(**given, **values)


def _value(hint: object, value: object) -> object:
    """Return a value as its type says, with what a mapping or a list holds."""
    for kind in _choices(hint):
        if kind is Any or kind is object:
            return value
        if isinstance(value, Mapping):
            if isinstance(kind, type) and is_dataclass(kind):
                return _settings(kind, value, {})
            if _container(kind) is Mapping:
                return _entries(kind, value)
        elif isinstance(value, list | tuple) and _container(kind) is Sequence:
            return _items(kind, value)
    return _plain(hint, value)


def _container(kind: object) -> type[Mapping[Any, Any]] | type[Sequence[Any]] | None:
    """Return whether a type is that of mappings or of lists."""
    outer = get_origin(kind) or kind
    if not isinstance(outer, type) or issubclass(outer, str):
        return None
    if issubclass(outer, Mapping):
        return Mapping
    return Sequence if issubclass(outer, Sequence) else None


def _entries(kind: object, values: Content) -> dict[str, object]:
    _, inside = get_args(kind) or (str, Any)
    entries = dict[str, object]()
    for name, value in values.items():
        with below(str(name)):
            entries[str(name)] = _value(inside, value)
    return entries


def _items(kind: object, values: Sequence[object]) -> Sequence[object]:
    inside = (get_args(kind) or (Any,))[0]
    items = [_value(inside, value) for value in values]
    return tuple(items) if get_origin(kind) is tuple else items


def _plain(hint: object, value: object) -> object:
    """Return a value that is no mapping and no list, or refuse it."""
    simple = tuple(
        kind for kind in _choices(hint) if _container(kind) is None and _group(kind) is None
    )
    if value is None and NoneType in simple:
        return None
    if type(value) in simple:
        return value
    if simple and not isinstance(value, Mapping | list):
        with suppress(ArgumentError):
            return _parser(simple).parse_object({"value": value}).value
    raise ConfigError(f"expected {_words(hint)}, found {value!r}.{_hint(hint, value)}")


@cache
def _parser(kinds: tuple[Any, ...]) -> ArgumentParser:
    """Return a parser of one value of some types, which a run's parser would take alike."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=Union[kinds])  # noqa: UP007
    return parser


def _words(hint: object) -> str:
    """Return a type in the terms of YAML.

    Example:
        >>> _words(int | None), _words(Literal["last", "best"]), _words(dict[str, list[float]])
        ('integer or null', 'last or best', 'mapping to list of number')
    """
    kinds = _choices(hint)
    if len(kinds) > 1:
        return " or ".join(map(_words, kinds))
    inside = get_args(hint)
    if get_origin(hint) is Literal:
        return " or ".join(map(str, inside))
    container = _container(hint)
    if container is Mapping:
        return " to ".join(["mapping", *map(_words, _typed(inside[1:]))])
    if container is Sequence:
        return " of ".join(["list", *map(_words, _typed(inside[:1]))])
    group = _group(hint)
    if group is not None:
        example = max(_fields(group), key=_required)  # the first that is required, if any is
        return f"keys and values such as {example.name}: …"
    return _WORDS.get(hint, "anything")


def _typed(kinds: Sequence[object]) -> list[object]:
    return [kind for kind in kinds if kind not in (Any, object)]


def _hint(hint: object, value: object) -> str:
    """Return a hint at what a text may mean: a list with one entry, or one of the choices."""
    if not isinstance(value, str):
        return ""
    kinds = _choices(hint)
    if any(_container(kind) is Sequence for kind in kinds):
        return f" Did you mean [{value}]?"
    texts = list[str]()
    for kind in kinds:
        if get_origin(kind) is Literal:
            texts += map(str, get_args(kind))
    return did_you_mean(value, texts)
