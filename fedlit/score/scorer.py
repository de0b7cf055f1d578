"""A trained client that scores rows, with an interface like scikit-learn's. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from fedlit.data.row_encoder import RowEncoder
from fedlit.data.sources.reads import are_positions
from fedlit.errors import ConfigError, DataError, RunError, did_you_mean, told_as
from fedlit.outcomes import outcome_of
from fedlit.outcomes.base import Columns
from fedlit.outcomes.numbers import is_number
from fedlit.score.rows import check_frame, missing_and_unseen
from fedlit.show.text import shorten
from fedlit.types import Label, Objects, PredictionArray, SingleFloats, State

Function = Callable[[SingleFloats], PredictionArray]
"""Maps encoded rows (n, d) to the client's predictions (n, width): probabilities of the task's
classes, or a number."""
AT_THRESHOLD = "predicted_at_threshold"
UNUSED = "columns that the client does not use"


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
        state: State,
        *,
        classes: Sequence[int] | None = None,
        keys: Sequence[str] | None = None,
        batch: int = 1024,
        about: State | None = None,
    ) -> None:
        self.client = client
        self.encoder = encoder
        self.function = function
        self.state = dict(state)
        self._whole = outcome_of(state)
        if classes is None:
            classes = range(len(self._whole.classes))
        self.own_classes = tuple(classes)
        self.outcome = self._whole.at(self.own_classes)
        if keys is None:
            keys = encoder.schema.keys
        self.keys = tuple(keys)
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
        value = self.about.get("threshold")
        if isinstance(value, dict):
            value = value.get("value")
        if value is None:
            return None
        if not is_number(value) or not 0 <= value <= 1 or len(self.outcome.classes) != 2:
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

    def columns(self, predictions: PredictionArray) -> Columns:
        """Return predictions (n, width) as columns for the user, with ``predicted_at_threshold`` if
        the client has a :attr:`threshold`.
        """
        columns = self.outcome.columns(predictions)
        threshold = self.threshold
        if threshold is not None:
            negative, positive = self.outcome.classes
            labels: list[Label] = []
            for is_positive in (predictions[:, 1] >= threshold).tolist():
                labels.append(positive if is_positive else negative)
            columns[AT_THRESHOLD] = labels
        return columns

    @property
    def own_state(self) -> State:
        """The state of the task with the client's classes only, as plain data. It does not count the
        rows of classes.
        """
        state = dict(self.state)
        for key in state:
            if key.endswith("_rows"):
                state[key] = []
            elif key in ("classes", "negatives", "positives"):
                state[key] = [*getattr(self.outcome, key)]
        return state

    @property
    def feature_names_in_(self) -> Objects:
        """The names of the columns that rows must have."""
        return np.array(self.encoder.schema.used, dtype=object)

    @property
    def n_features_in_(self) -> int:
        """The number of columns that rows must have."""
        return len(self.feature_names_in_)

    @property
    def classes_(self) -> np.ndarray:
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

    def predict_survival(self, frame: pd.DataFrame, times: Sequence[float]) -> pd.DataFrame:
        """Return the probability of no event up to each time, in the unit of the task.

        Args:
            frame: see :meth:`predict`.
            times: any times from 0 on. Between the ends of intervals the hazard is constant; beyond
                the last one nothing is known, NaN.

        Returns:
            A row for each row of the frame, with its index, and a column for each time.

        Raises:
            ConfigError: the client predicts no times to an event, or a time is below 0.
            DataError: see :meth:`predict`.
        """
        expected = "times: expected a list of numbers from 0 on, in the unit of the task"
        try:
            points = np.asarray(times, np.float64)
        except (TypeError, ValueError):
            raise ConfigError(f"{expected}, found {times!s:.200}") from None
        if points.ndim != 1 or not (points >= 0).all():
            raise ConfigError(f"{expected}, found {times!s:.200}")
        checked = check_frame(frame, self.encoder)
        curves = self.outcome.curve(self._predictions(checked, []), points)
        return pd.DataFrame(curves, index=checked.index, columns=list(times))

    def frame(self, row: np.ndarray, x: SingleFloats) -> pd.DataFrame:
        """Return what the client predicts for encoded rows (n, d) float32, with their numbers in
        the column ``row``.
        """
        return pd.DataFrame({"row": row, **self.columns(self.of_inputs(x))})

    def predict_proba(self, frame: pd.DataFrame) -> SingleFloats:
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
        target = self.encoder.target_name
        if classes:
            target += f" ({shorten([*map(str, classes)])})"
        return f"Scorer of {self.client}: {self.n_features_in_} columns → {target}"

    # ------------------------------------------------------------------

    def keys_in(self, frame: pd.DataFrame, keys: Sequence[str] | None = None) -> list[str]:
        """Return the columns with which results of these rows begin; none if the frame has none of
        the client's keys.

        Args:
            frame: the rows.
            keys: the columns that the user names; those of the client if None.

        Raises:
            DataError: the frame lacks a column that the user names.
        """
        if keys is None:
            return [name for name in self.keys if name in frame]
        columns = [*map(str, frame)]
        for name in keys:
            if name not in frame:
                hint = did_you_mean(str(name), columns)
                raise DataError(
                    f"keys: expected some of the rows' columns {shorten(columns)}, found {name!r}.{hint}"
                )
        return list(dict.fromkeys(keys))

    def encode(self, frame: pd.DataFrame, keys: Sequence[str] = ()) -> SingleFloats:
        """Encode rows as inputs (n, d) float32, and set :attr:`notes`.

        Raises:
            DataError: see :meth:`predict`.
        """
        features, encoder_notes = self.encoder.read(frame)
        notes = list(encoder_notes)
        used = {*self.encoder.schema.columns, *keys}
        unused = [str(name) for name in frame if name not in used]
        if unused:
            notes.append(f"{UNUSED}: {shorten(unused)}")
        # A number that is too large for float32 becomes infinite, and its prediction is refused.
        with np.errstate(over="ignore"):
            x: SingleFloats = self.encoder.transform(features)
        if not self.labels_reads:  # the positions behind the end of a read have no base
            notes += missing_and_unseen(features, self.encoder)
        self.notes = notes
        return x

    @property
    def labels_reads(self) -> bool:
        """Whether rows are DNA reads, whose bases are cleaned in the same way as in training."""
        return self.outcome.sequence and are_positions(list(self.encoder.columns))

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> PredictionArray:
        """Return the predictions for the client's classes, (n, width), at least float32."""
        return self.of_inputs(self.encode(frame, keys))

    def of_inputs(self, x: SingleFloats) -> PredictionArray:
        """Return what the client predicts for encoded rows (n, d) float32: (n, classes of the
        client), or numbers (n, 1), at least float32.

        Raises:
            RunError: the network cannot be computed, or its predictions are not finite.
        """
        who = f"client {self.client!r}"
        width = self._whole.width
        parts: list[PredictionArray] = [np.zeros((0, width), np.float32)]
        with told_as(
            lambda error: RunError(
                f"{who}: its network could not be computed: {type(error).__name__}: {error}"
            )
        ):
            for start in range(0, len(x), self.batch):
                rows = x[start : start + self.batch]
                part = self.function(rows)
                if part.shape != (len(rows), width) or part.dtype.kind != "f":
                    raise RunError(
                        f"{who}: expected predictions {(len(rows), width)} of floats, found "
                        f"{part.dtype} {part.shape}; its network fits another task"
                    )
                parts.append(part)
        predictions = np.concatenate(parts)
        if not np.isfinite(predictions).all():
            raise RunError(
                f"{who}: expected finite predictions, found others; its training diverged; use "
                "another checkpoint"
            )
        return self._whole.narrow(self.own_classes, predictions)
