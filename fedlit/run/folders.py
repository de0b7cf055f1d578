"""Where runs lie."""

from __future__ import annotations

from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.train.callbacks.checkpoint import LAST

__all__ = ["CHECKPOINTS", "new_folder", "newest_run", "run_folder"]

CHECKPOINTS = "checkpoints"


def _versions(parent: Path) -> dict[int, Path]:
    """The ``version_<n>`` folders by number."""
    folders = {path.name.removeprefix("version_"): path for path in parent.glob("version_*")}
    return {int(number): path for number, path in folders.items() if number.isdigit()}


def newest_run(root: Path, name: str) -> Path | None:
    """The newest ``version_<n>`` folder of a name in which training began, None if there is none.

    Raises:
        ConfigError: it has no checkpoint: an older run in its place would be a surprise.
    """
    begun = {number: path for number, path in _versions(root / name).items() if (path / CHECKPOINTS).is_dir()}
    if not begun:
        return None
    newest = begun[max(begun)]
    if not (newest / CHECKPOINTS / LAST).is_file():
        older = [
            path / CHECKPOINTS / LAST for _, path in sorted(begun.items()) if (path / CHECKPOINTS / LAST).is_file()
        ]
        raise ConfigError(
            f"expected a checkpoint in {newest}, the newest run of {name}, found none (it ended before its first, or "
            f"checkpoints were off); start a new one, or give --ckpt_path {older[-1] if older else 'FILE'}"
        )
    return newest


def run_folder(checkpoint: Path) -> Path | None:
    """The run's folder that a checkpoint lies in, None if it lies elsewhere."""
    inside = checkpoint.parent.name == CHECKPOINTS and checkpoint.parent.parent.name.startswith("version_")
    return checkpoint.parent.parent if inside else None


def new_folder(root: Path, name: str) -> Path:
    """Make the next ``version_<n>``; two processes that start at once get two."""
    parent = root / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = max(_versions(parent), default=-1) + 1
        while True:
            try:
                (parent / f"version_{number}").mkdir()
                return parent / f"version_{number}"
            except FileExistsError:
                number += 1
    except OSError as error:
        raise ConfigError(
            f"{parent}: expected a folder that can be written to, found: {error.strerror}; set trainer.default_root_dir"
        ) from error
