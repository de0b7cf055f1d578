"""Merges settings of tables into a configuration, where a setting may be one for all clients or one
by client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlit.data.reading.options import is_by_client
from fedlit.data.table import first_match

Content = Mapping[str, Any]
"""A configuration, or a part of it: keys with the values that YAML has, nested."""

_ALL = "*"
_BY_CLIENT = frozenset({"drop", "positive", "split", "task", "convert"})
"""Keys with one value for all clients, or one by client's name or pattern."""
_OF_ONE_SPLIT = frozenset({"group", "time", "column"})


def merged(content: Content, change: Content) -> dict[str, Any]:
    """Return a configuration with a change. What is there stays: lists grow, mappings grow, and a
    value for all clients remains that of the clients which the change does not name.

    Args:
        content: the configuration, or a part of it.
        change: keys to add, nested as in the configuration.

    Example:
        >>> merged({"drop": ["a"]}, {"drop": ["b"]}), merged({"drop": ["a"]}, {"drop": {"north": ["b"]}})
        ({'drop': ['a', 'b']}, {'drop': {'north': ['a', 'b'], '*': ['a']}})
        >>> merged({"files": {"north": "n.csv"}}, {"files": {"north": {"rename": {"AGE": "age"}}}})
        {'files': {'north': {'path': 'n.csv', 'rename': {'AGE': 'age'}}}}
    """
    result = dict(content)
    for key, value in change.items():
        result[key] = _value(key, result.get(key), value)
    return result


def _value(key: str, before: object, change: Any) -> object:
    """Return the value of a key after a change."""
    if before is None:
        return change
    if key in _BY_CLIENT:
        return _by_client(key, before, change)
    if key == "files":
        return _files(before, change)
    if key == "missing" and isinstance(before, list) != isinstance(change, list):
        before = _for_all(before)
        change = _for_all(change)
    return _combined(before, change)


def _for_all(setting: object) -> object:
    """Return a setting by client, which may be one value for all clients."""
    if isinstance(setting, Mapping):
        return setting
    return {_ALL: setting}


def _combined(before: object, change: object) -> object:
    if isinstance(before, Mapping) and isinstance(change, Mapping):
        return merged(before, change)
    if isinstance(before, list) and isinstance(change, list):
        return [*before, *(value for value in change if value not in before)]
    return change


def _files(before: object, change: Content) -> object:
    """Return clients' files with options for reading them. A file's entry may be only its path."""
    if not isinstance(before, Mapping):
        return change
    changed = dict(before)
    for client, entry in change.items():
        options = before.get(client, {})
        if not isinstance(options, Mapping):
            options = {"path": options}
        changed[client] = merged(options, entry)
    return changed


def _by_client(key: str, before: object, change: object) -> object:
    """Return a setting that may have one value for all clients, or one by client. The first pattern
    that fits counts, so names stand before patterns.
    """
    settings = _each(key, before)
    names = dict[str, object]()
    for client, value in _each(key, change).items():
        if client != _ALL:
            names[client] = _combined(first_match(settings, client), value)
            continue
        settings = {name: _combined(setting, value) for name, setting in settings.items()}
        settings.setdefault(_ALL, value)
    result = {**names, **{name: setting for name, setting in settings.items() if name not in names}}
    if {*result} == {_ALL}:
        return result[_ALL]
    return result


def _each(key: str, value: object) -> dict[str, object]:
    """Return a setting by client."""
    if not isinstance(value, Mapping):
        return {_ALL: value}
    is_one = (key == "split" and {*value} <= _OF_ONE_SPLIT) or (key == "task" and "name" in value)
    is_one = is_one or (key == "convert" and not is_by_client(value))
    if is_one:
        return {_ALL: value}
    return dict(value)
