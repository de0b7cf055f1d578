"""Mixtures in studies: a run of several parts, and what other mixtures of its parts would give.

A method whose configuration has ``mixture:`` is trained once. Methods that are ``of`` it mix its stored predictions
anew: they cost no training.
"""

from __future__ import annotations

import json
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
from fedlit.composite.settings import MixtureSettings, PartSettings, is_mixture, settings_of, typed_pairs
from fedlit.errors import ConfigError, RunError
from fedlit.mix.admission import admitted
from fedlit.mix.losses import Judge, row_loss
from fedlit.mix.together import choose_together
from fedlit.mix.weights import mixed_parts, weights_of
from fedlit.run.load import load
from fedlit.study.job import DONE, Job, MixAnew, TrainMixture, is_free, score_rows, tidy
from fedlit.study.method import must_be_known
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.study.study import Study, choice_of
from fedlit.tasks import Task, read_predictions

__all__ = ["PARTS", "mixed_anew", "mixture_settings", "must_have_parts", "refuse_hidden_sharing", "train_mixture",
           "trained_with"]  # fmt: skip

PARTS = "parts.parquet"
"""What each part predicts of rows that it has not seen; rows as predictions have them, and the part's name."""

Computed = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def mixture_settings(config: Path, arguments: Sequence[str]) -> MixtureSettings:
    """What a configuration of several parts says, with changed keys."""
    return settings_of(config, typed_pairs(arguments)[1])


def must_have_parts(study: Study, name: str) -> None:
    """Refuse a method that mixes what another one does not have.

    Args:
        study: whose method it is.
        name: of a method that has ``of``.

    Raises:
        ConfigError: that method is no mixture, or has no such parts.
    """
    wanted, source = study.methods[name], study.trained(name)
    if not is_mixture(study.config(source)):
        raise ConfigError(
            f"methods.{name}.of: expected a method whose configuration has several parts (mixture:), found {source}; "
            "name another one"
        )
    known = mixture_settings(study.config(source), study.methods[source].arguments()).parts
    must_be_known(f"methods.{name}.parts", wanted.parts, known)
    entering = wanted.parts or list(known)
    if isinstance(wanted.weights, dict):
        must_be_known(f"methods.{name}.weights", wanted.weights, entering)
        entering = [part for part in entering if wanted.weights.get(part)]
    refuse_hidden_sharing(study, name, {part: known[part] for part in entering})


def refuse_hidden_sharing(study: Study, name: str, parts: Mapping[str, PartSettings]) -> None:
    """Refuse a method alone that has a federated part, and a federated one that has none: the first are the bar that
    the others are set against.

    Raises:
        ConfigError: it is one of these.
    """
    own = study.methods[name]
    alone = own.alone or name == study.reference
    shared = [part for part, settings in parts.items() if _shares(settings)]
    if alone and shared:
        raise ConfigError(
            f"methods.{name}: expected parts that each client trains by itself, for the method is alone, found "
            f"{', '.join(shared)}; name the others as its parts, or drop alone"
        )
    if not (alone or own.pooled or shared):
        raise ConfigError(
            f"methods.{name}: expected a federated part, found {', '.join(parts)}, which each client trains by itself; "
            "set alone: true, or name other parts"
        )


def _shares(part: PartSettings) -> bool:
    if part.go_alone is not None:
        return False
    run = load(str(part.config), *part.arguments)
    return run.exchange.on or bool(run.data.pool)


def trained_with(mixture: MixtureSettings) -> dict[str, Any]:
    """All that a mixture is computed from, with its parts' configurations as they are now."""
    parts = {}
    for name, part in mixture.parts.items():
        own = load(str(part.config), *part.arguments).settings or {}
        kept = {key: value for key, value in own.items() if key != "seed" and not is_free(key)}
        parts[name] = [kept, part.checkpoint, part.go_alone, part.grid]
    mixing = [mixture.weights, mixture.shrink, mixture.admit, mixture.by]
    return {"folds": mixture.folds, "parts": parts, "mixing": mixing}


