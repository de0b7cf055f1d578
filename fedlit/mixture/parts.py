"""A part of a mixture: trains it for each fold in a separate folder, loads its models, and predicts
rows with them.

<run>/parts/<part>/config.yaml                        what the part is trained with: settings of its
configuration
                  /fold_<i>/version_0/                 an ordinary run of fedlit
                  /fold_<i>/<client>/                  of a local baseline: the client's, as arrays
                  /fold_<i>/DONE                       written last
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from fedlit import yaml_text
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable, Split
from fedlit.errors import ConfigError, FedlitError
from fedlit.files import write_text
from fedlit.mixture.settings import MixtureSettings, PartSettings
from fedlit.run.allowed import is_of_run
from fedlit.run.config import flatten, listed
from fedlit.run.folders import newest_run, to_score
from fedlit.run.load import load as load_run
from fedlit.run.run import Run
from fedlit.score.folder import MAIN, load
from fedlit.score.plain import read_json, write_json
from fedlit.score.scorer import Scorer, aligned, united
from fedlit.tasks import Task, task_from
from fedlit.tasks.predictions import Predictions

CONFIG = "config.yaml"
DONE = "DONE"
MORE_TIME = "a larger budget gives it more time"
# a local baseline reads its client's table, whatever the configuration's federation does with it
_ALONE = {
    "data.align": "none", "data.scaling": "client", "data.categories": "codes", "data.missing": "mean",
    "data.common": None, "data.pool": False,
}  # fmt: skip
_FREE = ("name", "seed", "board.", "checkpoint.", "data.fold", "trainer.default_root_dir")
"""Keys that a mixture sets itself, or that change nothing that is computed."""


class _Until(Callback):
    """Ends training with the first epoch that ends after a number of seconds, and after the first
    exchange.
    """

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds
        self.whole = True

    def on_train_epoch_end(self, trainer: Any, loop: Any) -> None:
        """Stop training if time is up."""
        exchange = loop.federation.exchange
        exchanged = exchange.rounds > 0 or not exchange.on  # before that there is no federation
        if (
            exchanged
            and time.monotonic() > self.end
            and trainer.current_epoch + 1 < (trainer.max_epochs or 0)
        ):
            trainer.should_stop = True
            self.whole = False


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
        shared: the data that all parts share: sources, whose tables are read only once, and encoded
            tables of local baselines.
    """

    name: str
    settings: PartSettings
    folder: Path
    seed: int
    folds: int
    shared: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, settings: MixtureSettings, folder: Path) -> dict[str, Part]:
        """Return all parts of a run's folder."""
        shared = dict[str, Any]()
        return {
            name: cls(
                name, part_settings, folder / "parts" / name, settings.seed, settings.folds, shared
            )
            for name, part_settings in settings.parts.items()
        }

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

    def done(self, *folds: int) -> bool:
        """Return whether the given folds were trained to their end; all folds if none is given."""
        return all((self.fold(fold) / DONE).is_file() for fold in folds or self.each_fold)

    def load(self, fold: int) -> Run:
        """Return the part's untrained run for a fold. Its settings are those in the folder if the
        mixture was begun there.

        Raises:
            ConfigError: the part's configuration is not valid; the message names the part.
        """
        run = self._base.with_fold(fold, f"fold_{fold}")
        if self.settings.go_alone is not None:
            run.data = self.shared.setdefault(
                f"fold {fold}: {_said(self._base, 'data.')}", run.data
            )
        return run

    @cached_property
    def _base(self) -> Run:
        """The run from which those of all folds are made, because reading a configuration takes a
        second, and reading tables takes time, too.
        """
        saved = self.folder / CONFIG
        settings = self.settings
        config, changed = (saved, {}) if saved.is_file() else (settings.config, settings.set)
        alone = _ALONE if settings.go_alone is not None else {}
        overrides = {
            **alone,
            **changed,
            "board.pictures": 0,
            "seed": self.seed,
            "data.folds": self.folds,
            "data.fold": 0,
            "trainer.default_root_dir": self.folder,
        }
        trusted = tuple(
            file for file in (settings.config,) if file.is_file() and not is_of_run(file)
        )
        try:
            run = load_run(config, overrides=overrides, of_run=config == saved, trusted=trusted)
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
        saved = self.folder / CONFIG
        if not saved.is_file():
            return False
        before = dict(flatten(yaml_text.load(saved.read_text(encoding="utf-8"))))
        now = replace(self, folder=self.folder / "none")._base.settings or {}
        return any(
            before.get(key) != now.get(key) for key in (*before, *now) if not key.startswith(_FREE)
        )

    def train(self, fold: int, seconds: float | None = None) -> None:
        """Train a fold to its end. An interrupted training is continued.

        Args:
            fold: the number of the fold.
            seconds: the time after which no further epoch begins; None for no limit.
        """
        try:
            begun = newest_run(self.folder, f"fold_{fold}")
        except ConfigError:  # it ended before its first checkpoint
            begun = None
        if begun is None:
            shutil.rmtree(self.fold(fold), ignore_errors=True)
        run = self.load(fold)
        clock = _Until(seconds or 0)
        if seconds is not None:
            run.trainer_options["callbacks"] = [
                *listed(run.trainer_options.get("callbacks")),
                clock,
            ]
        try:
            run.fit("last" if begun is not None else None, quiet=True)
        except FedlitError as error:
            raise type(error)(f"part {self.name!r}, fold {fold}: {error}") from error
        self.finish(fold, whole=clock.whole)

    def finish(self, fold: int, *, whole: bool) -> None:
        """Write the mark of a fold's end, and whether there was time for all epochs, or for all
        settings of a local baseline.
        """
        write_json(self.fold(fold) / DONE, {"part": self.name, "fold": fold, "whole": whole})

    @property
    def lacks(self) -> str:
        """What its training lacks because time was up; empty if nothing."""
        cut = sum(
            not read_json(self.fold(fold) / DONE).get("whole", True) for fold in self.each_fold
        )
        if cut and self.settings.go_alone is not None:
            return f"time was up before all its settings were tried; {MORE_TIME}"
        if cut:
            folds = f"{cut} of {len(self.each_fold)} folds"
            return f"time was up before the last epoch in {folds}; {MORE_TIME}"
        return ""

    def scorers(self, fold: int, clients: Iterable[str] | None = None) -> dict[str, Scorer]:
        """Return the scorers of a fold's models by client; of all clients if None."""
        if self.settings.go_alone is not None:
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


