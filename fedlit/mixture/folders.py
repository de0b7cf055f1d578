"""The folders of a mixture's runs, and what they contain. It imports nothing heavy, because it is
read before torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import DataError, Told, expect
from fedlit.score.plain import check_stack, check_weights, read_json

CONFIG = "config.yaml"
MIXED = "mixture.json"
KEPT = "parts/{}/config.yaml"
"""The configuration of a part in the folder of a run."""
FORMAT = 3


def newest(folder: Path) -> Path | None:
    """Return the newest mixture in a folder of runs, or None if there is none."""
    folders = [
        path
        for path in folder.glob("version_*")
        if path.name[8:].isdigit() and (path / "parts").is_dir()
    ]
    return max(folders, key=lambda path: int(path.name[8:]), default=None)


def find_mixture(run: str | Path) -> Path | None:
    """Return the folder of a mixture, given this folder or the name of its configuration; None if
    there is no mixture.
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
    do = "it was not trained to its end, so continue with fedlit fit … --ckpt_path last"
    expect(
        path.is_file(), str(folder), f"{MIXED}, which says how parts are mixed", Told("none"), do
    )
    content = read_json(path)
    clients = content.get("clients")
    if content.get("format") != FORMAT or not isinstance(clients, dict) or not clients:
        raise DataError(
            f"{path}: expected what fedlit fit writes, found others; fit again with --ckpt_path "
            "last"
        )
    for client, entry in clients.items():
        prefix = f"{path}: client {client!r}"
        entry = entry if isinstance(entry, dict) else {}
        weights = check_weights(entry.get("weights"), prefix)
        _ = check_stack(entry.get("stack"), prefix)
        if not set(weights) <= set(parts):
            raise DataError(
                f"{path}: client {client!r}: expected weights of some of {', '.join(parts)}, found "
                "others"
            )
    return clients
