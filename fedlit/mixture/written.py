"""A mixture's configuration as it is written: its groups, what is checked, and how the settings are
read from it. It imports nothing heavy, because it is read before torch is imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.mixture.folders import KEPT
from fedlit.mixture.settings import WEIGHTS, Mixing, MixtureSettings, PartSettings
from fedlit.mixture.typed import with_typed
from fedlit.run.allowed import check_no_links, is_of_run
from fedlit.run.arguments import ROOT, origins
from fedlit.run.config import find_config, read_yaml, shown
from fedlit.run.folders import check_name
from fedlit.run.keys import check_key
from fedlit.run.read import Content, below, located, read

GO_ALONE = ("extra_trees", "logistic_regression", "ridge", "poisson_regression", "mean")
"""Models that can be kept as arrays, to predict new rows with; others enter a study as
baselines."""
_NUMBERS: Mapping[str, tuple[str, Callable[[int], bool]]] = {
    "seed": (f"a whole number from 0 to {2**32 - 1}", lambda seed: 0 <= seed < 2**32),
    "folds": ("0 for none, or 2 folds or more", lambda folds: folds == 0 or 2 <= folds <= 1000),
    "workers": ("a whole number from 1 to 1000", lambda workers: 1 <= workers <= 1000),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NO_PART = frozenset({*WEIGHTS, "alone", "stack"})
"""Names that mean something else where parts are named."""
_REFUSED = (
    "seed",
    "name",
    "ckpt_path",
    "format",
    "data.folds",
    "data.fold",
    "trainer.default_root_dir",
)
"""Keys that the mixture decides for all its parts."""


def is_mixture(config: Path) -> bool:
    """Return whether a configuration has several parts."""
    return "mixture" in read_yaml(config)


def has_mixture(typed: Sequence[str]) -> bool:
    """Return whether a configuration typed after a command has several parts. Errors in it are
    reported later.
    """
    arguments = list[str]()
    for argument in typed:
        arguments += argument.split("=", 1)
    for flag, name in pairwise(arguments):
        with suppress(ConfigError):
            if flag == "--config" and is_mixture(find_config(name)):
                return True
    return False


def settings_of(path: Path, typed: Mapping[str, str] | None = None) -> MixtureSettings:
    """Read the settings in a configuration's file, with the typed changes.

    Raises:
        ConfigError: a key or value is unknown, which is reported with a similar known one; or a
            part's configuration does not exist.
    """
    content = read_yaml(path)
    if is_of_run(path):
        _check_kept(content, shown(path))
        check_no_links(path.parent)
    return settings_from(content, typed, prefix=shown(path), origin=path)


def _check_kept(content: Mapping[str, Any], prefix: str) -> None:
    """Check the configuration in a run's folder, which may have been copied from elsewhere. It may
    only refer to its parts' configurations in the same folder, which are checked separately, and
    names no classes.
    """
    mixture = content.get("mixture")
    parts = mixture.get("parts") if isinstance(mixture, Mapping) else None
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        if (
            not isinstance(part, Mapping)
            or part.get("config") != KEPT.format(name)
            or part.get("set")
        ):
            raise ConfigError(
                f"{prefix}: mixture.parts.{name}: expected config: {KEPT.format(name)} and nothing "
                "set, as in any run's own file, found others; start from the configuration that "
                "the run was made from"
            )


@dataclass(frozen=True)
class PartFile:
    """A part as it is written: see :class:`PartSettings`."""

    config: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None

    def __post_init__(self) -> None:
        if not self.config and self.go_alone is None:
            raise ConfigError(
                "expected config: FILE, or go_alone: MODEL such as extra_trees, found neither"
            )
        if self.go_alone not in (None, *GO_ALONE):
            raise ConfigError(
                f"go_alone: expected one of {', '.join(GO_ALONE)}, which are kept as arrays to "
                f"predict new rows with, found {self.go_alone!r}; others enter a study as "
                f"baselines.{did_you_mean(self.go_alone, GO_ALONE)}"
            )
        if self.grid is not None and self.go_alone is None:
            raise ConfigError("grid: expected go_alone: MODEL beside it, found none; use set")
        for setting, choices in (self.grid or {}).items():
            expect(len(choices) > 0, f"grid.{setting}", "a list of values", choices)
        for key in self.set:
            if key in _REFUSED:
                raise ConfigError(
                    f"set.{key}: the mixture decides it for all its parts; leave it out here"
                )
            check_key(key, "set.")

    def resolved(self, default: str, folder: Path | None) -> PartSettings:
        """Return the part with the file of its configuration.

        Args:
            default: the configuration whose tables a local baseline reads if it names none.
            folder: a further folder in which configurations are searched.

        Raises:
            ConfigError: there is no configuration, or it is itself a mixture.
        """
        config = self.config or default
        if not config:
            raise ConfigError(
                "expected config: FILE, whose tables the model is fitted to, found none in any part"
            )
        file = find_config(config, also=folder, what="config:")
        if is_mixture(file):
            raise ConfigError(
                f"config: expected a configuration of one run, found the mixture {file.name}"
            )
        return PartSettings(file, self.set, self.go_alone, self.grid)


@dataclass(frozen=True)
class MixtureGroup(Mixing):
    """The group ``mixture``: the parts, and how they are mixed."""

    weights: Literal["equal", "half_own", "fitted", "together"] | dict[str, float] = "equal"
    by: str | None = None
    parts: dict[str, PartFile] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parts:
            raise ConfigError("parts: expected {NAME: {config: FILE}}, found {}")
        for name in self.parts:
            valid = _NAME.fullmatch(name) is not None and name not in _NO_PART
            expect(valid, f"parts.{name}", "a name of letters, digits, _ and -", name)
        if isinstance(self.weights, dict) and (unknown := set(self.weights) - set(self.parts)):
            raise ConfigError(
                f"weights: expected weights of {', '.join(self.parts)}, found {', '.join(unknown)}"
            )

    @property
    def mixing(self) -> Mixing:
        """How the parts are mixed."""
        return Mixing(self.weights, self.shrink, self.admit, self.by)


@dataclass(frozen=True)
class ScoreGroup:
    """The group ``score``: see :class:`fedlit.run.scoring.ScoreSettings`, which checks its
    values.
    """

    threshold: object = None
    subgroups: object = None


@dataclass(frozen=True)
class TrainerGroup:
    """The group ``trainer``. All other keys of the Trainer belong to a part's configuration."""

    default_root_dir: Path = Path(ROOT)


