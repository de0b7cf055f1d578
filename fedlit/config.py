"""Where configurations are found. Imports nothing heavy: light commands use it too."""

from __future__ import annotations

from pathlib import Path

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["config_folders", "find_config", "known_configs"]


def config_folders() -> list[Path]:
    """Where a configuration of a bare name is looked for, in this order: here, ``configs/``, and what came with
    the package.
    """
    package = Path(__file__).parent
    shipped = package / "configs"  # in a wheel
    return [Path(), Path("configs"), shipped if shipped.is_dir() else package.parent / "configs"]


def known_configs() -> list[str]:
    """Names of the configurations in ``configs/`` and in the package."""
    return sorted({path.name for folder in config_folders()[1:] for path in folder.glob("*.yaml")})


def find_config(name: str) -> Path:
    """The file that a ``--config`` means.

    Args:
        name: a path, or a bare file name, with or without ``.yaml``.

    Raises:
        ConfigError: there is none; says where was looked and what there is.

    Example:
        >>> find_config("quickstart").name
        'quickstart.yaml'
    """
    asked = Path(name).expanduser()
    folders = config_folders() if asked.parent == Path() else [Path()]
    for folder in folders:
        for candidate in (folder / asked, folder / f"{asked}.yaml"):
            if candidate.is_file():
                return candidate.resolve()
    looked = ", ".join(str(folder.resolve()) for folder in folders)
    known = known_configs()
    raise ConfigError(
        f"--config {name}: expected a YAML file, found none in {looked}; known by name are {', '.join(known)}."
        + did_you_mean(asked.name if asked.suffix else f"{asked.name}.yaml", known)
    )
