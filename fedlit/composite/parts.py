"""One part of a mixture with one fold: trained in a folder of its own, its held-out rows predicted, its models found.

<run>/parts/<part>/config.yaml                        what the part is trained with: settings of its configuration
                  /fold_<i>/version_0/                 an ordinary run of fedlit
                  /fold_<i>/<client>/                  of a go-alone model: the client's, as arrays
                  /fold_<i>/out_of_fold.parquet        what the models predict of the rows that they have not seen
                  /fold_<i>/DONE                       written last
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from fedlit.composite.settings import MixtureSettings, PartSettings
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import Rows
from fedlit.data.module import FederatedData
from fedlit.data.table import Split
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.files import write_text
from fedlit.run.allowed import is_of_run
from fedlit.run.arguments import read
from fedlit.run.config import flatten
from fedlit.run.folders import newest_run, to_score
from fedlit.run.load import parse
from fedlit.run.run import Run
from fedlit.run.served import use_encoders
from fedlit.score.folder import MAIN, load
from fedlit.score.scorer import Scorer
from fedlit.tasks.base import of_people
from fedlit.train.manifest import read_checkpoint

__all__ = ["DONE", "ORDER", "OUT_OF_FOLD", "PARTS", "Part", "client_rows", "held_out", "target_frame"]

PARTS, CONFIG, DONE, OUT_OF_FOLD, ORDER = "parts", "config.yaml", "DONE", "out_of_fold.parquet", "order"
_ALONE = (  # a go-alone model reads its client's table, whatever the configuration's federation does with it
    "--data.align=none", "--data.scaling=client", "--data.categories=codes", "--data.missing=mean",
    "--data.common=null", "--data.pool=false",
)  # fmt: skip


_FREE = ("name", "seed", "board.", "checkpoint.", "data.fold", "trainer.default_root_dir")
"""Keys that a mixture sets itself, or that change nothing that is computed."""


@dataclass(frozen=True)
class Part:
    """A part of a mixture in a run's folder.

    Attributes:
        name: its name.
        settings: what the mixture says of it.
        folder: ``<run>/parts/<name>``.
        seed: the mixture's.
        folds: the mixture's.
    """

    name: str
    settings: PartSettings
    folder: Path
    seed: int
    folds: int

    @classmethod
    def of(cls, settings: MixtureSettings, folder: Path) -> dict[str, Part]:
        """All parts of a run's folder."""
        return {
            name: cls(name, own, folder / PARTS / name, settings.seed, settings.folds)
            for name, own in settings.parts.items()
        }

    @property
    def each_fold(self) -> range:
        """The folds' numbers."""
        return range(max(self.folds, 1))

    def fold(self, number: int) -> Path:
        """The folder of a fold."""
        return self.folder / f"fold_{number}"

    def done(self, fold: int) -> bool:
        """Whether it was trained to its end."""
        return (self.fold(fold) / DONE).is_file()

    def load(self, fold: int) -> Run:
        """Its run of a fold, untrained; from the settings that lie in the folder, where the mixture was begun.

        Raises:
            ConfigError: the part's configuration is not valid; names the part.
        """
        return self._base.with_fold(fold, f"fold_{fold}")

    @cached_property
    def _base(self) -> Run:
        """Its run, of which those of folds are made: reading a configuration costs a second."""
        kept = self.folder / CONFIG
        config, arguments = (kept, []) if kept.is_file() else (self.settings.config, self.settings.arguments)
        own = _ALONE if self.settings.go_alone is not None else ()
        best = ["--checkpoint.best=1"] if self.settings.checkpoint == "best" else []
        try:
            keys = (
                *own, *best, *arguments, "--board.curves=false", "--board.confusion_matrices=0",
                f"--seed={self.seed}", f"--data.folds={self.folds}", "--data.fold=0",
                f"--trainer.default_root_dir={self.folder}",
            )  # fmt: skip
            made_from = [file for file in (self.settings.config,) if file.is_file() and not is_of_run(file)]
            asked = read("fit", ["--config", str(config), *keys], of_run=config == kept, trusted=made_from)
            return parse(asked)[0]
        except FedlitError as error:
            raise type(error)(f"part {self.name!r}: {error}") from error

    def keep(self, run: Run) -> None:
        """Write what the part is trained with, once: a run that is continued is trained with the same, whatever became
        of the configuration's file.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.folder / CONFIG
        if not kept.is_file():
            write_text(run.config_text or "", kept)

    @property
    def changed(self) -> bool:
        """Whether its configuration says something else now than what lies in the folder; wherever its file is now."""
        kept = self.folder / CONFIG
        if not kept.is_file():
            return False
        before = dict(flatten(yaml.safe_load(kept.read_text(encoding="utf-8"))))
        fresh = replace(self, folder=self.folder / "none")
        settings = fresh._base.settings or {}
        keys = {key for key in (*before, *settings) if not key.startswith(_FREE)}
        return any(before.get(key) != settings.get(key) for key in keys)

    def checkpoint(self, fold: int) -> Path:
        """Of a fold that was trained.

        Raises:
            ConfigError: there is none.
        """
        return to_score(self.folder, f"fold_{fold}", self.settings.checkpoint, None, "mixture")[0]

    def train(self, fold: int) -> None:
        """Train a fold to its end and predict its held-out rows; goes on where it was cut short."""
        folder = self.fold(fold)
        if self.done(fold):
            return
        try:
            begun = newest_run(self.folder, f"fold_{fold}")
        except ConfigError:  # it ended before its first checkpoint
            begun = None
        if begun is None:
            shutil.rmtree(folder, ignore_errors=True)
        run = self.load(fold)
        try:
            run.fit("last" if begun is not None else None, quiet=True)
        except FedlitError as error:
            raise type(error)(f"part {self.name!r}, fold {fold}: {error}") from error
        path = self.checkpoint(fold)
        scorers = {name: run.client(name, path) for name in client_rows(run.data, "validation")}
        self.finish(fold, held_out(scorers, client_rows(run.data, "validation")))

    def finish(self, fold: int, predictions: pd.DataFrame) -> None:
        """Write what held-out rows are predicted to be, and the mark of the end."""
        folder = self.fold(fold)
        partial = folder / f"{OUT_OF_FOLD}.part"
        predictions.to_parquet(partial, index=False)
        partial.replace(folder / OUT_OF_FOLD)
        done = {"part": self.name, "fold": fold, "rows": len(predictions)}
        write_text(json.dumps(done) + "\n", folder / DONE)

    def out_of_fold(self) -> pd.DataFrame:
        """Predictions of all held-out rows, of all clients.

        Raises:
            RunError: a fold is not there.
        """
        frames = []
        for fold in self.each_fold:
            path = self.fold(fold) / OUT_OF_FOLD
            try:
                frames.append(pd.read_parquet(path).assign(fold=fold))
            except (OSError, ValueError) as error:
                raise RunError(
                    f"{path}: expected predictions of part {self.name!r}, fold {fold}, found none that can be read; "
                    f"delete {self.fold(fold)} and continue with --ckpt_path last"
                ) from error
        return pd.concat(frames, ignore_index=True)

    def scorers(self, fold: int, clients: list[str] | None = None) -> dict[str, Scorer]:
        """Its models of a fold by client; of all if None."""
        if self.settings.go_alone is not None:
            folders = sorted(path.parent for path in self.fold(fold).glob(f"*/{MAIN}"))
            return {path.name: _read(path) for path in folders if clients is None or path.name in clients}
        run, path = self.load(fold), self.checkpoint(fold)
        saved = read_checkpoint(path, resumable=False)["fedlit"]
        known = sorted(saved.get("encoders") or saved["data"])
        return {name: run.client(name, path) for name in (known if clients is None else clients)}

    def rows(self, fold: int, split: Split) -> dict[str, Rows]:
        """Client → the rows of a split, encoded as the fold's models take them."""
        run = self.load(fold)
        if self.settings.go_alone is None:
            use_encoders(run.data, read_checkpoint(self.checkpoint(fold), resumable=False))
        else:
            run.data.use_encoders({name: own.encoder.state_dict() for name, own in self.scorers(fold).items()})
        run.data.setup()
        return client_rows(run.data, split)


