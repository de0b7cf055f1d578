"""Where runs of several parts lie. Light: ``fedlit predict --run`` asks before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, DataError
from fedlit.score.plain import read_json

__all__ = ["CONFIG", "MIXED", "find_composite", "newest", "read_mixture"]

CONFIG, MIXED, PARTS = "config.yaml", "mixture.json", "parts"
_FORMAT = 1


def _versions(parent: Path) -> list[Path]:
    """Runs of several parts, the newest first."""
    found = [path for path in parent.glob("version_*") if (path / PARTS).is_dir()]
    numbers = {int(path.name.removeprefix("version_")): path for path in found if path.name[8:].isdigit()}
    return [numbers[number] for number in sorted(numbers, reverse=True)]


def newest(root: Path, name: str) -> Path | None:
    """The newest run of several parts of a name; None if there is none."""
    return next(iter(_versions(root / name)), None)


def find_composite(run: str | Path) -> Path | None:
    """The folder of a run of several parts, by its folder or its configuration's name; None if it is none."""
    path = Path(run)
    if (path / PARTS).is_dir() and (path / CONFIG).is_file():
        return path
    name = path.stem if path.suffix in (".yaml", ".yml") else path.name
    for folder in (path, Path("lightning_logs", name)):
        if found := _versions(folder):
            return found[0]
    return None


def read_mixture(folder: Path, parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Client → what was found of its mixture.

    Args:
        folder: the run's.
        parts: that the run has, by name.

    Raises:
        ConfigError: the run was not trained to its end.
        DataError: the file was altered.
    """
    path = folder / MIXED
    if not path.is_file():
        raise ConfigError(
            f"{folder}: expected {MIXED}, which says how parts are mixed, found none: it was not trained to its end. "
            "Continue with fedlit fit … --ckpt_path last"
        )
    found = read_json(path)
    clients = found.get("clients")
    if found.get("format") != _FORMAT or not isinstance(clients, dict) or not clients:
        raise DataError(f"{path}: expected what fedlit fit writes, found others; fit again with --ckpt_path last")
    for client, own in clients.items():
        recipe = own.get("recipe") if isinstance(own, dict) else None
        weights = recipe.get("weights") if isinstance(recipe, dict) else None
        if not isinstance(weights, dict) or not set(weights) <= set(parts):
            raise DataError(
                f"{path}: client {client!r}: expected weights of some of {', '.join(parts)}, found others; fit again "
                "with --ckpt_path last"
            )
    return clients
