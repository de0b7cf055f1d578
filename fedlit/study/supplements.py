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

from fedlit.data.sources.base import Source
from fedlit.jobs.job import Job
from fedlit.jobs.record import finished
from fedlit.mixture.parts import ReadOnce
from fedlit.run import subgroups, thresholds
from fedlit.run.scoring import ScoreSettings
from fedlit.study.collect import Collected
from fedlit.study.job import OUT_OF_FOLD, PREDICTIONS
from fedlit.study.resolve import ResolvedStudy
from fedlit.study.study import HINDSIGHT
from fedlit.tasks.operating import rule_text
from fedlit.tasks.predictions import Predictions, PredictionTable

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
        *(f"{measure}_at_{thresholds.AT_THRESHOLD}" for measure in _MEASURES),
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
        rows = self.table[self.table["client"].isin(list(clients))]
        if "at" in rows:
            chosen = rows["threshold"].map("{:.4f}".format)
            rows = rows.assign(at=rows["at"].where(rows["at"] == thresholds.AT_HALF, chosen))
        names = [
            f"{client}: {labels[method]}"
            for client, method in zip(rows["client"], rows["method"], strict=True)
        ]
        keys = [key for key in _KEYS[2:] if key in rows]
        main = [self.main] if self.name == "subgroups" else []
        columns = [*keys, *main, *(column for column in _SHOWN[self.name] if column in rows)]
        texts = dict[str, list[str]]()
        for column in columns:
            texts[column.replace("_", " ")] = [_cell(column, value) for value in rows[column]]
        return pd.DataFrame(texts, names)


def _cell(column: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "–"
    return f"{value:,.1f}".removesuffix(".0") if column in _COUNTS else f"{value:.4f}"


def supplements(
    study: ResolvedStudy,
    jobs: Iterable[Job],
    collected: Collected,
    settings: ScoreSettings,
    source: Source,
) -> list[Beside]:
    """Return the tables that the settings ask for, for each method, local baseline and choice of
    the study.

    Args:
        study: the study.
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
    subgroup_columns = subgroups.check_cuts(settings.subgroups)
    tables = ReadOnce(source)
    records: dict[str, list[dict[str, Any]]] = {"thresholds": [], "subgroups": []}
    for job in jobs:
        if job.left_out is not None or finished(job) is None:
            continue
        table = PredictionTable.read(Path(job.folder) / PREDICTIONS)
        for client, splits in table.read_back().items():
            names = list(_labels(study, collected, job, client))
            if not names:
                continue
            client_records = _supplements_of_client(client, splits, settings, tables, job.seed)
            for kind, rows in client_records.items():
                for name in names:
                    records[kind] += [{**row, "method": name} for row in rows]
    main = study.metrics[0]
    return [
        Beside(kind, *_words(kind, settings, subgroup_columns), _means(study, rows), main)
        for kind, rows in records.items()
        if rows
    ]


def _labels(study: ResolvedStudy, collected: Collected, job: Job, client: str) -> Iterator[str]:
    """Yield the methods and choices whose results for a client are those of a job."""
    for name in study.labels:
        if name != HINDSIGHT and collected.trained(name, job.seed, client) == job.variant:
            yield name


def _supplements_of_client(
    client: str,
    splits: Mapping[str, Predictions],
    settings: ScoreSettings,
    tables: Source,
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Return the records of one model and client."""
    scored = {client: splits["test"]}
    chosen: dict[str, thresholds.Threshold] = {}
    records: dict[str, list[dict[str, Any]]] = {}
    if settings.threshold is not None:
        thresholds.check_two_classes({client: scored[client].task})
        # A model that was trained on validation rows has predictions of the rows that its folds
        # held out.
        unseen = splits.get(OUT_OF_FOLD) or splits["validation"]
        chosen = thresholds.choose(settings.threshold, {client: unseen})
        records["thresholds"] = thresholds.records_of(chosen, scored)
    subgroup_columns = subgroups.check_cuts(settings.subgroups)
    if subgroup_columns:
        records["subgroups"], _ = subgroups.records_of(
            subgroup_columns, tables, seed, scored, chosen
        )
    return records


def _means(study: ResolvedStudy, records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the means over seeds, in the order of the study's methods."""
    frame = pd.DataFrame(records)
    keys = [key for key in _KEYS if key in frame]
    means = frame.groupby(keys, sort=False, dropna=False).mean(numeric_only=True).reset_index()
    order = {name: position for position, name in enumerate(study.labels)}
    return means.sort_values(
        ["client", "method"],
        key=lambda column: column.map(order) if column.name == "method" else column,
        kind="stable",
        ignore_index=True,
    )


def _words(
    kind: str, settings: ScoreSettings, subgroup_columns: Mapping[str, Any]
) -> tuple[str, list[str]]:
    about = "Means over seeds, on test rows. Counts are rows."
    if kind == "subgroups":
        return f"By {', '.join(subgroup_columns)}", [about]
    rule = rule_text(settings.threshold) if settings.threshold is not None else ""
    return "At a threshold", [
        f"At 0.5, and at the threshold that rows outside training chose ({rule}). {about}"
    ]