def train_mixture(job: Job) -> Computed:
    """Train a mixture to its end, and predict.

    Returns:
        Its predictions and scores: of test rows, of all held-out rows (``out_of_fold``; there are none without folds)
        and of validation rows; and for the record which parts are each client's own, and the weights.
    """
    assert isinstance(job.work, TrainMixture)
    folder = Path(job.folder)
    arguments = [
        *job.work.arguments, f"--seed={job.seed}", f"--name={folder.name}",
        f"--trainer.default_root_dir={folder.parent}",
    ]  # fmt: skip
    mixture = Mixture(mixture_settings(Path(job.work.config), arguments))
    try:
        mixture.fit("last" if newest(folder.parent, folder.name) is not None else None, quiet=True)
    except ConfigError:  # begun with other settings: what was trained with them stays, in a folder beside
        mixture.folder = None
        mixture.fit(quiet=True)
    assert mixture.folder is not None
    settings = mixture.settings
    clients = json.loads((mixture.folder / "mixture.json").read_text(encoding="utf-8"))["clients"]
    parts = Part.of(settings, mixture.folder)
    dealt = _dealt_rows(parts)
    validation = {client: own["validation"] for client, own in dealt.items()}
    held, test = from_held_out(parts, clients), predicted(parts, mixture.folder, settings, clients)
    seen = _Frames()
    each = []
    for client in held:
        splits = [("validation", held[client], validation[client]), ("test", test[client], None)]
        splits += [(OUT_OF_FOLD, held[client], None)] if settings.folds else []
        for split, made, rows in splits:
            seen.add(client, split, made, made.mixture, rows)
            if split != "validation" or not settings.folds:
                each += [_part(client, split, made, name, own) for name, own in made.parts.items()]
    pd.concat(each, ignore_index=True).to_parquet(folder / PARTS, index=False)
    train_rows = {client: len(held[client].row if settings.folds else dealt[client]["train"]) for client in held}
    weights = {client: own["recipe"]["weights"] for client, own in clients.items()}
    own = list(mixture.describe().own)
    known = {name: found.tolist() for name, found in validation.items()}
    details = {"train_rows": train_rows, "own": own, "weights": weights, "validation": known}
    return seen.predictions, seen.scores, details


def mixed_anew(job: Job) -> Computed:
    """Another mixture of some of a mixture's parts, from stored predictions."""
    assert isinstance(job.work, MixAnew)
    source, mix = Path(job.work.source), job.work.mix
    try:
        record = json.loads((source / DONE).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{job.name}: expected the run of {source.parent.name}, found none: it failed") from error
    frame = pd.read_parquet(source / PARTS)
    names = list(mix["parts"] or dict.fromkeys(frame["part"]))
    seen, without = _Frames(), []
    by_client: dict[str, dict[Any, Any]] = {}
    for client, own in frame[frame["part"].isin(names)].groupby("client"):
        if set(own["part"]) != set(names):
            without.append(str(client))
            continue
        by_client[str(client)] = {split: _arrays(rows, names) for split, rows in own.groupby("split")}
    held = {client: judged.get(OUT_OF_FOLD) or judged["validation"] for client, judged in by_client.items()}
    weights = _all_weights(mix, job.choose, held, record["own"])
    for client, judged in by_client.items():
        found = weights[client]
        for split, (task, row, y, parts) in judged.items():
            mixture = torch.from_numpy(mixed_parts(parts, found))
            mixture = mixture.float() if task.classes else mixture
            made = Predicted(task, row, y, parts, mixture)
            seen.add(client, str(split), made, mixture, None)
            if split == OUT_OF_FOLD:
                seen.add(client, "validation", made, mixture, np.asarray(record["validation"][client]))
    if not weights:
        raise RunError(f"{job.name}: expected clients that have all of {', '.join(names)}, found none; name fewer")
    details = {"train_rows": record["train_rows"], "weights": weights, **({"without": without} if without else {})}
    return seen.predictions, seen.scores, details


def _all_weights(
    mix: Mapping[str, Any], choose: str | Mapping[str, str], held: Mapping[str, Any], own: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Client → part → weight."""
    if mix["weights"] == "together":
        rows = {client: (task, y, parts) for client, (task, _, y, parts) in held.items()}
        return {name: dict(own.weights) for name, own in choose_together(rows, own, mix["shrink"]).items()}
    return {
        client: _weights(mix, parts, own, task, y, choice_of(choose, client))
        for client, (task, _, y, parts) in held.items()
    }


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


def _dealt_rows(parts: Mapping[str, Part]) -> dict[str, dict[str, np.ndarray]]:
    """Client → split → the numbers of its rows as the source has them, whatever the folds."""
    data = next(iter(parts.values())).load(0).data
    data.folds = 0
    return {
        table.name: {split: table.features.index.to_numpy()[rows] for split, rows in table.splits.items()}
        for table in data.tables()
    }
