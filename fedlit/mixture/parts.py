"""A part of a mixture: trains it for each fold in a separate folder, loads its models, and predicts
rows with them.

<run>/parts/<part>/config.yaml                        what the part is trained with: settings of its
configuration
                  /fold_<i>/version_0/                 an ordinary run of fedlit
                  /fold_<i>/DONE                       its record, written last
                  /fold_<i>/<client>/                  of a local baseline: the client's, as arrays
                  /fitted/<client>.json                of a local baseline: that the client has its
                  models
                  /DONE                                of a local baseline: the record of all folds
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable
from fedlit.errors import FedlitError
from fedlit.files import write_text
from fedlit.jobs.job import FitAlone, Job, Train, is_free
from fedlit.jobs.record import FORMAT, Output, changed_keys, read_record
from fedlit.jobs.training import train
from fedlit.mixture.settings import MixtureSettings, PartSettings
from fedlit.run.allowed import is_of_run
from fedlit.run.folders import to_score
from fedlit.run.load import load as load_run
from fedlit.run.run import Run
from fedlit.score.folder import load
from fedlit.score.folder_checks import MAIN
from fedlit.score.scorer import Scorer
from fedlit.train.whole import CHECKPOINTS, LAST

CONFIG = "config.yaml"
MORE_TIME = "a larger budget gives it more time"
# a local baseline reads its client's table, whatever the configuration's federation does with it
_ALONE = {
    "data.align": "none", "data.scaling": "client", "data.categories": "codes", "data.missing": "mean",
    "data.common": None, "data.pool": False,
}  # fmt: skip
_SET = ("seed", "data.fold")
"""Keys that a mixture sets itself: its own settings say whether they changed."""


@dataclass(frozen=True)
class HeldOut:
    """How good a training is on its held-out rows.

    Attributes:
        score: the name of the score that decides.
        value: its mean over clients.
    """

    score: str
    value: float


class ReadOnce(Source):
    """A source that reads the tables of another source only once, for all parts and folds."""

    name: ClassVar[str] = "read once"
    about: ClassVar[str] = "another source, read once"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._read = lru_cache(maxsize=1)(source.tables)

    def tables(self, seed: int) -> list[ClientTable]:
        """Return the other source's tables."""
        return self._read(seed)