def predicted(parts: Mapping[str, Part], split: Split) -> dict[str, Predictions]:
    """Map each client to its parts' predictions for its rows.

    Args:
        parts: the trained parts.
        split: ``test``, for which each part predicts the mean of its folds' models; or
            ``validation``, in which each row is predicted by the model of the fold that it was held
            out of.
    """
    by_part: dict[str, dict[str, list[_OfFold]]] = {}
    targets: dict[str, dict[int, Any]] = {}
    for name, part in parts.items():
        for fold in part.each_fold:
            tables = {table.name: table for table in part.load(fold).data.tables()}
            for client, scorer in part.scorers(fold).items():
                rows = tables[client].splits[split]
                predictions = scorer.of_inputs(
                    scorer.encoder.transform(tables[client].features.iloc[rows])
                )
                weight = _weights(tables[client], rows)
                of_fold = _OfFold(
                    scorer,
                    fold,
                    tables[client].features.index.to_numpy()[rows],
                    predictions,
                    weight,
                )
                by_part.setdefault(client, {}).setdefault(name, []).append(of_fold)
                targets.setdefault(client, {})[fold] = tables[client].target.iloc[rows]
    return {
        client: _together(by_part[client], targets[client], split) for client in sorted(by_part)
    }


@dataclass(frozen=True)
class _OfFold:
    """The predictions of a fold's model for rows."""

    scorer: Scorer
    fold: int
    row: np.ndarray
    predictions: np.ndarray
    weight: Tensor | None


def _weights(table: ClientTable, rows: np.ndarray) -> Tensor | None:
    return None if table.weights is None else torch.from_numpy(table.weights[rows])


def _together(
    parts: Mapping[str, list[_OfFold]], targets: Mapping[int, Any], split: Split
) -> Predictions:
    """Combine the parts' predictions for a client's rows, in ascending order of row numbers."""
    every = itertools.chain.from_iterable(parts.values())
    task = task_from(united([of_fold.scorer.own_state for of_fold in every]))
    first = next(iter(parts.values()))
    arrays = {name: _in_order(folds, task) for name, folds in parts.items()}
    if split == "test":
        y = task.encode(targets[first[0].fold])
        means = {name: np.asarray(sum(folds)) / len(folds) for name, folds in arrays.items()}
        return Predictions(task, first[0].row, y, means, weight=first[0].weight)
    row = np.concatenate([of_fold.row for of_fold in first])
    fold = np.concatenate([np.full(of_fold.row.shape, of_fold.fold) for of_fold in first])
    order = np.argsort(row, kind="stable")
    y = task.encode(pd.concat([targets[of_fold.fold] for of_fold in first]))
    weights = [of_fold.weight for of_fold in first if of_fold.weight is not None]
    weight = torch.cat(weights) if weights else None
    joined = {name: np.concatenate(folds) for name, folds in arrays.items()}
    return Predictions(task, row, y, joined, fold, weight).some(order)


def _in_order(folds: Sequence[_OfFold], task: Task) -> list[np.ndarray]:
    """Return the predictions of each fold's model in the order of the task's classes."""
    classes = task.classes
    return [aligned(fold.predictions, fold.scorer.outcome.classes, classes) for fold in folds]
