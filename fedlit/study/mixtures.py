"""Mixtures in studies: a run of several parts, and what other mixtures of its parts would give.

A method whose configuration has ``mixture:`` is trained once. Methods that are ``of`` it mix its stored predictions
anew: they cost no training.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.composite.folders import newest
from fedlit.composite.mixture import Mixture
from fedlit.composite.parts import Part
from fedlit.composite.scoring import Predicted, from_held_out, predicted
from fedlit.composite.settings import MixtureSettings, settings_of, typed_pairs
from fedlit.errors import ConfigError, RunError
from fedlit.mix.admission import admitted
from fedlit.mix.losses import Judge, row_loss
from fedlit.mix.weights import mixed_parts, weights_of
from fedlit.study.job import DONE, Job, score_rows, tidy
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.study.study import choice_of
from fedlit.tasks import Task, read_predictions

__all__ = ["PARTS", "mixed_anew", "mixture_settings", "train_mixture"]

PARTS = "parts.parquet"
"""What each part predicts of rows that it has not seen; rows as predictions have them, and the part's name."""

Computed = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def mixture_settings(config: Path, arguments: Sequence[str]) -> MixtureSettings:
    """What a configuration of several parts says, with changed keys."""
    return settings_of(config, typed_pairs(arguments)[1])


def train_mixture(job: Job, folder: Path) -> Computed:
    """Train a mixture to its end, and predict.

    Returns:
        Its predictions and scores: of test rows, of all held-out rows (``out_of_fold``; there are none without folds)
        and of validation rows; and for the record which parts are each client's own, and the weights.
    """
    arguments = [
        *job.arguments, f"--seed={job.seed}", f"--name={folder.name}", f"--trainer.default_root_dir={folder.parent}",
    ]  # fmt: skip
    mixture = Mixture(mixture_settings(Path(job.config), arguments))
    try:
        mixture.fit("last" if newest(folder.parent, folder.name) is not None else None, quiet=True)
    except ConfigError:  # begun with other settings
        shutil.rmtree(folder, ignore_errors=True)
        mixture.fit(quiet=True)
    assert mixture.folder is not None
    settings = mixture.settings
    clients = json.loads((mixture.folder / "mixture.json").read_text(encoding="utf-8"))["clients"]
    parts = Part.of(settings, mixture.folder)
    validation = _validation_rows(parts)
    held, test = from_held_out(parts, clients), predicted(parts, mixture.folder, settings, clients)
    seen = _Frames()
    each = []
    for client in held:
        splits = [("validation", held[client], validation[client]), ("test", test[client], None)]
        splits += [(OUT_OF_FOLD, held[client], None)] if settings.folds else []
        for split, made, rows in splits:
            seen.add(client, split, made, made.mixture, rows)
            if split != "validation":
                each += [_part(client, split, made, name, own) for name, own in made.parts.items()]
    pd.concat(each, ignore_index=True).to_parquet(folder / PARTS, index=False)
    train_rows = {client: len(own.row) for client, own in held.items()}
    weights = {client: own["recipe"]["weights"] for client, own in clients.items()}
    own = list(mixture.describe().own)
    known = {name: found.tolist() for name, found in validation.items()}
    details = {"train_rows": train_rows, "own": own, "weights": weights, "validation": known}
    return seen.predictions, seen.scores, details


