"""Reads a configuration of several parts: the words typed after a command, and the mixture that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError
from fedlit.mixture.folders import CONFIG, newest
from fedlit.mixture.settings import WEIGHTS, MixtureSettings, settings_of, typed_pairs
from fedlit.run.arguments import check_format
from fedlit.run.config import find_config
from fedlit.show.shown import say

if TYPE_CHECKING:
    from fedlit.mixture.mixture import Mixture

MIXTURE_HELP = f"""A configuration of several parts (mixture:). Keys:
  --seed, --name, --folds, --workers, --trainer.default_root_dir
  --mixture.weights {" | ".join(WEIGHTS)}, or --mixture.weights.PART NUMBER
  --mixture.shrink ROWS, --mixture.admit, --mixture.by SCORE
  --parts.PART.KEY VALUE: any key of the part's configuration; --parts.PART.grid.SETTING [VALUES] of a local baseline
  --ckpt_path last: continue the newest run, or mix it anew
  --format: of describe table or json, of predict csv or parquet"""


def read_mixture(command: str, typed: Sequence[str]) -> tuple[Mixture, str | None, str | None]:
    """Return the mixture, its ``--ckpt_path`` and its ``--format``."""
    configs, changed = typed_pairs(typed)
    if len(configs) != 1:
        raise ConfigError(
            f"expected one --config, for a mixture cannot be put together of several, found {len(configs)}"
        )
    checkpoint, style = changed.pop("ckpt_path", None), changed.pop("format", None)
    if style is not None:
        check_format(command, style)
    settings = _settings(command, find_config(configs[0]), changed, checkpoint)
    say(f"Reading {len(settings.parts)} parts of {settings.name}")
    from fedlit.mixture.mixture import Mixture

    return Mixture(settings), checkpoint, style


def _settings(command: str, config: Path, changed: dict[str, str], checkpoint: str | None) -> MixtureSettings:
    """Return the settings of the file, or those of a trained run, with the typed changes."""
    settings = settings_of(config, changed)
    if command == "describe" or (command == "fit" and checkpoint is None):
        return settings
    found = newest(settings.root.absolute() / settings.name)
    if found is None or not (found / CONFIG).is_file():
        return settings
    own = settings_of(found / CONFIG)
    if own.origin != settings.origin:
        raise ConfigError(
            f"expected the newest run of {settings.name} to be one of {settings.origin}, found that {found} was made "
            f"from {own.origin}; give --name"
        )
    say(f"Using the run's own configuration {found / CONFIG}")
    return settings_of(found / CONFIG, changed)
