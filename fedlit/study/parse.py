"""Reads a study from a YAML file. It imports nothing heavy, so that misspellings are reported at
once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedlit.errors import ConfigError, Told, expect
from fedlit.mixture.written import is_mixture, settings_of
from fedlit.run.catalogue import cards
from fedlit.run.config import METHODS, STUDIES, find_config, read_settings, read_yaml, shown
from fedlit.run.keys import check_key, check_keys
from fedlit.run.read import Content, located, read
from fedlit.study.method import Method, Scenario
from fedlit.study.study import StudyFile


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
    with located(shown(path)):
        return _study(read_yaml(path), path)


def _study(content: Content, path: Path) -> StudyFile:
    if content.get("methods") == {}:
        raise ConfigError("methods: expected at least one, found none")
    baselines = content.get("baselines")
    if isinstance(baselines, list) and all(isinstance(name, str) for name in baselines):
        content = {**content, "baselines": dict.fromkeys(baselines)}
    study = read(StudyFile, content, name=path.stem, folder=str(path.parent))
    methods = dict[str, Method]()
    for name, method in study.methods.items():
        key = f"methods.{name}"
        _check_changes(method, path, key)
        methods[name] = _placed(method, path, key)
    for name, scenario in study.scenarios.items():
        _check_changes(scenario, path, f"scenarios.{name}")
    if study.search is not None:
        _check_keys(study.search.space, "search.space.")
    _check_keys(study.tune, "tune.")
    return replace(study, methods=methods)


def _placed(method: Method, study: Path, key: str) -> Method:
    """Replace a method that is a file of the user by its path, because it may be in the study's
    folder. Its keys are checked.
    """
    if not method.method:
        return method
    config = find_config(method.method, METHODS, also=study.parent, what=f"{key}.method:")
    check_keys(read_settings(config), f"{shown(config)}: ")
    return method if method.method in cards() else replace(method, method=str(config))


def _check_changes(changed: Method | Scenario, study: Path, key: str) -> None:
    """Check the configuration and the changed keys of a method or a scenario."""
    for name in changed.tune:
        inside = name not in ("config", "method")
        advice = "write one line of methods for each"
        expect(inside, f"{key}.tune.{name}", "a key of a configuration", Told(name), advice)
    if changed.config:
        config = find_config(changed.config, also=study.parent, what=f"{key}.config:")
        if is_mixture(config):
            settings_of(config, {name: json.dumps(value) for name, value in changed.set.items()})
            return
        check_keys(read_yaml(config), f"{shown(config)}: ")
    _check_keys(changed.set, f"{key}.set.")
    _check_keys(changed.tune, f"{key}.tune.")


def _check_keys(keys: Iterable[str], prefix: str) -> None:
    for key in keys:
        check_key(key, prefix)
