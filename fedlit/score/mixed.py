"""Several scorers of one client as one: the mean of its folds' models within a part, then parts mixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.errors import DataError, RunError, told_as
from fedlit.mix.weights import mixed_parts
from fedlit.score import folder as single
from fedlit.score.plain import read_json, write_json
from fedlit.score.scorer import Scorer
from fedlit.tasks import Classification, MultiLabel, Task

__all__ = ["MIXTURE", "MixedScorer", "Recipe", "aligned", "load", "united", "write_recipe"]

MIXTURE = "mixture.json"
_VERSION = 2
_KEYS = {"format", "client", "parts", "recipe", "about"}
_UNUSED = "columns that the client does not use"


@dataclass(frozen=True)
class Recipe:
    """How a client's parts are mixed.

    Attributes:
        weights: part → its weight, of the parts that entered; of sum 1.
    """

    weights: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def of(cls, state: Any, where: str) -> Recipe:
        """The recipe of plain data.

        Raises:
            DataError: weights that are no weights, or other keys.
        """
        with told_as(
            lambda error: DataError(f"{where}: expected a recipe as fedlit writes it, found another: {error}")
        ):
            own = cls(**state)
            values = list(own.weights.values())
            if not values or any(type(value) not in (int, float) or not 0 <= value <= 1 for value in values):
                raise ValueError(f"weights {values}, which must lie between 0 and 1")
            if not math.isclose(sum(values), 1, abs_tol=1e-9):
                raise ValueError(f"weights of sum {sum(values):g}, which must be 1")
        return own


def united(tasks: Sequence[Task]) -> Task:
    """The task of all parts' models together: the classes that any of them can predict.

    Raises:
        RunError: tasks of different kinds.

    Example:
        >>> united([Classification(("a", "c")), Classification(("a", "b", "c"))]).classes
        ('a', 'b', 'c')
    """
    first = tasks[0]
    if {own.name for own in tasks} != {first.name}:
        found = ", ".join(dict.fromkeys(own.name for own in tasks))
        raise RunError(f"mixture: expected parts of one task, found {found}; let all parts predict the same target")
    if not isinstance(first, Classification | MultiLabel):
        return first
    longest = max(tasks, key=lambda own: len(own.classes))  # the first of these
    more = [label for own in tasks for label in own.classes if label not in longest.classes]
    if not more:
        return replace(longest, class_rows=()) if isinstance(longest, Classification) else longest
    return Classification(tuple(sorted({*longest.classes, *more}, key=str)))


def aligned(predictions: Tensor, task: Task, classes: Sequence[Any]) -> np.ndarray:
    """(n, width) float64, a column for each of ``classes``: 0 of a class that the model does not know.

    Args:
        predictions: of a model, (n, width).
        task: what it predicts.
        classes: of the mixture; empty where a number is predicted.
    """
    own = predictions.double().numpy()
    if tuple(task.classes) == tuple(classes):
        return own
    made = np.zeros((len(own), len(classes)))
    made[:, [list(classes).index(label) for label in task.classes]] = own
    return made


class MixedScorer(Scorer):
    """A client's mixture as one scorer.

    Args:
        client: whose it is.
        parts: part → the models of its folds, each with an encoder of its own.
        recipe: how they are mixed; parts without a weight are left out.
        about: what else is known of it: plain data.

    Attributes:
        scorers: part → the models of its folds, of the parts that have a weight.
        recipe: how they are mixed.

    Raises:
        DataError: a part of the recipe is missing.
    """

    def __init__(
        self, client: str, parts: Mapping[str, Sequence[Scorer]], recipe: Recipe, about: Mapping[str, Any] | None = None
    ) -> None:
        missing = [name for name in recipe.weights if not parts.get(name)]
        if missing:
            raise DataError(
                f"client {client!r}: expected the models of part {missing[0]!r}, which the mixture needs, found none; "
                "train it to its end (--ckpt_path last), or write it again"
            )
        self.scorers = {name: list(parts[name]) for name in recipe.weights}
        self.recipe = recipe
        every = [own for folds in self.scorers.values() for own in folds]
        task = united([own.task for own in every])
        super().__init__(client, every[0].encoder, _never, task, batch=every[0].batch, about=about)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the columns that rows must have: those of any part."""
        every = (name for folds in self.scorers.values() for name in folds[0].encoder.asked)
        return np.array(list(dict.fromkeys(every)), dtype=object)

    @property
    def n_features_in_(self) -> int:
        """How many columns rows must have."""
        return len(self.feature_names_in_)

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> Tensor:
        made, notes = {}, list[list[str]]()
        for name, folds in self.scorers.items():
            made[name] = [own._predictions(frame, keys) for own in folds]
            notes.append(folds[0].notes)
        every = dict.fromkeys(note for own in notes for note in own)
        self.notes = [note for note in every if not note.startswith(_UNUSED) or all(note in own for own in notes)]
        return self.mix(made)

    def part(self, name: str, predictions: Sequence[Tensor]) -> np.ndarray:
        """The mean of a part's folds, (n, width) float64, in the mixture's classes.

        Args:
            name: of the part.
            predictions: of each fold's model, of the same rows.
        """
        own = zip(predictions, self.scorers[name], strict=True)
        total = sum(aligned(found, scorer.task, self.task.classes) for found, scorer in own)
        mean: np.ndarray = np.asarray(total) / len(predictions)
        return mean

    def mix(self, predictions: Mapping[str, Sequence[Tensor]]) -> Tensor:
        """The mixture, (n, width): float32 probabilities, or float64 numbers.

        Args:
            predictions: part → what each fold's model predicts of the same rows.
        """
        parts = {name: self.part(name, found) for name, found in predictions.items()}
        mixture = mixed_parts(parts, dict(self.recipe.weights))
        tensor = torch.from_numpy(np.ascontiguousarray(mixture))
        return tensor.float() if self.task.classes else tensor

    def of_inputs(self, x: Tensor) -> Tensor:
        """Each part has inputs of its own.

        Raises:
            RunError: always; see :meth:`mix`.
        """
        raise RunError(f"client {self.client!r}: a mixture has no inputs of its own; use predict, or mix")


