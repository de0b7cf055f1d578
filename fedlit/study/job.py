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

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from fedlit.files import read_named, write_frames
from fedlit.jobs.job import Job
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


BESIDE = ("loss", "classes")  # what stands beside the scores by which models are judged
BOOTSTRAP = "bootstrap.parquet"


def validation_scores(job: Job) -> pd.DataFrame:
    """Return a finished job's scores on validation rows."""
    scores = read_named(Path(job.folder) / SCORE_FILE)
    return scores[scores["split"] == "validation"]
