"""``fedlit fit``, ``validate``, ``test``, ``predict`` and ``describe`` of a configuration with several parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.mixture.folders import CONFIG, newest
from fedlit.mixture.settings import WEIGHTS, MixtureSettings, settings_of, typed_pairs
from fedlit.run.arguments import check_format
from fedlit.run.config import find_config
from fedlit.show.shown import for_terminal, say

__all__ = ["execute_mixture"]

_HELP = f"""A configuration of several parts (mixture:). Keys:
  --seed, --name, --folds, --workers, --trainer.default_root_dir
  --mixture.weights {" | ".join(WEIGHTS)}, or --mixture.weights.PART NUMBER
  --mixture.shrink ROWS, --mixture.admit, --mixture.by SCORE
  --parts.PART.KEY VALUE: any key of the part's configuration; --parts.PART.grid.SETTING [VALUES] of a local baseline
  --ckpt_path last: continue the newest run, or mix it anew
  --format: of describe table or json, of predict csv or parquet"""


def execute_mixture(command: str, typed: Sequence[str], brief: bool) -> None:
    """Run one command and print what it has to say; of scores the main ones if it is ``brief``."""
    if any(arg.partition("=")[0] in ("-h", "--help", "--print_config") for arg in typed):
        print(_HELP)
        return
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

    mixture = Mixture(settings)
    if command == "describe":
        plan = mixture.describe()
        print(json.dumps(plan.to_dict(), indent=2, default=str) if style == "json" else for_terminal(plan))
    elif command == "fit":
        mixture.fit(checkpoint)
        name = f" --name {settings.name}" if settings.name != Path(configs[0]).stem else ""
        root = changed.get("trainer.default_root_dir")
        print(f"\nNext: fedlit test --config {configs[0]}{name}{f' --trainer.default_root_dir {root}' if root else ''}")
    elif command == "predict":
        print(for_terminal(mixture.predict(checkpoint, format=style or "csv")))
    else:
        (mixture.test if command == "test" else mixture.validate)(checkpoint, brief=brief)


def _settings(command: str, config: Path, changed: dict[str, str], checkpoint: str | None) -> MixtureSettings:
    """Return the settings of the file, or those of a trained run, changed by what is typed."""
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
