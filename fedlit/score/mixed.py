"""Combines several scorers of one client: the mean over the models of a part's folds, then the mixture of the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.errors import DataError, RunError
from fedlit.score.scorer import Scorer
from fedlit.weights import Stack, linked, mixed, on_stack

_UNUSED = "columns that the client does not use"


def united(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the task of all parts' models together, as plain data, with the classes that any of them can predict.

    Args:
        states: the state of each model's task, see :func:`fedlit.tasks.task_state`.

    Raises:
        RunError: the tasks are of different kinds.

    Example:
        >>> one, other = ({"name": "classification", "classes": [*own]} for own in ("ac", "abc"))
        >>> united([one, other])["classes"]
        ['a', 'b', 'c']
    """
    first = states[0]
    if {own["name"] for own in states} != {first["name"]}:
        found = ", ".join(dict.fromkeys(own["name"] for own in states))
        raise RunError(f"mixture: expected parts of one task, found {found}; let all parts predict the same target")
    if first["name"] not in ("classification", "multi_label"):
        return dict(first)
    longest = max(states, key=lambda own: len(own["classes"]))  # the first of these
    classes = list(longest["classes"])
    more = {label for own in states for label in own["classes"]} - {*classes}
    if first["name"] == "multi_label" and not more:
        return dict(longest)
    return {"name": "classification", "classes": sorted({*classes, *more}, key=str) if more else classes}


def aligned(predictions: NDArray[Any], own: Sequence[Any], classes: Sequence[Any]) -> NDArray[np.float64]:
    """Return predictions (n, width) float64 with one column for each of ``classes``: 0 for a class that the model does
    not know.

    Args:
        predictions: the predictions of a model, (n, width).
        own: the classes that the model predicts.
        classes: the classes of the mixture; empty if a number is predicted.
    """
    if tuple(own) == tuple(classes):
        return predictions.astype(np.float64)
    made = np.zeros((len(predictions), len(classes)))
    made[:, [list(classes).index(label) for label in own]] = predictions
    return made


class MixedScorer(Scorer):
    """A client's mixture, with the interface of a single scorer.

    Args:
        client: the name of the client.
        parts: maps each part to the models of its folds, each with its encoder.
        weights: of the parts; those without one are left out.
        about: further facts about the mixture, as plain data.
        stack: the intercept and slope for each output that correct the weighted mean; empty for no correction.

    Attributes:
        scorers: maps each part that has a weight to the models of its folds.
        weights: of these parts.

    Raises:
        DataError: a part that has a weight is missing.
    """

    def __init__(
        self,
        client: str,
        parts: Mapping[str, Sequence[Scorer]],
        weights: Mapping[str, float],
        about: Mapping[str, Any] | None = None,
        stack: Stack = (),
    ) -> None:
        missing = [name for name in weights if not parts.get(name)]
        if missing:
            raise DataError(
                f"client {client!r}: expected the models of part {missing[0]!r}, which the mixture needs, found none; "
                "train it to its end (--ckpt_path last), or write it again"
            )
        self.scorers, self.weights = {name: list(parts[name]) for name in weights}, dict(weights)
        every = [own for folds in self.scorers.values() for own in folds]
        state = united([own.own_state for own in every])
        super().__init__(client, every[0].encoder, _never, state, batch=every[0].batch, about=about)
        self.stack, outputs = stack, linked(self.outcome.name, np.full((1, self.outcome.width), 0.5)).shape[1]
        if stack and len(stack) != outputs:
            raise DataError(f"client {client!r}: expected {outputs} pairs as stack, found {len(stack)}; export again")

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the columns that rows must have, which are those of all parts."""
        every = (name for folds in self.scorers.values() for name in folds[0].encoder.schema.used)
        return np.array(list(dict.fromkeys(every)), dtype=object)

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[Any]:
        made, notes = {}, list[list[str]]()
        for name, folds in self.scorers.items():
            made[name] = [own._predictions(frame, keys) for own in folds]
            notes.append(folds[0].notes)
        every = dict.fromkeys(note for own in notes for note in own)
        self.notes = [note for note in every if not note.startswith(_UNUSED) or all(note in own for own in notes)]
        return self.mix(made)

    def mix(self, predictions: Mapping[str, Sequence[NDArray[Any]]]) -> NDArray[Any]:
        """Return the mixture's predictions (n, width): float32 probabilities, or float64 numbers.

        Args:
            predictions: maps each part to the predictions of each fold's model for the same rows.
        """
        classes = self.outcome.classes
        parts = {
            name: np.asarray(sum(aligned(own, scorer.outcome.classes, classes) for own, scorer in zip(
                found, self.scorers[name], strict=True))) / len(found)
            for name, found in predictions.items()
        }  # fmt: skip
        mixture = next(iter(parts.values()))
        if len(mixture):  # of no rows there is nothing to mix
            mixture = mixed(parts, self.weights)
            mixture = on_stack(self.outcome.name, mixture, self.stack) if self.stack else mixture
        return np.ascontiguousarray(mixture, np.float32 if classes else np.float64)


def _never(x: NDArray[np.float32]) -> NDArray[Any]:
    raise RunError("a mixture has no inputs of its own, as each of its parts has; use predict, or mix")
