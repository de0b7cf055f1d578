"""Finds the folders of mixtures. It imports nothing heavy, because ``fedlit predict --run`` uses it before torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, DataError
from fedlit.score.plain import check_stack, check_weights, read_json

CONFIG, MIXED, FORMAT = "config.yaml", "mixture.json", 2


def newest(folder: Path) -> Path | None:
    """Return the newest mixture in a folder of runs, or None if there is none."""
    found = [path for path in folder.glob("version_*") if path.name[8:].isdigit() and (path / "parts").is_dir()]
    return max(found, key=lambda path: int(path.name[8:]), default=None)


def find_mixture(run: str | Path) -> Path | None:
    """Return the folder of a mixture, given this folder or the name of its configuration; None if there
    is no mixture.
    """
    path = Path(run)
    if (path / "parts").is_dir() and (path / CONFIG).is_file():
        return path
    name = path.stem if path.suffix in (".yaml", ".yml") else path.name
    return newest(path) or newest(Path("lightning_logs", name))


def read_mixture(folder: Path, parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Map each client to the stored result of its mixture.

    Args:
        folder: the folder of the run.
        parts: the parts of the run, by name.

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
    if found.get("format") != FORMAT or not isinstance(clients, dict) or not clients:
        raise DataError(f"{path}: expected what fedlit fit writes, found others; fit again with --ckpt_path last")
    for client, own in clients.items():
        where, own = f"{path}: client {client!r}", own if isinstance(own, dict) else {}
        weights, _ = check_weights(own.get("weights"), where), check_stack(own.get("stack"), where)
        if not set(weights) <= set(parts):
            raise DataError(f"{path}: client {client!r}: expected weights of some of {', '.join(parts)}, found others")
    return clients