def _never(x: Tensor) -> Tensor:
    raise RunError("a mixture has no network of its own")


def load(folder: str | Path, *, trusted: bool = False) -> Scorer:
    """A client, or a client's whole mixture, that ``fedlit export`` wrote. Runs no code from the folder.

    Args:
        folder: that was written.
        trusted: whether to read a network of ``--format torch``, too: its reader can run what is in the file.

    Raises:
        DataError: something in the folder is not as it was written, or nobody can compute it.
        ConfigError: a network of ``--format torch`` that is not said to be trusted, or of ``onnx`` without onnxruntime.
    """
    folder = Path(folder)
    path = folder / MIXTURE
    if not path.is_file():
        return single.load(folder, trusted=trusted)
    main = read_json(path)
    if main.get("format") != _VERSION:
        raise DataError(f"{path}: expected format {_VERSION}, found {main.get('format')!r}; update fedlit")
    if set(main) != _KEYS or not isinstance(main["parts"], dict) or not isinstance(main["client"], str):
        raise DataError(f"{path}: expected what fedlit export writes, found other keys; export the client again")
    recipe = Recipe.of(main["recipe"], str(path))
    parts: dict[str, list[Scorer]] = {}
    for name, folds in main["parts"].items():
        if type(folds) is not int or not 0 < folds <= 1000 or Path(name).name != name:
            raise DataError(f"{path}: expected parts with their numbers of folds, found {name!r}: {folds!r}")
        parts[name] = [single.load(folder / name / f"fold_{fold}", trusted=trusted) for fold in range(folds)]
        if any(own.client != main["client"] for own in parts[name]):
            raise DataError(
                f"{folder / name}: expected models of {main['client']}, found another client's; copy it again"
            )
    return MixedScorer(main["client"], parts, recipe, main["about"])


def write_recipe(folder: Path, scorer: MixedScorer) -> None:
    """Write what a folder of parts is mixed by; the parts are there already.

    Raises:
        DataError: something is no plain data.
    """
    main = {
        "format": _VERSION,
        "client": scorer.client,
        "parts": {name: len(folds) for name, folds in scorer.scorers.items()},
        "recipe": scorer.recipe.to_dict(),
        "about": scorer.about,
    }
    write_json(folder / MIXTURE, main)
