"""What can be known to be wrong in a study's file before torch is imported: keys, types, configurations that are not
there. Each message names the file and the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.mixture.settings import is_mixture, settings_of
from fedlit.run.catalogue import find_method
from fedlit.run.config import find_config, read_yaml, shown
from fedlit.run.keys import check_class_paths, check_file, check_key
from fedlit.run.messages import misfit
from fedlit.study.method import Method, Paper, Scenario, Search, must_be_known, must_have_reference
from fedlit.study.seeds import parse_seeds

__all__ = ["KEYS", "check_study"]

KEYS: dict[str, Any] = {
    "about": str,
    "seeds": Any,
    "methods": dict[str, Method],
    "reference": str,
    "baselines": dict[str, dict[str, Any] | None] | list[str] | None,
    "folds": int,
    "small": int,
    "blends": dict[str, list[str]],
    "choose": str | dict[str, str] | None,
    "checkpoint": Literal["last", "best"],
    "metrics": list[str] | None,
    "bootstrap": int,
    "matters": float,
    "keep_checkpoints": bool,
    "leave_one_out": bool,
    "explain": bool,
    "paper": Paper | None,
    "search": Search | None,
    "tune": dict[str, list[Any]],
    "tune_seeds": Any,
    "scenarios": dict[str, Scenario],
}
"""The keys of a study in a file, with their types; a test compares them with what a study has."""


def check_study(content: Mapping[str, Any], path: Path) -> None:
    """Refuse what is wrong in a study at first sight.

    Args:
        content: what its file says.
        path: the file.

    Raises:
        ConfigError: what is wrong, with file and key.
    """
    where = shown(path)
    for key in content:
        if key not in KEYS:
            raise ConfigError(
                f"{where}: {key}: expected a key of a study ({', '.join(KEYS)}), found none of this name."
                + did_you_mean(str(key), KEYS)
            )
    for key in ("methods", "seeds"):
        if not content.get(key) and content.get(key) != 0:
            raise ConfigError(f"{where}: expected {key}, without which there is no study, found nothing")
    for group in ("methods", "scenarios"):
        own = content.get(group) or {}
        for name, value in own.items() if isinstance(own, Mapping) else ():
            if not isinstance(value, Mapping):
                such = value if isinstance(value, str) else "quickstart"
                raise ConfigError(
                    f"{where}: {group}.{name}: expected keys and values, found {value!r}. "
                    f"Did you mean {{config: {such}}}?"
                )
    plain = {key: value for key, value in content.items() if key not in ("seeds", "tune_seeds")}
    searched = plain.get("search")
    if isinstance(searched, Mapping):  # its seeds may be 8:28, too
        plain["search"] = {key: value for key, value in searched.items() if key != "seeds"}
    if problem := misfit(plain, KEYS, path):
        raise ConfigError(problem)
    try:
        parse_seeds(content["seeds"])
        if content.get("tune_seeds") is not None:
            parse_seeds(content["tune_seeds"], "tune_seeds")
        methods = content["methods"]
        must_have_reference(content.get("reference", "local"), methods)
        for name, method in methods.items():
            must_be_known(
                f"methods.{name}.reference", [method["reference"]] if method.get("reference") else [], methods
            )
        must_be_known("search.method", [searched["method"]] if searched else [], methods)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    for group in ("methods", "scenarios"):
        for name, own in (content.get(group) or {}).items():
            _check_changes(own, path, f"{group}.{name}")
    _check_keys((searched or {}).get("space"), f"{where}: search.space.")
    _check_keys(content.get("tune"), f"{where}: tune.")


def _check_changes(own: Mapping[str, Any], path: Path, key: str) -> None:
    """Of a method or a scenario: its configuration, and the keys that it changes."""
    where = shown(path)
    if own.get("method"):
        found = find_method(str(own["method"]), also=path.parent, what=f"{where}: {key}.method:")
        check_file(read_yaml(found), shown(found))
    for name in ("config", "method"):
        if name in (own.get("tune") or {}):
            raise ConfigError(
                f"{where}: {key}.tune.{name}: expected a key of a configuration, found {name}; write one "
                f"line of methods for each {name}"
            )
    if own.get("config") is not None:
        found = find_config(own["config"], also=path.parent, what=f"{where}: {key}.config:")
        if is_mixture(found):
            changed = {str(name): json.dumps(value) for name, value in (own.get("set") or {}).items()}
            settings_of(found, changed)
            return
        check_file(read_yaml(found), shown(found))
    for part in ("set", "tune"):
        _check_keys(own.get(part), f"{where}: {key}.{part}.")


def _check_keys(changes: Mapping[str, Any] | None, where: str) -> None:
    for key, value in (changes or {}).items():
        check_key(str(key), where)
        check_class_paths(str(key), value, where)
