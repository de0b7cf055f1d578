"""Scores at thresholds and by group of all models of a study, computed from stored predictions if
the reference's configuration asks for them by ``score``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedlit.data.sources.base import Source
from fedlit.mixture.parts import ReadOnce
from fedlit.run import subgroups, thresholds
from fedlit.run.predictions import ScoredRows
from fedlit.run.scoring import ScoreSettings
from fedlit.study.collect import Collected
from fedlit.study.job import OUT_OF_FOLD, PREDICTIONS, Job, finished
from fedlit.study.study import HINDSIGHT, Study
from fedlit.tasks import read_predictions, read_weights
from fedlit.tasks.operating import rule_text

_COUNTS = (
    "rows",
    "positives",
    "true_positives",
    "false_positives",
    "true_negatives",
    "false_negatives",
)
_KEYS = ("client", "method", "at", "column", "level")
_MEASURES = ("sensitivity", "specificity")
_SHOWN = {
    "thresholds": (*_MEASURES, "ppv", "npv", "balanced_accuracy", *_COUNTS[2:]),
    "subgroups": (
        *_COUNTS[:2],
        *_MEASURES,
        *(f"{own}_at_{thresholds.AT_THRESHOLD}" for own in _MEASURES),
    ),
}


@dataclass(frozen=True, eq=False)
class Beside:
    """A table beside the scores of a study.

    Attributes:
        name: one of :data:`fedlit.train.supplement.SUPPLEMENTS`.
        title: its title.
        lines: what a reader should know.
        table: means over seeds, one row for each client and method, and each threshold or level.
        main: the main score of the study.
    """

    name: str
    title: str
    lines: Sequence[str]
    table: pd.DataFrame
    main: str

    def shown(self, clients: Collection[str], labels: Mapping[str, str]) -> pd.DataFrame:
        """Return the table of some clients as texts.

        Args:
            clients: the names of the clients.
            labels: maps each method to its name for the user.
        """
        own = self.table[self.table["client"].isin(list(clients))]
        if "at" in own:
            chosen = own["threshold"].map("{:.4f}".format)
            own = own.assign(at=own["at"].where(own["at"] == thresholds.AT_HALF, chosen))
        names = [
            f"{client}: {labels[method]}"
            for client, method in zip(own["client"], own["method"], strict=True)
        ]
        keys = [key for key in _KEYS[2:] if key in own]
        main = [self.main] if self.name == "subgroups" else []
        columns = [*keys, *main, *(column for column in _SHOWN[self.name] if column in own)]
        texts = {
            column.replace("_", " "): [_cell(column, value) for value in own[column]]
            for column in columns
        }
        return pd.DataFrame(texts, names)


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "–"
    return f"{value:,.1f}".removesuffix(".0") if column in _COUNTS else f"{value:.4f}"


def supplements(
    study: Study, jobs: Iterable[Job], collected: Collected, settings: ScoreSettings, source: Source
) -> list[Beside]:
    """Return the tables that the settings ask for, for each method, local baseline and choice of
    the study.

    Args:
        study: the study, completed by :meth:`~fedlit.study.study.Study.for_tasks`.
        jobs: the jobs of the study.
        collected: their results.
        settings: what is asked for.
        source: the source of the tables.

    Raises:
        ConfigError: a threshold is asked for where a client does not predict one of two classes, or
            no client has a column.
        DataError: a column has too many values.
    """
    if not settings.asked:
        return []
    cuts = subgroups.check_cuts(settings.subgroups)
    tables = ReadOnce(source)
    records: dict[str, list[dict[str, Any]]] = {"thresholds": [], "subgroups": []}
    for job in jobs:
        if job.left_out is not None or finished(job) is None:
            continue
        predictions = pd.read_parquet(Path(job.folder) / PREDICTIONS)
        positives = {table.name: table.positive for table in tables.tables(job.seed)}
        for client, own in predictions.groupby("client"):
            names = list(_labels(study, collected, job, str(client)))
            found = (
                _of_client(str(client), own, settings, tables, job.seed, positives) if names else {}
            )
            for kind, rows in found.items():
                records[kind] += [{**row, "method": name} for name in names for row in rows]
    main = str((study.metrics or [""])[0])
    return [
        Beside(kind, *_words(kind, settings, cuts), _means(study, rows), main)
        for kind, rows in records.items()
        if rows
    ]


def _labels(study: Study, collected: Collected, job: Job, client: str) -> Iterator[str]:
    """Yield the methods and choices whose results for a client are those of a job."""
    for name in study.labels:
        if name != HINDSIGHT and collected.trained(name, job.seed, client) == job.variant:
            yield name


def _of_client(
    client: str,
    predictions: pd.DataFrame,
    settings: ScoreSettings,
    tables: Source,
    seed: int,
    positives: Mapping[str, Any],
) -> dict[str, list[dict[str, Any]]]:
    """Return the records of one model and client."""
    splits = {
        str(split): _scored(own, positives[client]) for split, own in predictions.groupby("split")
    }
    scored = {client: splits["test"]}
    chosen: dict[str, dict[str, Any]] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    if settings.threshold is not None:
        thresholds.check_two_classes({client: scored[client].task})
        # a model that was trained on validation rows has predictions of rows that its folds held
        # out
        unseen = splits.get(OUT_OF_FOLD) or splits["validation"]
        chosen = thresholds.choose(settings.threshold, {client: unseen})
        found["thresholds"] = thresholds.records_of(chosen, scored)
    cuts = subgroups.check_cuts(settings.subgroups)
    if cuts:
        found["subgroups"], _ = subgroups.records_of(cuts, tables, seed, scored, chosen)
    return found


def _scored(frame: pd.DataFrame, positive: Any) -> ScoredRows:
    """Return the rows of a client's split. Of two classes, the positive one is last."""
    task, predictions, y = read_predictions(frame)
    if len(task.classes) == 2 and positive is not None and str(positive) == task.classes[0]:
        task = task.at([1, 0])
        predictions = predictions.flip(1)
        y = torch.where(y < 0, y, 1 - y)
    return ScoredRows(task, frame["row"].to_numpy(), y, predictions, read_weights(frame))


def _means(study: Study, records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the means over seeds, in the order of the study's methods."""
    frame = pd.DataFrame(records)
    keys = [key for key in _KEYS if key in frame]
    means = frame.groupby(keys, sort=False, dropna=False).mean(numeric_only=True).reset_index()
    order = {name: place for place, name in enumerate(study.labels)}
    return means.sort_values(
        ["client", "method"],
        key=lambda column: column.map(order) if column.name == "method" else column,
        kind="stable",
        ignore_index=True,
    )


def _words(kind: str, settings: ScoreSettings, cuts: Mapping[str, Any]) -> tuple[str, list[str]]:
    told = "Means over seeds, on test rows. Counts are rows."
    if kind == "subgroups":
        return f"By {', '.join(cuts)}", [told]
    rule = rule_text(settings.threshold) if settings.threshold is not None else ""
    return "At a threshold", [
        f"At 0.5, and at the threshold that rows outside training chose ({rule}). {told}"
    ]