def mixed_anew(job: Job) -> Computed:
    """Another mixture of some of a mixture's parts, from stored predictions."""
    assert job.mix is not None
    (source,) = map(Path, job.after)
    try:
        record = json.loads((source / DONE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{job.name}: expected the run of {source.parent.name}, found none: it failed") from error
    frame = pd.read_parquet(source / PARTS)
    names = list(job.mix["parts"] or dict.fromkeys(frame["part"]))
    if lacking := [name for name in names if name not in set(frame["part"])]:
        raise ConfigError(
            f"methods.{job.method}.parts: expected parts of {source.parent.name}, {', '.join(frame['part'].unique())}, "
            f"found {', '.join(lacking)}"
        )
    seen, weights, without = _Frames(), {}, []
    for client, own in frame[frame["part"].isin(names)].groupby("client"):
        if set(own["part"]) != set(names):
            without.append(str(client))
            continue
        judged = {split: _arrays(rows, names) for split, rows in own.groupby("split")}
        task, row, y, parts = judged.get(OUT_OF_FOLD) or judged["validation"]
        metric = choice_of(job.choose, str(client))
        weights[str(client)] = found = _weights(job.mix, parts, record["own"], task, y, metric)
        for split, (task, row, y, parts) in judged.items():
            mixture = torch.from_numpy(mixed_parts(parts, found)).float()
            made = Predicted(task, row, y, parts, mixture)
            seen.add(str(client), str(split), made, mixture, None)
            if split == OUT_OF_FOLD:
                seen.add(str(client), "validation", made, mixture, np.asarray(record["validation"][str(client)]))
    details = {"train_rows": record["train_rows"], "weights": weights, **({"without": without} if without else {})}
    return seen.predictions, seen.scores, details


def _weights(
    mix: Mapping[str, Any], parts: Mapping[str, np.ndarray], own: Sequence[str], task: Task, y: Tensor, metric: str
) -> dict[str, float]:
    mine, how, shrink = [name for name in parts if name in own], mix["weights"], mix["shrink"]
    if isinstance(how, Mapping):
        return {name: float(how[name]) for name in parts if how.get(name)}
    loss = row_loss(task, y)
    if not mix["admit"]:
        return dict(weights_of(how, parts, mine, loss, shrink))
    judge = Judge(task, y, metric)
    return dict(admitted(parts, mine, judge, judge.higher_is_better, how, loss, shrink).weights)


class _Frames:
    """Predictions and scores as a study keeps them."""

    def __init__(self) -> None:
        self._predictions: list[pd.DataFrame] = []
        self._scores: list[dict[str, Any]] = []

    def add(self, client: str, split: str, made: Predicted, mixture: Tensor, rows: np.ndarray | None) -> None:
        """A split of a client; of ``rows`` alone if they are given."""
        chosen = np.arange(len(made.row)) if rows is None else np.flatnonzero(np.isin(made.row, rows))
        if not len(chosen):
            return
        place = torch.from_numpy(chosen)
        y, own = made.y[place], mixture[place]
        scored = {name: float(value) for name, value in made.task.evaluate(own, y).items()}
        scored |= made.task.evaluate_once(own, y) if split == "test" else {}
        frame = made.task.frame(made.row[chosen], y, own).assign(task=made.task.name)
        self._predictions.append(tidy(frame, client, split))
        self._scores += score_rows(scored, client, split)

    @property
    def predictions(self) -> pd.DataFrame:
        return pd.concat(self._predictions, ignore_index=True)

    @property
    def scores(self) -> pd.DataFrame:
        return pd.DataFrame(self._scores)


def _part(client: str, split: str, made: Predicted, name: str, predictions: np.ndarray) -> pd.DataFrame:
    frame = made.task.frame(made.row, made.y, torch.from_numpy(np.ascontiguousarray(predictions)).float())
    return tidy(frame.assign(task=made.task.name), client, split).assign(part=name)


def _arrays(rows: pd.DataFrame, names: Sequence[str]) -> tuple[Task, np.ndarray, Tensor, dict[str, np.ndarray]]:
    """Task, row numbers, target, and each part's predictions, of a client's split."""
    found: dict[str, np.ndarray] = {}
    for name in names:
        own = rows[rows["part"] == name].drop(columns=["part"])
        task, predictions, y = read_predictions(own)
        found[name] = predictions.double().numpy()
    return task, own["row"].to_numpy(), y, found


def _validation_rows(parts: Mapping[str, Part]) -> dict[str, np.ndarray]:
    """Client → the numbers of its validation rows as the source has them, whatever the folds."""
    data = next(iter(parts.values())).load(0).data
    data.folds = 0
    return {table.name: table.features.index.to_numpy()[table.splits["validation"]] for table in data.tables()}
