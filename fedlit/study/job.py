"""A job of a study, which is one method or local baseline with one seed; its folder, and the files
of a finished job.

<study>/runs/<method>/seed_<n>/DONE                  what was run, with which versions, how long:
written last
                              /predictions.parquet   of validation and test rows; out_of_fold: of
                              rows that a fold of a
                                                     local baseline was not trained on; with the
                                                     states of clients' tasks
                              /scores.csv            split, client, metric, value
                              /bootstrap.parquet     test scores of resampled rows
                              /version_0/            what every run of fedlit has: configuration,
                              events; clusters.csv
                                                     and such, of methods that write them

A federation that is trained without one of its clients has <study>/runs/<method>~<client>/.

Each combination of settings of a tuned method has its own folder <study>/runs/<method>@<digest of
the settings>/. Earlier runs therefore still count if values are added to a grid or its order
changes. ``DONE`` contains the settings.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from fedlit.files import read_named, write_frames
from fedlit.tasks.predictions import Predictions, PredictionTable

PREDICTIONS = "predictions.parquet"
SCORE_FILE = "scores.csv"
OUT_OF_FOLD = "out_of_fold"
"""A split: rows that the models of a fold were not trained on."""


class JobResults:
    """What a job predicts for each client and split, and the scores of these predictions.

    Attributes:
        table: the rows of :data:`PREDICTIONS`.
    """

    def __init__(self) -> None:
        self.table = PredictionTable()
        self._scores = list[pd.DataFrame]()

    def add(
        self,
        client: str,
        split: str,
        predictions: Predictions,
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add a model's predictions for a client's split.

        Args:
            client: the client whose rows they are.
            split: the split of the rows.
            predictions: the predictions of one model.
            scores: the scores of these predictions, if they are known.
        """
        self.table.add(client, predictions, split)
        if scores is None:
            scores = predictions.scores(once=split == "test")
        rows = pd.DataFrame({"metric": list(scores), "value": list(scores.values())})
        rows.insert(0, "split", split)
        rows.insert(1, "client", client)
        self._scores.append(rows)

    def extend(self, other: JobResults) -> None:
        """Add all predictions and scores of another object."""
        self.table.extend(other.table)
        self._scores += other._scores

    @property
    def scores(self) -> pd.DataFrame:
        """All scores: split, client, metric, value."""
        return pd.concat(self._scores, ignore_index=True)

    def write(self, folder: Path) -> None:
        """Write predictions and scores to a folder."""
        self.table.write(folder / PREDICTIONS)
        write_frames({folder / SCORE_FILE: self.scores})

    @classmethod
    def read(cls, folder: Path) -> JobResults:
        """Read what :meth:`write` wrote.

        Raises:
            OSError, ValueError, LookupError: a file is missing or damaged.
        """
        results = cls()
        results.table = PredictionTable.read(folder / PREDICTIONS)
        results._scores.append(read_named(folder / SCORE_FILE))
        return results


# The version of what is written and how it is computed: runs of another format are run again.
FORMAT = 4
DONE = "DONE"
BESIDE = ("loss", "classes")  # what stands beside the scores by which models are judged
BOOTSTRAP = "bootstrap.parquet"

# Keys that do not change what is computed, beyond rounding.
_FREE = (
    "name", "board.", "checkpoint.", "data.known", "model.threads", "score.", "trainer.default_root_dir",
    "trainer.enable_progress_bar",
)  # fmt: skip


@dataclass(frozen=True)
class Train:
    """Trains a federation, or a mixture of several parts.

    Attributes:
        config: the configuration file.
        overrides: maps each changed key to its value.
        checkpoint: the state that is scored; the parts of a mixture have their own setting.
        test: whether the test split is scored; runs that tune settings must not look at it.
        mixture: whether the configuration has several parts.
    """

    config: str
    overrides: dict[str, Any]
    checkpoint: Literal["last", "best"] = "last"
    test: bool = True
    mixture: bool = False


@dataclass(frozen=True)
class FitAlone:
    """Fits a local baseline for each client whose task has it.

    Attributes:
        config: the reference's configuration file, which determines the data.
        overrides: maps each changed key to its value.
        grid: maps each task to the settings from which the best are chosen.
        model: the study's description of the model, if it is of any class.
        folds: the number of folds of training and validation rows on which the model is fitted; 0
            for training rows alone.
        small: the number of validation rows below which settings are chosen by out-of-fold
            predictions.
    """

    config: str
    overrides: dict[str, Any]
    grid: dict[str, dict[str, list[Any]]]
    model: dict[str, Any] | None = None
    folds: int = 0
    small: int = 0


