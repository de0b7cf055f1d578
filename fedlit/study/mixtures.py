"""Mixtures in studies: trained once, and what other mixtures of the same parts would give.

A method whose configuration has ``mixture:`` is trained once. Methods that are ``of`` it mix its stored predictions
anew: they cost no training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.data.module import FederatedData
from fedlit.errors import ConfigError, RunError
from fedlit.mixture.combine import combine
from fedlit.mixture.folders import newest
from fedlit.mixture.mixture import Mixture
from fedlit.mixture.parts import Part, predicted
from fedlit.mixture.settings import Mixing, MixtureSettings, PartSettings, is_mixture, settings_of, typed_pairs
from fedlit.mixture.weigh import Predicted
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.study.job import DONE, Job, MixAnew, TrainMixture, is_free, score_rows, tidy
from fedlit.study.method import must_be_known
from fedlit.study.out_of_fold import OUT_OF_FOLD
from fedlit.study.study import Study
from fedlit.tasks import read_predictions

__all__ = ["PARTS", "Frames", "mixed_anew", "mixture_settings", "must_have_parts", "read_run", "refuse_hidden_sharing",
           "train_mixture", "trained_with"]  # fmt: skip

PARTS = "parts.parquet"
"""What each part predicts of rows that it has not seen; rows as predictions have them, and the part's name."""

Computed = tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]


def read_run(config: Path, *arguments: str) -> Run:
    """The run of a configuration, parsed once: that takes half a second, and many questions are asked of it."""
    return _run(config, config.stat().st_mtime_ns, Path.cwd(), *arguments)


@lru_cache(256)
def _run(config: Path, changed: int, here: Path, *arguments: str) -> Run:
    return load(str(config), *arguments)


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
    run = read_run(part.config, *part.arguments)
    return run.exchange.on or bool(run.data.pool)


def trained_with(mixture: MixtureSettings) -> dict[str, Any]:
    """All that a mixture is computed from, with its parts' configurations as they are now."""
    parts = {}
    for name, part in mixture.parts.items():
        own = read_run(part.config, *part.arguments).settings or {}
        kept = {key: value for key, value in own.items() if key != "seed" and not is_free(key)}
        parts[name] = [kept, part.checkpoint, part.go_alone, part.grid]
    mixing = mixture.mixing
    how = [mixing.weights, mixing.shrink, mixing.admit, mixing.by]
    return {"folds": mixture.folds, "parts": parts, "mixing": how}


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
        fitted = mixture.fit("last" if newest(mixture.runs) is not None else None, quiet=True)
    except ConfigError:  # begun with other settings: what was trained with them stays, in a folder beside
        fitted = mixture.fit(quiet=True)
    folds, parts = mixture.settings.folds, mixture.built()
    weights = {client: own["weights"] for client, own in fitted.clients.items()}
    how = {client: (own["weights"], own["stack"]) for client, own in fitted.clients.items()}
    dealt, test, seen, each = _dealt_rows(parts), predicted(parts, "test"), Frames(), list[pd.DataFrame]()
    for client, held in mixture.held.items():
        if folds:
            seen.validation(client, held, held.mixed(*how[client]), dealt[client]["validation"])
        for split, own in {"test": test[client], OUT_OF_FOLD if folds else "validation": held}.items():
            seen.add(client, split, own, own.mixed(*how[client]))
            for name in own.parts:
                frame = own.task.frame(own.row, own.y, own.mixed({name: 1.0})).assign(task=own.task.name, part=name)
                each.append(tidy(frame, client, split))
    pd.concat(each, ignore_index=True).to_parquet(folder / PARTS, index=False)
    details = {
        "train_rows": {
            client: len(held.row if folds else dealt[client]["train"]) for client, held in mixture.held.items()
        },
        "own": mixture.plan.own,
        "networks": mixture.plan.networks,
        "weights": weights,
        "validation": {client: own["validation"].tolist() for client, own in dealt.items()},
    }
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
    splits, without = dict[str, dict[str, Predicted]](), []
    for client, own in frame[frame["part"].isin(names)].groupby("client"):
        if set(own["part"]) == set(names):
            splits[str(client)] = {str(split): _read(rows, names) for split, rows in own.groupby("split")}
        else:
            without.append(str(client))
    if not splits:
        raise RunError(f"{job.name}: expected clients that have all of {', '.join(names)}, found none; name fewer")
    held = {client: own.get(OUT_OF_FOLD) or own["validation"] for client, own in splits.items()}
    mixing, seen = Mixing(mix["weights"], mix["shrink"], mix["admit"], job.choose), Frames()
    found = combine(held, record["own"], mixing, record["networks"])
    for client, each in splits.items():
        for split, rows in each.items():
            mixture = rows.mixed(found[client].weights, found[client].stack)
            seen.add(client, split, rows, mixture)
            if split == OUT_OF_FOLD:
                seen.validation(client, rows, mixture, record["validation"][client])
    weights = {name: own.weights for name, own in found.items()}
    details = {"train_rows": record["train_rows"], "weights": weights, **({"without": without} if without else {})}
    return seen.predictions, seen.scores, details


class Frames:
    """Predictions and scores as a study keeps them."""

    def __init__(self) -> None:
        self._predictions: list[pd.DataFrame] = []
        self._scores: list[dict[str, Any]] = []

    def add(self, client: str, split: str, rows: Predicted, mixture: Tensor) -> None:
        """What is predicted of a client's rows."""
        scored = {name: float(value) for name, value in rows.task.evaluate(mixture, rows.y).items()}
        scored |= rows.task.evaluate_once(mixture, rows.y) if split == "test" else {}
        frame = rows.task.frame(rows.row, rows.y, mixture).assign(task=rows.task.name)
        self._predictions.append(tidy(frame, client, split))
        self._scores += score_rows(scored, client, split)

    def validation(self, client: str, rows: Predicted, mixture: Tensor, wanted: Sequence[int] | np.ndarray) -> None:
        """Of out-of-fold rows those that would be validation rows without folds."""
        chosen = np.isin(rows.row, wanted)
        if chosen.any():
            self.add(client, "validation", rows.some(chosen), mixture[torch.from_numpy(chosen)])

    @property
    def predictions(self) -> pd.DataFrame:
        """Of all that was added."""
        return pd.concat(self._predictions, ignore_index=True)

    @property
    def scores(self) -> pd.DataFrame:
        """Likewise."""
        return pd.DataFrame(self._scores)


def _read(rows: pd.DataFrame, names: Sequence[str]) -> Predicted:
    """A client's split."""
    read = {name: read_predictions(rows[rows["part"] == name]) for name in names}
    task, _, y = read[names[0]]
    row = rows.loc[rows["part"] == names[0], "row"].to_numpy()
    return Predicted(task, row, y, {name: own.double().numpy() for name, (_, own, _) in read.items()})


def _dealt_rows(parts: Mapping[str, Part]) -> dict[str, dict[str, np.ndarray]]:
    """Client → split → the numbers of its rows as the source has them, whatever the folds."""
    data = FederatedData(**{**next(iter(parts.values())).load(0).data.arguments, "folds": 0})
    return {
        table.name: {split: table.features.index.to_numpy()[rows] for split, rows in table.splits.items()}
        for table in data.tables()
    }