@dataclass(frozen=True)
class MixtureFile:
    """A configuration of several parts as it is written: see :class:`MixtureSettings`."""

    mixture: MixtureGroup
    seed: int = 0
    name: str = ""
    folds: int = 0
    workers: int = 1
    score: ScoreGroup = field(default_factory=ScoreGroup)
    trainer: TrainerGroup = field(default_factory=TrainerGroup)

    def __post_init__(self) -> None:
        for key, (expected, allowed) in _NUMBERS.items():
            value = getattr(self, key)
            expect(allowed(value), key, expected, value)

    def resolved(self, origin: Path | None) -> MixtureSettings:
        """Return the settings, with the files of their configurations.

        Args:
            origin: the file; None for settings in Python.
        """
        name = str(self.name)
        if not name:
            name = "mixture" if origin is None else origin.stem
        check_name(name, "name")
        folder = None
        first_origin = None
        if origin is not None:
            folder = origin.parent
            first_origin = origins(origin)[0]
        configs = [part.config for part in self.mixture.parts.values() if part.config]
        default = configs[0] if configs else ""
        parts = dict[str, PartSettings]()
        for part, written in self.mixture.parts.items():
            with below(f"mixture.parts.{part}"):
                parts[part] = written.resolved(default, folder)
        return MixtureSettings(
            parts,
            name,
            self.trainer.default_root_dir,
            self.seed,
            self.folds,
            self.workers,
            mixing=self.mixture.mixing,
            origin=first_origin,
            score={key: value for key, value in asdict(self.score).items() if value is not None},
        )


def settings_from(
    content: Content,
    typed: Mapping[str, str] | None = None,
    prefix: str = "",
    origin: Path | None = None,
) -> MixtureSettings:
    """Build the settings from keys and values.

    Args:
        content: the content of the file.
        typed: maps each key to its value, as typed on the command line.
        prefix: the beginning of messages about what is written.
        origin: the file of the configuration.
    """
    content = with_typed(content, typed or {}, MixtureFile, PartFile)
    with located(prefix):
        _check_trainer(content.get("trainer"))
        return read(MixtureFile, content).resolved(origin)


def _check_trainer(trainer: object) -> None:
    """Refuse keys of a part's Trainer, and say where they belong."""
    keys = trainer if isinstance(trainer, Mapping) else ()
    for key in keys:
        expected = "only default_root_dir here"
        advice = "set it in the configuration of a part, or in the set of a part"
        expect(key == "default_root_dir", "trainer", expected, key, advice)