def _read(folder: Path) -> Scorer:
    """A go-alone model's scorer, which encodes targets, too."""
    scorer = load(folder)
    encoder = TableEncoder(scorer.client)
    encoder.load_state_dict(scorer.encoder.state_dict())
    scorer.encoder = encoder
    return scorer


def client_rows(data: FederatedData, split: Split) -> dict[str, Rows]:
    """Client → the rows of a split; rows that are pooled belong to the client that they came from."""
    union = {site.name for spec in data.specs for site in spec.sites if site.union}
    return {site: rows for _, site, rows in data.sites(split) if site not in union}


def held_out(scorers: Mapping[str, Scorer], rows: Mapping[str, Rows]) -> pd.DataFrame:
    """What models predict of rows, and the truth, as a table; labels are text, for those of clients differ in type."""
    frames = []
    for name, scorer in scorers.items():
        own, task = rows[name], scorer.task
        predictions = torch.from_numpy(scorer.of_inputs(own.x.numpy()))
        frame = task.frame(own.row, _narrowed(scorer, own.y), predictions)
        order = json.dumps(list(map(str, task.classes)))  # that of columns is lost beside other clients
        frames.append(_tidy(frame.assign(task=task.name, **{ORDER: order}), name))
    return pd.concat(frames, ignore_index=True)


def target_frame(scorer: Scorer, rows: Rows) -> pd.DataFrame:
    """Row numbers and what is known of their target, in the source's own labels or units."""
    width = scorer.task.input_width
    frame = scorer.task.frame(rows.row, _narrowed(scorer, rows.y), torch.full((len(rows), width), 0.5))
    return frame[[column for column in frame if column == "row" or str(column).startswith("target")]]


def _narrowed(scorer: Scorer, y: torch.Tensor) -> torch.Tensor:
    whole = scorer.whole_task
    blank = torch.full((len(y), whole.input_width), 0.5)
    return whole.narrow(scorer.own_classes, blank, y, torch.tensor(math.nan))[1]


def _tidy(frame: pd.DataFrame, client: str) -> pd.DataFrame:
    frame.insert(0, "client", client)
    return frame.astype({column: "string" for column in frame if of_people(column)})


def plain(value: Any) -> Any:
    """A number as JSON may have it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