@dataclass(frozen=True)
class Part:
    """A part of a mixture in a run's folder.

    Attributes:
        name: the name of the part.
        settings: the settings of the part in the mixture.
        folder: ``<run>/parts/<name>``.
        seed: the seed of the mixture.
        folds: the number of folds of the mixture.
        by: the score by which local baselines choose their settings; None for the main one of a
            client's task.
        shared: the data that all parts share: sources, whose tables are read only once, and encoded
            tables of local baselines.
    """

    name: str
    settings: PartSettings
    folder: Path
    seed: int
    folds: int
    by: str | None = None
    shared: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, settings: MixtureSettings, folder: Path) -> dict[str, Part]:
        """Return all parts of a run's folder."""
        shared = dict[str, Any]()
        by = None if settings.mixing.by is None else str(settings.mixing.by)
        parts = dict[str, Part]()
        for name, part in settings.parts.items():
            below = folder / "parts" / name
            parts[name] = cls(name, part, below, settings.seed, settings.folds, by, shared)
        return parts

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without shared data, so that a recommendation can be pickled, and reads
        tables again.
        """
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)} | {
            "shared": {}
        }

    @property
    def each_fold(self) -> range:
        """The numbers of the folds; a single 0 if there are no folds."""
        return range(max(self.folds, 1))

    def fold(self, number: int) -> Path:
        """Return the folder of a fold."""
        return self.folder / f"fold_{number}"

    @property
    def alone(self) -> bool:
        """Whether the part is a local baseline."""
        return self.settings.go_alone is not None

    def jobs(self) -> list[Job]:
        """Return the trainings of the part: one for each fold; of a local baseline one for all
        folds, because its settings are the same in all of them.
        """
        keys = {
            key: value
            for key, value in (self._base.settings or {}).items()
            if not is_free(key) and key not in _SET
        }
        made_of = {"format": FORMAT, "part": self.name, "seed": self.seed, "folds": self.folds}
        config, overrides = self._configuration
        config_file = str(config)
        if self.alone:
            made_of |= {
                "go_alone": self.settings.go_alone,
                "grid": self.settings.grid,
                "by": self.by,
            }
            fit = FitAlone(config_file, overrides, {}, folds=self.folds, clients=self.clients_alone)
            return [Job(self.name, self.seed, str(self.folder), made_of | keys, fit)]
        work = Train(config_file, overrides)
        jobs = list[Job]()
        for fold in self.each_fold:
            of_fold = made_of | {"fold": fold} | keys
            folder = str(self.fold(fold))
            jobs.append(Job(self.name, self.seed, folder, of_fold, work, fold=fold))
        return jobs

    @property
    def clients_alone(self) -> list[str]:
        """The clients whose task has the local baseline."""
        data = self.load(0).data
        data.setup()
        name = str(self.settings.go_alone)
        return [spec.name for spec in data.specs if name in spec.task.go_alone]

    @property
    def _records(self) -> list[dict[str, Any] | None]:
        """The records of the part's trainings, None for each that is missing or damaged."""
        folders = [self.folder] if self.alone else [self.fold(fold) for fold in self.each_fold]
        return [read_record(folder) for folder in folders]

    def done(self) -> bool:
        """Return whether all folds were trained to their end."""
        return None not in self._records

    def load(self, fold: int) -> Run:
        """Return the part's untrained run for a fold. Its settings are those in the folder if the
        mixture was begun there.

        Raises:
            ConfigError: the part's configuration is not valid; the message names the part.
        """
        run = self._base.with_fold(fold, f"fold_{fold}")
        if self.alone:
            run.data = self.shared.setdefault(
                f"fold {fold}: {_said(self._base, 'data.')}", run.data
            )
        return run

    @property
    def _configuration(self) -> tuple[Path, dict[str, Any]]:
        """The file of the part's configuration, and the changed keys. It is the one in the folder if
        the mixture was begun there.
        """
        saved = self.folder / CONFIG
        settings = self.settings
        config = settings.config
        changed = settings.set
        if saved.is_file():
            config = saved
            changed = {}
        alone = _ALONE if self.alone else {}
        return config, {
            **alone,
            **changed,
            "board.pictures": 0,
            "seed": self.seed,
            "data.folds": self.folds,
            "data.fold": 0,
            "trainer.default_root_dir": str(self.folder),
        }

    @cached_property
    def _base(self) -> Run:
        """The run from which those of all folds are made, because reading a configuration takes a
        second, and reading tables takes time, too.
        """
        config, overrides = self._configuration
        of_run = config == self.folder / CONFIG
        origin = self.settings.config
        trusted = (origin,) if origin.is_file() and not is_of_run(origin) else ()
        try:
            run = load_run(config, overrides=overrides, of_run=of_run, trusted=trusted)
        except FedlitError as error:
            raise type(error)(f"part {self.name!r}: {error}") from error
        run.data.source = self.shared.setdefault(
            _said(run, "data.source"), ReadOnce(run.data.source)
        )
        return run

    def keep(self, run: Run) -> None:
        """Write what the part is trained with, once. A continued run is then trained with the same
        settings, whatever happened to the configuration's file.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / CONFIG).is_file():
            write_text(run.config_text or "", self.folder / CONFIG)

    @property
    def changed(self) -> bool:
        """Whether its configuration now differs from the one in the folder, wherever its file is
        now.
        """
        if not (self.folder / CONFIG).is_file():
            return False
        now = replace(self, folder=self.folder / "none")._base.settings or {}
        return bool(changed_keys(self.folder, now, besides=_SET))

    def train(self, fold: int, seconds: float | None = None) -> Output:
        """Train a fold to its end. An interrupted training is continued.

        Args:
            fold: the number of the fold.
            seconds: the time after which no further epoch begins; None for no limit.
        """
        run = self.load(fold)
        try:
            trained = train(run, seconds)
        except FedlitError as error:
            raise type(error)(f"part {self.name!r}, fold {fold}: {error}") from error
        assert run.folder is not None
        files = [run.folder / CONFIG, run.folder / CHECKPOINTS / LAST]
        score = self.by or trained.results.main.name
        value = trained.results.summary["mean"].get(score, math.nan)
        held_out = HeldOut(score, value)
        return Output(
            files, {"whole": trained.whole, "held_out": asdict(held_out)}, trained.resumed
        )

    @property
    def lacks(self) -> str:
        """What its training lacks because time was up; empty if nothing."""
        records = [record for record in self._records if record is not None]
        cut = sum(not record.get("whole", True) for record in records)
        if cut and self.alone:
            return f"time was up before all its settings were tried; {MORE_TIME}"
        if cut:
            folds = f"{cut} of {len(self.each_fold)} folds"
            return f"time was up before the last epoch in {folds}; {MORE_TIME}"
        return ""

    def scorers(self, fold: int, clients: Iterable[str] | None = None) -> dict[str, Scorer]:
        """Return the scorers of a fold's models by client; of all clients if None."""
        if self.alone:
            folders = sorted(path.parent for path in self.fold(fold).glob(f"*/{MAIN}"))
            return {
                path.name: load(path) for path in folders if clients is None or path.name in clients
            }
        return self.load(fold).scorers(
            clients, to_score(self.folder, f"fold_{fold}", "last", None, "mixture")[0]
        )


def _said(run: Run, about: str) -> str:
    return repr(
        sorted((key, value) for key, value in (run.settings or {}).items() if key.startswith(about))
    )
