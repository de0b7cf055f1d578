"""Reads a study from a YAML file. It imports nothing heavy, so that misspellings are reported at
once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from fedlit.errors import ConfigError, Told, expect, must_be_known
from fedlit.mixture.settings import is_mixture, settings_of
from fedlit.run.catalogue import cards
from fedlit.run.config import METHODS, STUDIES, find_config, read_settings, read_yaml, shown
from fedlit.run.keys import check_key, check_keys
from fedlit.run.messages import misfit
from fedlit.study.method import Method, Paper, Scenario, Search
from fedlit.study.study import Study, parse_seeds

KEYS: dict[str, Any] = {
    key: kind for key, kind in get_type_hints(Study).items() if key not in ("name", "folder")
}
"""The keys of a study in a file, with their types."""


def load_study(name: str) -> Study:
    """Read a study.

    Args:
        name: a path, or the name of a YAML file in the current folder, in ``configs/studies/``, or
            among those that come with fedlit.

    Raises:
        ConfigError: there is no such study, or it is not valid; the message names its file and the
            key.

    Example:
        >>> sorted(load_study("quickstart").methods)
        ['fedavg', 'local']
    """
    path = find_config(name, STUDIES)
    try:
        return _study(read_yaml(path), path)
    except ConfigError as error:
        where = shown(path)
        raise error if where in str(error) else ConfigError(f"{where}: {error}") from error


def _study(content: Mapping[str, Any], path: Path) -> Study:
    must_be_known("keys of a study", content, KEYS)
    for key in ("methods", "seeds"):
        if content.get(key) in (None, {}, [], ""):
            raise ConfigError(f"expected {key}, without which there is no study, found nothing")
    own = _with_seeds(content)
    if isinstance(own.get("baselines"), list):
        own["baselines"] = dict.fromkeys(own["baselines"])
    if isinstance(own.get("search"), Mapping):
        own["search"] = _with_seeds(own["search"])
    for group in ("methods", "scenarios"):
        for name, value in (
            (own.get(group) or {}).items() if isinstance(own.get(group), Mapping) else ()
        ):
            such = "keys and values such as {config: quickstart}"
            expect(isinstance(value, Mapping), f"{group}.{name}", such, value)
    if problem := misfit(own, KEYS, path):
        raise ConfigError(problem)
    where = shown(path)
    made: dict[str, dict[str, Any]] = {"methods": {}, "scenarios": {}}
    for group, kind in (("methods", Method), ("scenarios", Scenario)):
        for name, value in (own.get(group) or {}).items():
            _check_changes(value, path, f"{where}: {group}.{name}")
            made[group][name] = _made(kind, {**value, **_placed(value, path)}, f"{group}.{name}")
    _check_keys((own.get("search") or {}).get("space"), f"{where}: search.space.")
    _check_keys(own.get("tune"), f"{where}: tune.")
    study: Study = _made(Study, {**own, **made, "name": path.stem, "folder": str(path.parent)}, "")
    return study


def _with_seeds(content: Mapping[str, Any]) -> dict[str, Any]:
    """Replace seeds such as ``8:28`` by numbers."""
    read = {
        key: parse_seeds(content[key], key)
        for key in ("seeds", "tune_seeds")
        if content.get(key) is not None
    }
    return {**content, **read}


def _made(kind: Any, content: Mapping[str, Any], key: str) -> Any:
    """Build a dataclass from keys whose types have been checked."""
    inner = {
        name: own
        for name, own in (("search", Search), ("paper", Paper))
        if content.get(name) is not None
    }
    try:
        return kind(
            **{**content, **{name: _made(own, content[name], name) for name, own in inner.items()}}
        )
    except ConfigError as error:
        told = str(error)
        between = "" if not key else ": " if told.startswith("expected") else "."
        raise ConfigError(f"{key}{between}{told}") from error


def _placed(method: Mapping[str, Any], study: Path) -> dict[str, str]:
    """Replace a method that is a file of the user by its path, because it may be in the study's
    folder.
    """
    name = method.get("method") or ""
    return (
        {}
        if name in ("", *cards())
        else {"method": str(find_config(name, METHODS, also=study.parent))}
    )


def _check_changes(own: Mapping[str, Any], path: Path, key: str) -> None:
    """Check the configuration and the changed keys of a method or a scenario."""
    if own.get("method"):
        found = find_config(str(own["method"]), METHODS, also=path.parent, what=f"{key}.method:")
        check_keys(read_settings(found), f"{shown(found)}: ")
    for name in own.get("tune") or {}:
        inside = name not in ("config", "method")
        do = "write one line of methods for each"
        expect(inside, f"{key}.tune.{name}", "a key of a configuration", Told(name), do)
    if own.get("config"):
        found = find_config(own["config"], also=path.parent, what=f"{key}.config:")
        if is_mixture(found):
            settings_of(
                found,
                {str(name): json.dumps(value) for name, value in (own.get("set") or {}).items()},
            )
            return
        check_keys(read_yaml(found), f"{shown(found)}: ")
    for part in ("set", "tune"):
        _check_keys(own.get(part), f"{key}.{part}.")


def _check_keys(changes: Mapping[str, Any] | None, where: str) -> None:
    for key in changes or {}:
        check_key(str(key), where)
