"""What is asked of ``fedlit recommend``. Light: read before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.run.config import find_config, read_yaml, shown

__all__ = ["Asked"]


@dataclass(frozen=True)
class Asked:
    """What is asked.

    Attributes:
        config: the reader's configuration.
        out: the folder for everything.
        budget: seconds.
        folds: into how many rows are dealt, if the budget allows.
        seed: of everything; that of the configuration if None.
        by: the score that decides; the main one of a client's task if None.
        workers: processes at once.
        matters: the smallest lift that matters, in percentage points (see :meth:`fedlit.tasks.Score.least_lift`).
        force: whether what an earlier one found may be deleted.
    """

    config: Path
    out: Path
    budget: float = 600.0
    folds: int = 4
    seed: int | None = None
    by: str | None = None
    workers: int = 1
    matters: float = 0.5
    force: bool = False

    @classmethod
    def of(cls, config: str, out: str | None = None, **options: Any) -> Asked:
        """With the configuration's file found, and the folder that is meant if none is named.

        Raises:
            ConfigError: values that cannot be meant, or a configuration without tables.
        """
        path = find_config(config)
        raw = read_yaml(path)
        if "mixture" in raw or not (raw.get("data") or {}).get("source"):
            found = "a mixture" if "mixture" in raw else "none"
            raise ConfigError(
                f"--config {shown(path)}: expected a configuration of one run with data.source, found {found}; fedlit "
                "init writes one for the tables of a folder"
            )
        asked = cls(path, Path(out) if out else Path("recommended") / path.stem, **options)
        for name, value, low in (("budget", asked.budget, 1), ("folds", asked.folds, 2), ("workers", asked.workers, 1)):
            if not value >= low:
                raise ConfigError(f"--{name}: expected at least {low}, found {value:g}")
        return asked if asked.seed is not None else replace(asked, seed=int(raw.get("seed") or 0))

    @property
    def settings(self) -> dict[str, Any]:
        """What a recommendation that is continued must have in common."""
        own = {key: getattr(self, key) for key in ("budget", "folds", "seed", "by")}
        return {**own, "config": self.config.read_text(encoding="utf-8")}
