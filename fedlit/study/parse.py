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
from fedlit.study.study import StudyFile

KEYS: dict[str, Any] = {
    key: kind for key, kind in get_type_hints(StudyFile).items() if key not in ("name", "folder")
}
"""The keys of a study in a file, with their types."""


def load_study(name: str) -> StudyFile:
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
        file = shown(path)
        if file in str(error):
            raise
        raise ConfigError(f"{file}: {error}") from error


def _study(content: Mapping[str, Any], path: Path) -> StudyFile:
    must_be_known("keys of a study", content, KEYS)
    for key in ("methods", "seeds"):
        if content.get(key) in (None, {}, [], ""):
            raise ConfigError(f"expected {key}, without which there is no study, found nothing")
    settings = dict(content)
    if isinstance(settings.get("baselines"), list):
        settings["baselines"] = dict.fromkeys(settings["baselines"])
    for group in ("methods", "scenarios"):
        entries = settings.get(group)
        for name, value in entries.items() if isinstance(entries, Mapping) else ():
            expected = "keys and values such as {config: quickstart}"
            expect(isinstance(value, Mapping), f"{group}.{name}", expected, value)
    if problem := misfit(settings, KEYS, path):
        raise ConfigError(problem)
    file = shown(path)
    parts: dict[str, dict[str, Any]] = {"methods": {}, "scenarios": {}}
    for group, kind in (("methods", Method), ("scenarios", Scenario)):
        for name, value in (settings.get(group) or {}).items():
            _check_changes(value, path, f"{file}: {group}.{name}")
            parts[group][name] = _made(kind, {**value, **_placed(value, path)}, f"{group}.{name}")
    _check_keys((settings.get("search") or {}).get("space"), f"{file}: search.space.")
    _check_keys(settings.get("tune"), f"{file}: tune.")
    study: StudyFile = _made(
        StudyFile, {**settings, **parts, "name": path.stem, "folder": str(path.parent)}, ""
    )
    return study


def _made(kind: Any, content: Mapping[str, Any], key: str) -> Any:
    """Build a dataclass from keys whose types have been checked."""
    settings = dict(content)
    try:
        for name, inner_kind in (("search", Search), ("paper", Paper)):
            if content.get(name) is not None:
                settings[name] = _made(inner_kind, content[name], name)
        return kind(**settings)
    except ConfigError as error:
        if not key:
            raise
        message = str(error)
        between = ": " if message.startswith("expected") else "."
        raise ConfigError(f"{key}{between}{message}") from error


def _placed(method: Mapping[str, Any], study: Path) -> dict[str, str]:
    """Replace a method that is a file of the user by its path, because it may be in the study's
    folder.
    """
    name = method.get("method") or ""
    if name in ("", *cards()):
        return {}
    return {"method": str(find_config(name, METHODS, also=study.parent))}


def _check_changes(changes: Mapping[str, Any], path: Path, key: str) -> None:
    """Check the configuration and the changed keys of a method or a scenario."""
    if changes.get("method"):
        config = find_config(
            str(changes["method"]), METHODS, also=path.parent, what=f"{key}.method:"
        )
        check_keys(read_settings(config), f"{shown(config)}: ")
    for name in changes.get("tune") or {}:
        inside = name not in ("config", "method")
        do = "write one line of methods for each"
        expect(inside, f"{key}.tune.{name}", "a key of a configuration", Told(name), do)
    if changes.get("config"):
        config = find_config(changes["config"], also=path.parent, what=f"{key}.config:")
        if is_mixture(config):
            changed = changes.get("set") or {}
            settings_of(config, {str(name): json.dumps(value) for name, value in changed.items()})
            return
        check_keys(read_yaml(config), f"{shown(config)}: ")
    for part in ("set", "tune"):
        _check_keys(changes.get(part), f"{key}.{part}.")


def _check_keys(changes: Mapping[str, Any] | None, prefix: str) -> None:
    for key in changes or {}:
        check_key(str(key), prefix)
