"""A study from its file: one YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.catalogue import cards, find_method
from fedlit.run.config import find_config, read_yaml
from fedlit.study.check import check_study
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import Study

__all__ = ["load_study"]


def load_study(name: str) -> Study:
    """Read a study.

    Args:
        name: a path, or the name of a YAML in this folder, in ``configs/studies/``, or of those that came with fedlit.

    Raises:
        ConfigError: there is none, or it is not valid.

    Example:
        >>> sorted(load_study("quickstart").methods)
        ['gl', 'gl_step', 'local']
    """
    path = find_config(name, studies=True)
    content = read_yaml(path)
    check_study({key: value for key, value in content.items() if key not in ("name", "folder")}, path)
    try:
        return _parse(content, path)
    except ConfigError as error:
        raise error if str(error).startswith(str(path)) else ConfigError(f"{path}: {error}") from error


def _parse(content: Mapping[str, Any], path: Path) -> Study:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--study", type=Study)
    content = dict(content)
    for part in (content, content.get("search")):
        for key in ("seeds", "tune_seeds"):
            if isinstance(part, dict) and part.get(key) is not None:
                part[key] = parse_seeds(part[key])
    if isinstance(content.get("baselines"), list):
        content["baselines"] = dict.fromkeys(content["baselines"])
    tune = content.pop("tune", None) or {}
    models = content.pop("baselines", None)  # what stands behind a class path is left as it is written
    # Left out of the parsing, which would complete a class_path inside with defaults that are not the configuration's.
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for group in ("methods", "scenarios"):
        if isinstance(content.get(group), dict):
            content[group] = dict(content[group])
            for name, own in content[group].items():
                if isinstance(own, dict):
                    kept = {key: own[key] for key in ("set", "tune") if isinstance(own.get(key), dict)}
                    content[group][name] = {key: own[key] for key in own if key not in kept}
                    changes[group, name] = kept
    for key in ("name", "folder"):
        if key in content:
            raise ConfigError(f"{path}: expected no key {key!r}, found one; a study is named after its file")
    try:
        study: Study = parser.instantiate(
            parser.parse_object({"study": {**content, "name": path.stem, "folder": str(path.parent)}})
        ).study
    except ConfigError:
        raise
    except Exception as error:  # jsonargparse raises many kinds
        reason = " ".join(str(error).split()).removeprefix('Parser key "study": ')
        raise ConfigError(f"{path}: expected a study, found: {reason}") from error
    methods = {
        name: replace(own, method=_placed(own.method, path), **changes.get(("methods", name), {}))
        for name, own in study.methods.items()
    }
    scenarios = {name: replace(own, **changes.get(("scenarios", name), {})) for name, own in study.scenarios.items()}
    return replace(study, methods=methods, scenarios=scenarios, baselines=models, tune=tune)


def _placed(method: str, study: Path) -> str:
    """A method's name as it is; the file of one of the user's own by its path, for it may lie beside the study."""
    return method if method in ("", *cards()) else str(find_method(method, also=study.parent))
