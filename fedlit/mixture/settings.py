"""The settings of a mixture of several parts, as they are used. How they are written stands in
:mod:`fedlit.mixture.written`. It imports nothing heavy, because it is read before torch is
imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedlit import yaml_text
from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.mixture.folders import KEPT
from fedlit.run.arguments import ROOT

SCORE = ("threshold", "subgroups")
WEIGHTS = ("equal", "half_own", "fitted", "together")


@dataclass(frozen=True)
class PartSettings:
    """One part of a mixture: a configuration, trained as an ordinary run, or a model that each
    client fits alone.

    Attributes:
        config: the configuration's file; of a local baseline that whose tables it reads.
        set: keys of it to change → their values.
        go_alone: the name of a task's local baseline; None for a configuration.
        grid: settings of that model to choose from, by its out-of-fold predictions; its own if
            None.
    """

    config: Path
    set: dict[str, Any] = field(default_factory=dict)
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None


@dataclass(frozen=True)
class Mixing:
    """How parts are mixed, see :func:`fedlit.mixture.combine.combine`.

    Attributes:
        weights: ``equal``, ``half_own``, ``fitted`` (see :func:`fedlit.mixture.weigh.weights_of`),
            ``together`` (see :func:`fedlit.mixture.together.choose_together`), or a mapping of each
            part to its weight.
        shrink: the number of rows that each part's equal weight counts for if weights are fitted.
        admit: whether federated parts enter only if they do not make the local ones worse on
            held-out rows.
        by: the score that decides, or a mapping of each client to its score; the main score of a
            client's task if None.

    Raises:
        ConfigError: a value is of another kind; the message begins with the key.
    """

    weights: str | dict[str, float] = "equal"
    shrink: float = 100.0
    admit: bool = True
    by: str | Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        expect(type(self.admit) is bool, "admit", "true or false", self.admit)
        rows = type(self.shrink) in (int, float) and self.shrink >= 0
        expect(rows, "shrink", "a number of rows of at least 0", self.shrink)
        if isinstance(self.weights, dict):
            values = list(self.weights.values())
            numbers = all(type(value) in (int, float) and 0 <= value < math.inf for value in values)
            holds = numbers and sum(values) > 0
            expect(holds, "weights", "numbers of at least 0, not all of them 0", self.weights)
        elif self.weights not in WEIGHTS:
            raise ConfigError(
                f"weights: expected {', '.join(WEIGHTS)}, or {{PART: weight}}, found "
                f"{self.weights!r}.{did_you_mean(str(self.weights), WEIGHTS)}"
            )


@dataclass(frozen=True)
class MixtureSettings:
    """A mixture of several parts.

    Attributes:
        parts: the parts, by name.
        name: the folder of its runs.
        root: the folder of all runs.
        seed: the seed of all parts.
        folds: the number of folds into which each client's training and validation rows are dealt;
            0 to train on the training rows only.
        workers: the number of processes that train parts simultaneously.
        mixing: how parts are mixed.
        origin: the configuration's file.
        score: what is scored beside the usual scores, see
            :class:`fedlit.run.scoring.ScoreSettings`.
    """

    parts: dict[str, PartSettings]
    name: str
    root: Path = Path(ROOT)
    seed: int = 0
    folds: int = 0
    workers: int = 1
    mixing: Mixing = Mixing()
    origin: Path | None = None
    score: Mapping[str, Any] = field(default_factory=dict)

    def trained(self) -> dict[str, Any]:
        """Return the settings with which parts are trained, without their configurations. They must
        not change when a run is continued.
        """
        parts = {name: [part.go_alone, part.grid] for name, part in self.parts.items()}
        return {"seed": self.seed, "folds": self.folds} | {
            f"parts.{name}": part_settings for name, part_settings in parts.items()
        }

    def text(self, *, of_run: bool = False) -> str:
        """Return the settings as YAML, which :func:`settings_of` can read.

        Args:
            of_run: whether the text is written to the folder of a run, which also contains each
                part's configuration. The text then refers to these, so that it does not depend on
                the original files or on the place of the folder.
        """
        parts = {}
        for name, part in self.parts.items():
            entry = asdict(part) | {"config": str(part.config)}
            if of_run:
                entry |= {"config": KEPT.format(name), "set": {}}
            parts[name] = {key: value for key, value in entry.items() if value not in (None, {})}
        content = {
            "seed": self.seed, "name": self.name, "folds": self.folds, "workers": self.workers,
            "mixture": {"parts": parts, **asdict(self.mixing)}, **({"score": dict(self.score)} if self.score else {}),
            "trainer": {"default_root_dir": str(self.root)},
        }  # fmt: skip
        head = f"# made from {self.origin}\n" if self.origin is not None else ""
        return head + yaml_text.dump(content)
