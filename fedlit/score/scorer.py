"""A trained client that scores rows, with an interface like scikit-learn's, and a client's mixture
of several: the mean over the models of a part's folds, then that of the parts. Does not import
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.data.columns import NUMBERS, RowEncoder
from fedlit.data.reading.frames import frame_of
from fedlit.data.sources.reads import are_positions
from fedlit.errors import ConfigError, DataError, RunError, Told, expect, told_as
from fedlit.outcomes import outcome_of, outcome_type
from fedlit.show.text import shorten
from fedlit.types import State
from fedlit.weights import Stack, mixed, on_stack

Function = Callable[[NDArray[np.float32]], NDArray[Any]]
"""Encoded rows (n, d) float32 → what the client predicts of them, (n, width): probabilities of the
task's classes, or a number."""
AT_THRESHOLD = "predicted_at_threshold"


def no_threshold(rows: int) -> str:
    """Return why a client has no threshold, given the number of validation rows that could have
    chosen it.
    """
    return (
        f"no threshold: its {rows:,} validation rows have only one class, or none of their "
        "probabilities reaches what score.threshold asks for"
    )


_NO_LABEL = "?"


class Scorer:
    """Scores rows as one client of a run does, with the encoder that was fitted for it and its
    network.

    ``Run.client``, ``fedlit.score.load_run`` and ``fedlit.score.load`` return scorers.

    Args:
        client: the name of the client; messages contain it.
        encoder: turns rows into inputs, as in training.
        function: returns the client's predictions for inputs, as arrays.
        state: the state of the task that the function predicts, see
            :func:`fedlit.tasks.task_state`.
        classes: the positions, among the task's classes, of those that occur in the client's
            training rows. Predictions cover these classes only. All classes if None.
        keys: the columns with which results begin, to identify rows; if None, those that the
            encoder's schema calls identifiers.
        batch: the number of rows that pass through the network at a time.
        about: further facts about the client, as plain data.

    Attributes:
        outcome: what predictions of the client's classes mean.
        notes: what the user should know about the rows that were scored last: columns that were not
            used, cells without a value, categories that training did not have, text that was read
            as numbers.

    Example:
        >>> from fedlit.data.encoder import TableEncoder
        >>> from fedlit.data.sources import Bundled
        >>> from fedlit.tasks import task_state
        >>> (table,) = Bundled(clients=["wine"]).tables(seed=0)
        >>> encoder = TableEncoder("wine").fit(table)
        >>> scorer = Scorer("wine", encoder, lambda x: np.full((len(x), 3), 1 / 3), task_state(encoder.task))
        >>> tomorrow = table.features.tail(2).assign(shelf=[7, 9])
        >>> scorer.predict(tomorrow, keys=["shelf"]).columns.tolist()
        ['shelf', 'probability_class_0', 'probability_class_1', 'probability_class_2', 'predicted']
        >>> scorer.predict_proba(tomorrow).shape, scorer.notes
        ((2, 3), ['columns that the client does not use: shelf'])
    """

    def __init__(
        self,
        client: str,
        encoder: RowEncoder,
        function: Function,
        state: Mapping[str, Any],
        *,
        classes: Sequence[int] | None = None,
        keys: Sequence[str] | None = None,
        batch: int = 1024,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.encoder = encoder
        self.function = function
        self.state = dict(state)
        self._whole = outcome_of(state)
        self.own_classes = tuple(range(len(self._whole.classes)) if classes is None else classes)
        self.outcome = self._whole.at(self.own_classes)
        self.keys = tuple(encoder.schema.keys if keys is None else keys)
        self.batch = batch
        self.about = dict(about or {})
        self.notes: list[str] = []

    @property
    def threshold(self) -> float | None:
        """The operating threshold of a client of two classes, if one was chosen: see
        ``score.threshold``.

        Raises:
            DataError: it is no number from 0 to 1.
        """
        chosen = self.about.get("threshold") or {}
        value = chosen.get("value") if isinstance(chosen, dict) else chosen
        if value is None:
            return None
        if type(value) not in (int, float) or not 0 <= value <= 1 or len(self.outcome.classes) != 2:
            raise DataError(
                f"client {self.client!r}: expected a threshold from 0 to 1 of two classes, found "
                f"{value!r}; run fedlit test again, or export again"
            )
        return float(value)

    def _no_threshold(self) -> list[str]:
        """Return a note if a threshold was asked for, but none is there for these predictions."""
        chosen = self.about.get("threshold")
        if not isinstance(chosen, dict) or chosen.get("value") is not None:
            return []
        if "rows" in chosen:
            return [no_threshold(chosen["rows"])]
        return [
            "no threshold was chosen for this checkpoint; run fedlit test with it, and with "
            "score.threshold"
        ]

    def columns(self, predictions: NDArray[Any]) -> dict[str, Any]:
        """Return predictions (n, width) as columns for the user, with ``predicted_at_threshold`` if
        the client has a :attr:`threshold`.
        """
        columns = self.outcome.columns(predictions)
        threshold = self.threshold
        if threshold is not None:
            negative, positive = self.outcome.classes
            reached = (predictions[:, 1] >= threshold).tolist()
            columns[AT_THRESHOLD] = [
                positive if is_positive else negative for is_positive in reached
            ]
        return columns

    @property
    def own_state(self) -> dict[str, Any]:
        """The state of the task with the client's classes only, as plain data."""
        state = {key: [] if key.endswith("_rows") else value for key, value in self.state.items()}
        return state | {
            key: [*getattr(self.outcome, key)]
            for key in ("classes", "negatives", "positives")
            if key in state
        }

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """The names of the columns that rows must have."""
        return np.array(self.encoder.schema.used, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that rows must have."""
        return len(self.feature_names_in_)

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of :meth:`predict_proba`'s columns.

        Raises:
            AttributeError: the client predicts a number.
        """
        if not self.outcome.classes:
            raise AttributeError(f"client {self.client!r} predicts a number: there are no classes")
        return np.array(self.outcome.classes)

    def predict(self, frame: pd.DataFrame, keys: Sequence[str] | None = None) -> pd.DataFrame:
        """Return what the client predicts for each row.

        Args:
            frame: the columns that were trained on, in any order; either typed, or text as in a
                file; of pandas, or of a library that hands over columns as Arrow does (Polars,
                DuckDB). Further columns are ignored, and :attr:`notes` lists them.
            keys: the columns of ``frame`` with which results begin, instead of the client's keys.

        Returns:
            A row for each row of the frame, in its order and with its index: the keys,
            ``probability_<label>`` for each of the client's classes, and ``predicted``, in the
            user's labels or units; with a :attr:`threshold` also ``predicted_at_threshold``.

        Raises:
            DataError: a column is missing, occurs twice, or has cells of another type.
        """
        frame = check_frame(frame, self.encoder)
        chosen = self.keys_in(frame, keys)
        results = pd.DataFrame(self.columns(self._predictions(frame, chosen)))
        if self.labels_reads:
            bases = frame[list(self.encoder.columns)].notna().to_numpy()
            pairs = zip(results["predicted"], bases, strict=True)
            results["predicted"] = [
                "".join(np.where(has_base, list(text), _NO_LABEL)) for text, has_base in pairs
            ]
        self.notes = [*self.notes, *self._no_threshold()]
        if clash := [name for name in chosen if name in results]:
            raise DataError(
                f"keys: expected names that results do not have, found {clash[0]!r}; rename the "
                "column"
            )
        return pd.concat([frame[chosen], results.set_axis(frame.index)], axis=1)

    def frame(self, row: NDArray[Any], x: NDArray[np.float32]) -> pd.DataFrame:
        """Return what the client predicts for encoded rows (n, d) float32, with their numbers in
        the column ``row``.
        """
        return pd.DataFrame({"row": row, **self.columns(self.of_inputs(x))})

    def predict_proba(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """Return probabilities (n, classes) in the order of :attr:`classes_`; each row sums to 1.
        For sequences they are (n, positions · classes), with the classes of a position next to each
        other.

        Raises:
            ConfigError: the client predicts a number.
            DataError: see :meth:`predict`.
        """
        if not self.outcome.classes:
            raise ConfigError(
                f"client {self.client!r}: expected a classifier, found one that predicts a number"
            )
        frame = check_frame(frame, self.encoder)
        return self._predictions(frame, []).astype(np.float32)

    def __repr__(self) -> str:
        classes = self.outcome.classes
        labels = f" ({shorten([*map(str, classes)])})" if classes else ""
        return (
            f"Scorer of {self.client}: {self.n_features_in_} columns → "
            f"{self.encoder.target_name}{labels}"
        )

    # ------------------------------------------------------------------

    def keys_in(self, frame: pd.DataFrame, keys: Sequence[str] | None = None) -> list[str]:
        """Return the columns with which results of these rows begin; none if the frame has none of
        the client's keys.

        Args:
            frame: the rows.
            keys: the columns that are wished for; those of the client if None.

        Raises:
            DataError: the frame lacks a column that is wished for.
        """
        chosen = list(self.keys) if keys is None else list(keys)
        if keys is None:
            return [name for name in chosen if name in frame]
        for name in chosen:
            expect(
                name in frame,
                "keys",
                "columns of the rows",
                name,
                kind=DataError,
                known=map(str, frame),
            )
        return list(dict.fromkeys(chosen))

    def encode(self, frame: pd.DataFrame, keys: Sequence[str] = ()) -> NDArray[np.float32]:
        """Encode rows as inputs (n, d) float32, and set :attr:`notes`.

        Raises:
            DataError: see :meth:`predict`.
        """
        features, encoder_notes = self.encoder.read(frame)
        unused = [
            str(name)
            for name in frame
            if name not in self.encoder.schema.columns and name not in keys
        ]
        notes = [
            *encoder_notes,
            *([f"columns that the client does not use: {shorten(unused)}"] if unused else []),
        ]
        with np.errstate(over="ignore"):  # what is too large for float32 is refused
            x: NDArray[np.float32] = self.encoder.transform(features)
        # of reads, positions without a base are those behind their ends
        self.notes = (
            notes if self.labels_reads else [*notes, *missing_and_unseen(features, self.encoder)]
        )
        return x

    @property
    def labels_reads(self) -> bool:
        """Whether rows are DNA reads, whose bases are cleaned as in training."""
        return self.outcome.sequence and are_positions(list(self.encoder.columns))

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[Any]:
        """Return the predictions for the client's classes, (n, width), at least float32."""
        return self.of_inputs(self.encode(frame, keys))

    def of_inputs(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """Return what the client predicts for encoded rows (n, d) float32: (n, classes of the
        client), or numbers (n, 1), at least float32.

        Raises:
            RunError: the network cannot be computed, or its predictions are not finite.
        """
        who = f"client {self.client!r}"
        width = self._whole.width
        parts = [np.zeros((0, width), np.float32)]
        with told_as(
            lambda error: RunError(
                f"{who}: its network could not be computed: {type(error).__name__}: {error}"
            )
        ):
            for start in range(0, len(x), self.batch):
                rows = x[start : start + self.batch]
                part = self.function(rows)
                right_shape = part.shape == (len(rows), width)
                message = Told(f"{part.dtype} {part.shape}")
                expected = f"predictions {(len(rows), width)} of floats"
                do = "its network fits another task"
                expect(right_shape and part.dtype.kind == "f", who, expected, message, do, RunError)
                parts.append(part)
        predictions = np.concatenate(parts)
        finite = bool(np.isfinite(predictions).all())
        do = "its training diverged; use another checkpoint"
        expect(finite, who, "finite predictions", Told("others"), do, RunError)
        return self._whole.narrow(self.own_classes, predictions)


def check_frame(frame: pd.DataFrame, encoder: RowEncoder) -> pd.DataFrame:
    """Return the frame with the names of columns as text; a column that training renamed gets its
    new name.

    Raises:
        DataError: it is not a frame, or two columns have one name.
    """
    frame = frame_of(frame)
    who = f"client {encoder.client!r}"
    message = Told(type(frame).__name__)
    do = "its columns need names, as in pandas.DataFrame(rows, columns=names)"
    expect(isinstance(frame, pd.DataFrame), who, "rows as a DataFrame", message, do, DataError)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    renamed = encoder.schema.reading.get("rename") or {}
    frame = frame.rename(columns={old: new for old, new in renamed.items() if new not in frame})
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(
            f"{who}: expected each column once, found {twice!r} twice; rename or drop one"
        )
    return frame


_FAR = 8  # standard deviations


def missing_and_unseen(features: pd.DataFrame, encoder: RowEncoder) -> list[str]:
    """Return notes on cells without a value, numbers far from those of training, and categories
    that training did not have.
    """
    missing = dict[str, int]()
    unseen = []
    for name, column in encoder.columns.items():
        if name not in features:
            continue
        empty = int(features[name].isna().sum())
        if empty:
            missing[name] = empty
        if column.kind == NUMBERS and column.moments is not None and column.moments.variance > 0:
            away = (features[name] - column.moments.mean).abs() / column.moments.variance**0.5
            if far := int((away > _FAR).sum()):
                example = f"{features[name][away > _FAR].iloc[0]:g}"
                unseen.append(
                    f"{name}: {far:,} cells are over {_FAR} standard deviations from training, "
                    f"such as {example}"
                )
        count, new = column.unseen(features[name])
        if count:
            examples = shorten([*map(repr, new[:3])])
            unseen.append(
                f"{name}: {count:,} cells are of categories that training did not have, such as "
                f"{examples}"
            )
    counts = shorten([f"{name} {count}" for name, count in missing.items()])
    return [*([f"cells without a value: {counts}"] if missing else []), *unseen]


_UNUSED = "columns that the client does not use"


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


def aligned(
    predictions: NDArray[Any], labels: Sequence[Any], classes: Sequence[Any]
) -> NDArray[np.float64]:
    """Return predictions (n, width) float64 with one column for each of ``classes``: 0 for a class
    that the model does not know.

    Args:
        predictions: the predictions of a model, (n, width).
        labels: the classes that the model predicts.
        classes: the classes of the mixture; empty if a number is predicted.
    """
    if tuple(labels) == tuple(classes):
        return predictions.astype(np.float64)
    whole = np.zeros((len(predictions), len(classes)))
    whole[:, [list(classes).index(label) for label in labels]] = predictions
    return whole


class MixedScorer(Scorer):
    """A client's mixture, with the interface of a single scorer.

    Args:
        client: the name of the client.
        parts: maps each part to the models of its folds, each with its encoder.
        weights: of the parts; those without one are left out.
        about: further facts about the mixture, as plain data.
        stack: the intercept and slope for each output that correct the weighted mean; empty for no
            correction.

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
    def feature_names_in_(self) -> np.ndarray:
        """The names of the columns that rows must have, which are those of all parts."""
        names = chain.from_iterable(folds[0].encoder.schema.used for folds in self.scorers.values())
        return np.array(list(dict.fromkeys(names)), dtype=object)

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[Any]:
        predictions = {}
        notes = list[list[str]]()
        for name, folds in self.scorers.items():
            predictions[name] = [part._predictions(frame, keys) for part in folds]
            notes.append(folds[0].notes)
        common = set.intersection(*map(set, notes))
        self.notes = [
            note
            for note in dict.fromkeys(chain.from_iterable(notes))
            if not note.startswith(_UNUSED) or note in common
        ]
        return self.mix(predictions)

    def mix(self, predictions: Mapping[str, Sequence[NDArray[Any]]]) -> NDArray[Any]:
        """Return the mixture's predictions (n, width): float32 probabilities, or float64 numbers.

        Args:
            predictions: maps each part to the predictions of each fold's model for the same rows.
        """
        classes = self.outcome.classes
        parts = {}
        for name, folds in predictions.items():
            pairs = zip(folds, self.scorers[name], strict=True)
            total = sum(aligned(fold, scorer.outcome.classes, classes) for fold, scorer in pairs)
            parts[name] = np.asarray(total) / len(folds)
        mixture = next(iter(parts.values()))
        if len(mixture):  # of no rows there is nothing to mix
            mixture = mixed(parts, self.weights)
            mixture = on_stack(self.outcome, mixture, self.stack) if self.stack else mixture
        return np.ascontiguousarray(mixture, np.float32 if classes else np.float64)


def _never(x: NDArray[np.float32]) -> NDArray[Any]:
    raise RunError(
        "a mixture has no inputs of its own, as each of its parts has; use predict, or mix"
    )
