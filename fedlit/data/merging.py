"""Merges settings of tables into a configuration, where a setting may be one for all clients or one
by client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedlit.data.reading.options import is_by_client
from fedlit.data.table import first_match

_ALL = "*"
_BY_CLIENT = frozenset({"drop", "positive", "split", "task", "convert"})
"""Keys with one value for all clients, or one by client's name or pattern."""
_OF_ONE_SPLIT = frozenset({"group", "time", "column"})


def merged(content: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
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


def _value(key: str, before: Any, change: Any) -> Any:
    """Return the value of a key after a change."""
    if before is None:
        return change
    if key in _BY_CLIENT:
        return _by_client(key, before, change)
    if key == "files":
        return _files(before, change)
    if key == "missing" and isinstance(before, list) != isinstance(change, list):
        before, change = (
            setting if isinstance(setting, Mapping) else {_ALL: setting}
            for setting in (before, change)
        )
    return _combined(before, change)


def _combined(before: Any, change: Any) -> Any:
    if isinstance(before, Mapping) and isinstance(change, Mapping):
        return merged(before, change)
    if isinstance(before, list) and isinstance(change, list):
        return [*before, *(value for value in change if value not in before)]
    return change


def _files(before: Any, change: Mapping[str, Any]) -> Any:
    """Return clients' files with options for reading them. A file's entry may be only its path."""
    if not isinstance(before, Mapping):
        return change
    entries = {
        client: entry if isinstance(entry, Mapping) else {"path": entry}
        for client, entry in before.items()
    }
    changed = {client: merged(entries.get(client, {}), entry) for client, entry in change.items()}
    return {**before, **changed}


def _by_client(key: str, before: Any, change: Any) -> Any:
    """Return a setting that may have one value for all clients, or one by client. The first pattern
    that fits counts, so names stand before patterns.
    """
    settings = _each(key, before)
    names = dict[str, Any]()
    for client, value in _each(key, change).items():
        if client != _ALL:
            names[client] = _combined(first_match(settings, client), value)
            continue
        settings = {name: _combined(setting, value) for name, setting in settings.items()}
        settings.setdefault(_ALL, value)
    result = {**names, **{name: setting for name, setting in settings.items() if name not in names}}
    return result[_ALL] if {*result} == {_ALL} else result


def _each(key: str, value: Any) -> dict[str, Any]:
    """Return a setting by client."""
    if not isinstance(value, Mapping):
        return {_ALL: value}
    is_one = (key == "split" and {*value} <= _OF_ONE_SPLIT) or (key == "task" and "name" in value)
    is_one = is_one or (key == "convert" and not is_by_client(value))
    return {_ALL: value} if is_one else dict(value)
