"""How a client's parts are mixed, found from what they predict of rows that they have not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd
from torch import Tensor

from fedlit.composite.parts import ORDER
from fedlit.composite.settings import MixtureSettings
from fedlit.errors import ConfigError
from fedlit.mix.admission import admitted
from fedlit.mix.losses import Judge, row_loss
from fedlit.mix.together import choose_together
from fedlit.mix.weights import How, mixed_parts, weights_of
from fedlit.score.mixed import Recipe
from fedlit.tasks import COMPARED, Task, read_predictions
from fedlit.tasks.base import is_target

__all__ = ["HeldOut", "Weighed", "held_out_of", "weigh", "weigh_all"]


@dataclass(frozen=True)
class HeldOut:
    """A client's rows that no model has seen, and what each part predicts of them.

    Attributes:
        task: with the classes of all parts; labels are text.
        y: as the task encodes it.
        row: (n,) numbers in the source, ascending.
        parts: part → (n, width) float64.
    """

    task: Task
    y: Tensor
    row: np.ndarray
    parts: dict[str, np.ndarray]


@dataclass(frozen=True)
class Weighed:
    """A client's mixture, and what is to be known of it.

    Attributes:
        client: its name.
        recipe: how its parts are mixed.
        metric: the score by which it was judged.
        scores: part → its score on held-out rows.
        mixture: the mixture's.
        own: that of own parts alone; NaN where nothing was compared.
        rows: how many rows these are.
        changes: part → by how much the score became better when it entered, or would have; NaN of own parts.
        notes: what a person should know.
    """

    client: str
    recipe: Recipe
    metric: str
    scores: dict[str, float]
    mixture: float
    own: float
    rows: int
    changes: dict[str, float]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data; undefined values are None."""

        def plain(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "recipe": self.recipe.to_dict(),
            "metric": self.metric,
            "rows": self.rows,
            "scores": {name: plain(value) for name, value in self.scores.items()},
            "mixture": plain(self.mixture),
            "own": plain(self.own),
            "changes": {name: plain(value) for name, value in self.changes.items()},
            "notes": list(self.notes),
        }


def held_out_of(client: str, frames: Mapping[str, pd.DataFrame]) -> HeldOut:
    """One client's held-out rows, of all parts.

    Args:
        client: its name.
        frames: part → its predictions of all folds, as :func:`fedlit.composite.parts.held_out` gives them.

    Raises:
        ConfigError: parts that predict other rows, or another target.
    """
    made = {name: _one(frame) for name, frame in frames.items()}
    first = next(iter(made))
    target = made[first][[column for column in made[first] if is_target(column)]]
    for name, frame in made.items():
        own = frame[[column for column in frame if is_target(column)]]
        if list(own) != list(target) or not np.array_equal(frame["row"], made[first]["row"]) or _differ(own, target):
            raise ConfigError(
                f"client {client!r}: expected parts that predict the same rows and targets, found that {first!r} and "
                f"{name!r} do not; let their configurations have one source, one way to split and one target"
            )
        target = target.combine_first(own)  # a label that one part's training rows lack
    written = {text for frame in made.values() for text in frame[ORDER]}
    orders = sorted(map(json.loads, written), key=lambda order: (-len(order), order))
    labels = [f"probability_{label}" for label in dict.fromkeys(label for order in orders for label in order)]
    parts: dict[str, np.ndarray] = {}
    task, y = None, None
    for name, frame in made.items():
        others = [str(c) for c in frame if not is_target(c) and c not in (*labels, ORDER)]
        whole = pd.concat([target, frame.reindex(columns=[*others, *labels])], axis=1)
        whole[labels] = whole[labels].fillna(0.0)
        task, predictions, y = read_predictions(whole)
        parts[name] = predictions.double().numpy()
    assert task is not None and y is not None
    return HeldOut(task, y, made[first]["row"].to_numpy(), parts)


