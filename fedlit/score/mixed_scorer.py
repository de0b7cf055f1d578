"""A client's mixture of several models: the mean over the models of a part's folds, then the weighted
mean over parts. Does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pandas as pd

from fedlit.errors import DataError, RunError
from fedlit.outcomes import outcome_type
from fedlit.score.scorer import UNUSED, Scorer
from fedlit.types import Objects, PredictionArray, SingleFloats, State
from fedlit.weights import Stack, mixed, on_stack


def united(states: Sequence[State]) -> State:
    """Return the task of all parts' models together, as plain data, with the classes that any of
    them can predict.

    Args:
        states: the state of each model's task, see :func:`fedlit.tasks.task_state`.

    Raises:
        RunError: the tasks are of different kinds.
    """
    first = states[0]
    if {state["name"] for state in states} != {first["name"]}:
        names = ", ".join(dict.fromkeys(state["name"] for state in states))
        raise RunError(
            f"mixture: expected parts of one task, found {names}; let all parts predict the same "
            "target"
        )
    outcome = outcome_type(first["name"])
    assert outcome is not None  # each scorer has found it
    return outcome.united(states)


class MixedScorer(Scorer):
    """A client's mixture, with the interface of a single scorer.

    Args:
        client: the name of the client.
        parts: maps each part to the models of its folds, each with its encoder.
        weights: maps parts to their weights; a part without a weight is left out.
        about: further facts about the mixture, as plain data.
        stack: the intercept and slope for each output that correct the weighted mean; empty for no
            correction.

    Attributes:
        scorers: maps each part that has a weight to the models of its folds.
        weights: maps these parts to their weights.

    Raises:
        DataError: a part that has a weight is missing.
    """

    def __init__(
        self,
        client: str,
        parts: Mapping[str, Sequence[Scorer]],
        weights: Mapping[str, float],
        about: State | None = None,
        stack: Stack = (),
    ) -> None:
        missing = [name for name in weights if not parts.get(name)]
        if missing:
            raise DataError(
                f"client {client!r}: expected the models of part {missing[0]!r}, which the mixture "
                "needs, found none; train it to its end (--ckpt_path last), or write it again"
            )
        self.scorers = {name: list(parts[name]) for name in weights}
        self.weights = dict(weights)
        every = list(chain.from_iterable(self.scorers.values()))
        state = united([scorer.own_state for scorer in every])
        super().__init__(client, every[0].encoder, _never, state, batch=every[0].batch, about=about)
        self.stack = stack
        if stack:
            outputs = 0
            if self.outcome.family is not None:
                outputs = self.outcome.link(np.full((1, self.outcome.width), 0.5)).shape[1]
            if len(stack) != outputs:
                raise DataError(
                    f"client {client!r}: expected {outputs} pairs as stack, found {len(stack)}; "
                    "export again"
                )

    @property
    def feature_names_in_(self) -> Objects:
        """The names of the columns that rows must have, which are those of all parts."""
        names = chain.from_iterable(folds[0].encoder.schema.used for folds in self.scorers.values())
        return np.array(list(dict.fromkeys(names)), dtype=object)

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> PredictionArray:
        predictions = {}
        notes = list[list[str]]()
        for name, folds in self.scorers.items():
            predictions[name] = [part._predictions(frame, keys) for part in folds]
            notes.append(folds[0].notes)
        common = set.intersection(*map(set, notes))
        self.notes = [
            note
            for note in dict.fromkeys(chain.from_iterable(notes))
            if not note.startswith(UNUSED) or note in common
        ]
        return self.mix(predictions)

    def mix(self, predictions: Mapping[str, Sequence[PredictionArray]]) -> PredictionArray:
        """Return the mixture's predictions (n, width): float32 probabilities, or float64 numbers.

        Args:
            predictions: maps each part to the predictions of each fold's model for the same rows.
        """
        parts = {}
        for name, folds in predictions.items():
            pairs = zip(folds, self.scorers[name], strict=True)
            total = sum(self.outcome.aligned(fold, scorer.outcome) for fold, scorer in pairs)
            parts[name] = np.asarray(total) / len(folds)
        mixture = next(iter(parts.values()))
        if len(mixture) > 0:
            mixture = mixed(parts, self.weights)
            if self.stack:
                mixture = on_stack(self.outcome, mixture, self.stack)
        precision = np.float32 if self.outcome.classes else np.float64
        return np.ascontiguousarray(mixture, precision)


def _never(x: SingleFloats) -> PredictionArray:
    raise RunError(
        "a mixture has no inputs of its own, as each of its parts has; use predict, or mix"
    )
