"""The rows that a study compares on, for programs that cannot run beside fedlit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from fedlit.data.table import SPLITS
from fedlit.data.target import own_task
from fedlit.errors import ConfigError
from fedlit.run.load import load
from fedlit.study.plan import reference_tables, tasks_of
from fedlit.study.study import Study
from fedlit.tasks import COMPARED

__all__ = ["ABOUT", "ROW", "SPLIT", "TARGET", "write_rows"]

ABOUT = "about.json"
ROW, SPLIT, TARGET = "fedlit:row", "fedlit:split", "fedlit:target"  # columns that no table has


def write_rows(study: Study, folder: str | Path, seeds: Sequence[int]) -> list[Path]:
    """Write each client's training, validation and test rows as Parquet, as the study's methods get them before any
    encoding: ``FOLDER/seed_8/CLIENT.parquet``, and beside it what they are, ``about.json``.

    Args:
        study: whose rows.
        folder: where to.
        seeds: of which splits.

    Returns:
        The files. Columns: the features, ``fedlit:row`` (number in the source), ``fedlit:split``, ``fedlit:target``.

    Raises:
        ConfigError: a client's target is neither one class nor one number.

    Example:
        >>> import tempfile
        >>> from fedlit.study.parse import load_study
        >>> files = write_rows(load_study("quickstart"), tempfile.mkdtemp(), [1])
        >>> files[-1].parent.name, sorted(set(pd.read_parquet(files[-1])[SPLIT]))
        ('seed_1', ['test', 'train', 'validation'])
    """
    kinds = tasks_of(reference_tables(study))
    study = study.for_tasks(kinds)
    reference = study.methods[study.reference]
    arguments = reference.arguments(reference.combinations[0])
    files = []
    for seed in seeds:
        place = Path(folder) / f"seed_{seed}"
        place.mkdir(parents=True, exist_ok=True)
        about = {}
        for table in load(str(study.config(study.reference)), *arguments, f"--seed={seed}").data.tables():
            task = kinds[table.name].name
            if task not in ("classification", "regression"):
                raise ConfigError(
                    f"client {table.name!r}: expected one class or one number to predict, found "
                    f"{(own_task(table.task, table.name) or {'name': task})['name']}; rows of it cannot be handed over"
                )
            split = np.full(len(table.features), "", dtype=object)
            for name in SPLITS:
                split[table.splits[name]] = name
            frame = table.features.copy()
            frame.columns = frame.columns.astype(str)
            for column in frame.columns:
                if frame[column].dtype == object or isinstance(frame[column].dtype, pd.CategoricalDtype):
                    frame[column] = frame[column].astype("string")
            frame[ROW], frame[SPLIT] = frame.index.to_numpy(), split
            frame[TARGET] = (
                table.target.to_numpy() if task == "regression" else table.target.astype("string").to_numpy()
            )
            files.append(place / f"{table.name}.parquet")
            frame[frame[SPLIT] != ""].reset_index(drop=True).to_parquet(files[-1], index=False)
            score = COMPARED[study.choice_of(table.name)]
            about[table.name] = {
                "task": task,
                "score": score.name,
                "categorical": [str(name) for name in table.categorical],
                "rows": {name: len(table.splits[name]) for name in SPLITS},
            }
        (place / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return files
