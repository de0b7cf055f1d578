"""A trained client that scores rows, with an interface like scikit-learn's. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.data.columns import RowEncoder
from fedlit.data.sources.reads import are_positions, as_positions
from fedlit.errors import ConfigError, DataError, RunError, did_you_mean, told_as
from fedlit.outcomes import SEQUENCE, Outcome
from fedlit.score.cells import check_frame, missing_and_unseen
from fedlit.show.text import shorten

Function = Callable[[NDArray[np.float32]], NDArray[Any]]
"""Encoded rows (n, d) float32 → what the client predicts of them, (n, width): probabilities of the task's classes, or a
number."""
_NO_LABEL = "?"


class Scorer:
    """Scores rows as one client of a run does, with the encoder that was fitted for it and its network.

    ``Run.client``, ``fedlit.score.load_run`` and ``fedlit.score.load`` return scorers.

    Args:
        client: the name of the client; messages contain it.
        encoder: turns rows into inputs, as in training.
        function: returns the client's predictions for inputs, as arrays.
        state: the state of the task that the function predicts, see :func:`fedlit.tasks.task_state`.
        classes: the positions, among the task's classes, of those that occur in the client's training rows. Predictions
            cover these classes only. All classes if None.
        keys: the columns with which results begin, to identify rows; if None, those that the encoder's schema calls
            identifiers.
        batch: the number of rows that pass through the network at a time.
        about: further facts about the client, as plain data.

    Attributes:
        outcome: what predictions of the client's classes mean.
        notes: what the user should know about the rows that were scored last: columns that were not used, cells without
            a value, categories that training did not have, text that was read as numbers.

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
        self.client, self.encoder, self.function = client, encoder, function
        self.state, self._whole = dict(state), Outcome.of(state)
        self.own_classes = tuple(range(len(self._whole.classes)) if classes is None else classes)
        self.outcome = self._whole.at(self.own_classes)
        self.keys = tuple(encoder.schema.keys if keys is None else keys)
        self.batch, self.about = batch, dict(about or {})
        self.notes: list[str] = []

    @property
    def own_state(self) -> dict[str, Any]:
        """The state of the task with the client's classes only, as plain data."""
        own = {key: [] if key.endswith("_rows") else value for key, value in self.state.items()}
        return own | {key: [*getattr(self.outcome, key)] for key in ("classes", "negatives", "positives") if key in own}

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
            frame: the columns that were trained on, in any order; either typed, or text as in a file. Further columns
                are ignored, and :attr:`notes` lists them. For reads, the column ``read`` is enough.
            keys: the columns of ``frame`` with which results begin, instead of the client's keys.

        Returns:
            A row for each row of the frame, in its order and with its index: the keys, ``probability_<label>`` for each
            of the client's classes, and ``predicted``, in the user's labels or units.

        Raises:
            DataError: a column is missing, occurs twice, or has cells of another type.
        """
        frame = check_frame(frame, self.encoder)
        chosen = self._keys(frame, keys)
        told = pd.DataFrame(self.outcome.columns(self._predictions(frame, chosen)))
        if self.labels_reads:
            columns = list(self.encoder.columns)
            bases = as_positions(frame, columns, f"client {self.client!r}")[0][columns].notna().to_numpy()
            pairs = zip(told["predicted"], bases, strict=True)
            told["predicted"] = ["".join(np.where(own, list(text), _NO_LABEL)) for text, own in pairs]
        if clash := [name for name in chosen if name in told]:
            raise DataError(f"keys: expected names that results do not have, found {clash[0]!r}; rename the column")
        return pd.concat([frame[chosen], told.set_axis(frame.index)], axis=1)

    def predict_proba(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """Return probabilities (n, classes) in the order of :attr:`classes_`; each row sums to 1. For sequences they
        are (n, positions · classes), with the classes of a position next to each other.

        Raises:
            ConfigError: the client predicts a number.
            DataError: see :meth:`predict`.
        """
        if not self.outcome.classes:
            raise ConfigError(f"client {self.client!r}: expected a classifier, found one that predicts a number")
        frame = check_frame(frame, self.encoder)
        return self._predictions(frame, []).astype(np.float32)

    def __repr__(self) -> str:
        classes = self.outcome.classes
        what = f" ({shorten([*map(str, classes)])})" if classes else ""
        return f"Scorer of {self.client}: {self.n_features_in_} columns → {self.encoder.target_name}{what}"

    # ------------------------------------------------------------------

    def _keys(self, frame: pd.DataFrame, keys: Sequence[str] | None) -> list[str]:
        chosen = list(self.keys) if keys is None else list(keys)
        if keys is None:
            return [name for name in chosen if name in frame]
        for name in chosen:
            if name not in frame:
                raise DataError(
                    f"keys: expected columns of the rows, found no {name!r}." + did_you_mean(name, map(str, frame))
                )
        return list(dict.fromkeys(chosen))

    def encode(self, frame: pd.DataFrame, keys: Sequence[str] = ()) -> NDArray[np.float32]:
        """Encode rows as inputs (n, d) float32, and set :attr:`notes`.

        Raises:
            DataError: see :meth:`predict`.
        """
        rows, said = frame, list[str]()
        if self.labels_reads:
            rows, said = as_positions(frame, list(self.encoder.columns), f"client {self.client!r}")
        features, found = self.encoder.read(rows)
        unused = [str(name) for name in rows if name not in self.encoder.schema.columns and name not in keys]
        notes = [*said, *found, *([f"columns that the client does not use: {shorten(unused)}"] if unused else [])]
        with np.errstate(over="ignore"):  # what is too large for float32 is refused
            x: NDArray[np.float32] = self.encoder.transform(features)
        # of reads, positions without a base are those behind their ends
        self.notes = notes if self.labels_reads else [*notes, *missing_and_unseen(features, self.encoder)]
        return x

    @property
    def labels_reads(self) -> bool:
        """Whether rows are DNA reads, whose bases are cleaned as in training."""
        return self.outcome.name == SEQUENCE and are_positions(list(self.encoder.columns))

    def _predictions(self, frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[Any]:
        """Return the predictions for the client's classes, (n, width), at least float32."""
        return self.of_inputs(self.encode(frame, keys))

    def of_inputs(self, x: NDArray[np.float32]) -> NDArray[Any]:
        """Return what the client predicts for encoded rows (n, d) float32: (n, classes of the client), or numbers (n,
        1), at least float32.

        Raises:
            RunError: the network cannot be computed, or its predictions are not finite.
        """
        who, width = f"client {self.client!r}", self._whole.width
        parts = [np.zeros((0, width), np.float32)]
        with told_as(
            lambda error: RunError(f"{who}: its network could not be computed: {type(error).__name__}: {error}")
        ):
            for start in range(0, len(x), self.batch):
                rows = x[start : start + self.batch]
                part = self.function(rows)
                if part.shape != (len(rows), width) or part.dtype.kind != "f":
                    raise RunError(
                        f"{who}: expected predictions {(len(rows), width)} of floats, found {part.dtype} {part.shape}; "
                        "its network fits another task"
                    )
                parts.append(part)
        predictions = np.concatenate(parts)
        if not np.isfinite(predictions).all():
            raise RunError(
                f"{who}: expected finite predictions, found others; its training went astray, so use another checkpoint"
            )
        return self._whole.narrow(self.own_classes, predictions)