def _one(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.dropna(axis=1, how="all").sort_values("row", kind="stable").reset_index(drop=True)


def _differ(own: pd.DataFrame, other: pd.DataFrame) -> bool:
    known = own.notna() & other.notna()
    if own.dtypes.map(str).tolist() == other.dtypes.map(str).tolist() == ["float64"] * own.shape[1]:
        return not np.allclose(own, other, rtol=1e-4, equal_nan=True)
    return bool(((own.astype(str) != other.astype(str)) & known).any(axis=None))


def weigh_all(held: Mapping[str, HeldOut], own: Sequence[str], settings: MixtureSettings) -> dict[str, Weighed]:
    """Each client's mixture; with ``weights: together`` they choose one way to mix."""
    if settings.weights != "together":
        return {name: weigh(name, rows, own, settings) for name, rows in held.items()}
    chosen = choose_together({name: (o.task, o.y, o.parts) for name, o in held.items()}, own, settings.shrink)
    made = {}
    for name, rows in held.items():
        found = chosen[name]
        weighed = weigh(name, rows, own, replace(settings, weights=dict(found.weights)))
        note = f"all chose {found.common} together"
        if found.difference is not None:
            mean, low, high = found.difference
            note += f"; {found.candidate} is better here: a row's loss is {mean:.3g} less ({low:.3g} to {high:.3g})"
        made[name] = replace(weighed, notes=(note, *weighed.notes))
    return made


def weigh(client: str, held: HeldOut, own: Sequence[str], settings: MixtureSettings) -> Weighed:
    """A client's mixture.

    Args:
        client: its name.
        held: its rows.
        own: the parts that nobody else had a share in.
        settings: how parts are to be mixed.
    """
    known = {score.name for score in held.task.scores if score.name in COMPARED}
    metric = settings.by if settings.by in known else held.task.scores[0].name
    judge, loss = Judge(held.task, held.y, metric), row_loss(held.task, held.y)
    parts, notes = held.parts, []
    if settings.by is not None and settings.by != metric:
        notes.append(f"judged by {metric}, for its task has no {settings.by}")
    mine = [name for name in parts if name in own]
    changes, before = dict.fromkeys(parts, math.nan), math.nan
    if isinstance(settings.weights, dict):
        given = {name: float(settings.weights.get(name, 0.0)) for name in parts}
        total = sum(given.values())
        if not total > 0:
            raise ConfigError(
                f"client {client!r}: mixture.weights: expected a weight above 0 for one of its parts, "
                f"{', '.join(parts)}, found none"
            )
        weights = {name: value / total for name, value in given.items() if value > 0}
    elif settings.admit:
        found = admitted(parts, mine, judge, judge.higher_is_better, cast(How, settings.weights), loss, settings.shrink)
        weights, before = found.weights, found.own_score
        changes |= {own.part: own.change for own in found.tried}
        notes += [found.note] if found.note else []
    else:
        weights = weights_of(cast(How, settings.weights), parts, mine, loss, settings.shrink)
        before = (
            judge(mixed_parts(parts, weights_of("equal", {name: parts[name] for name in mine}, mine)))
            if mine
            else math.nan
        )
    mixture = mixed_parts(parts, weights)
    recipe, more = Recipe({name: float(value) for name, value in weights.items()}), list[str]()
    scores = {name: judge(predictions) for name, predictions in parts.items()}
    reached, better = judge(mixture), judge.higher_is_better
    best = max(scores, key=lambda name: (scores[name] if better else -scores[name], name))
    if (scores[best] - reached) * (1 if better else -1) > 0:
        more.append(
            f"{best} alone is better here ({metric} {scores[best]:.4f}) than the mixture ({reached:.4f}); to take it "
            f"alone: --ckpt_path last --mixture.weights.{best} 1"
        )
    return Weighed(client, recipe, metric, scores, judge(mixture), before, len(held.row), changes, (*notes, *more))