@dataclass(frozen=True)
class Combine:
    """Mixes stored predictions.

    Attributes:
        parts: maps each part to folders of runs; a client uses the first that has it.
        mixing: how the parts of a mixture, whose folder contains their predictions, are mixed:
            weights, shrink, admit. None for the mean of the runs' predictions.
    """

    parts: dict[str, list[str]]
    mixing: dict[str, Any] | None = None


Work = Train | FitAlone | Combine
_KINDS: dict[str, type[Work]] = {kind.__name__: kind for kind in (Train, FitAlone, Combine)}


@dataclass(frozen=True)
class Job:
    """The description of a run, which is sent to a worker process.

    Attributes:
        method: the name of the method or baseline.
        seed: the run's seed.
        folder: the folder of the results.
        digest: a hash of everything that the run is computed from; a folder whose ``DONE`` has
            another one holds no result of the job.
        work: the work to do.
        choose: maps each client to the metric by which it chooses on validation rows.
        bootstrap: the number of resamples of the test rows.
        settings: the combination of settings of a tuned method; None for any other method.
        left_out: the client without which the federation is trained; None if all take part.
    """

    method: str
    seed: int
    folder: str
    digest: str
    work: Work
    choose: dict[str, str] = field(default_factory=dict)
    bootstrap: int = 0
    settings: dict[str, Any] | None = None
    left_out: str | None = None

    def request(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return {**asdict(self), "kind": type(self.work).__name__}

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Job:
        """Restore a job from its :meth:`request`."""
        fields = {key: value for key, value in request.items() if key != "kind"}
        return cls(**{**fields, "work": _KINDS[request["kind"]](**request["work"])})

    @property
    def after(self) -> list[str]:
        """The folders of the runs from which the job is computed."""
        if not isinstance(self.work, Combine):
            return []
        return list(dict.fromkeys(itertools.chain.from_iterable(self.work.parts.values())))

    @property
    def variant(self) -> str:
        """The name of the method with its combination of settings."""
        return variant_name(self.method, self.settings)

    @property
    def title(self) -> str:
        """The name, for the user, of what is run with every seed."""
        without = f" without {self.left_out}" if self.left_out is not None else ""
        return f"{title_of(self.method, self.settings)}{without}"

    @property
    def name(self) -> str:
        """The name of the job, for the user."""
        return f"{self.title}, seed {self.seed}"


def variant_name(
    method: str, settings: Mapping[str, Any] | None, left_out: str | None = None
) -> str:
    """Return the folder name of a method's runs with a combination of settings, with all clients or
    without one. All names differ, because no method's name contains ``@`` or ``~``.
    """
    variant = f"{method}@{digest_of(settings)}" if settings else method
    return variant if left_out is None else f"{variant}~{left_out}"


def title_of(method: str, settings: Mapping[str, Any] | None) -> str:
    """Return the name of a method with a combination of settings, for the user.

    Example:
        >>> title_of("gl", {"exchange.rate": 0.5}), title_of("gl", None)
        ('gl (exchange.rate=0.5)', 'gl')
    """
    changes = ", ".join(f"{key}={json.dumps(value)}" for key, value in (settings or {}).items())
    return f"{method} ({changes})" if changes else method


def is_free(key: str) -> bool:
    """Return whether a configuration key changes nothing that is computed, except by rounding."""
    return key.startswith(_FREE)


def digest_of(value: Any) -> str:
    """Return a hash that changes with any part of the value."""
    return hashlib.blake2b(
        json.dumps(value, sort_keys=True, default=str).encode(), digest_size=8
    ).hexdigest()


def finished(job: Job) -> dict[str, Any] | None:
    """Return the content of a job's ``DONE`` file, or None if the job has not been finished in this
    form.
    """
    folder = Path(job.folder)
    try:
        record: dict[str, Any] = json.loads((folder / DONE).read_text(encoding="utf-8"))
        complete = all(
            (folder / name).stat().st_size == size for name, size in record["files"].items()
        )
        return record if complete and record["digest"] == job.digest else None
    # The file may be missing, cut short, or of another kind.
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def validation_scores(job: Job) -> pd.DataFrame:
    """Return a finished job's scores on validation rows."""
    scores = read_named(Path(job.folder) / SCORE_FILE)
    return scores[scores["split"] == "validation"]
