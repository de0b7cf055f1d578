"""The encoder of raw rows, for one client or for several at once. It does not import PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.columns import (
    NUMBERS,
    Categories,
    ColumnEncoder,
    Scaling,
    blocks_of,
    plain_numbers,
)
from fedlit.data.grouped import GroupedRows, grouped_rows
from fedlit.data.moments import Moments, standardise
from fedlit.data.schema.schema import Schema, check_columns
from fedlit.errors import DataError
from fedlit.show.text import shorten


class RowEncoder:
    """Encodes rows, which need no label.

    Args:
        client: the client's name.

    Attributes:
        columns: the encoder of each column, in the order of the table.
        features: the names of the inputs.
        schema: how raw rows become the rows that are encoded.
        target_name: the name of the predicted column.

    Example:
        >>> encoder = RowEncoder("north")
        >>> age = {"kind": "numeric", "moments": [10, 50.0, 4.0]}
        >>> schema = Schema.typed(pd.DataFrame({"age": [50.0]}), {"age": "numeric"}).to_dict()
        >>> state = {"scaling": "client", "categories": "codes", "columns": {"age": age}, "features": ["age"]}
        >>> encoder.load_state_dict({**state, "target": "outcome", "schema": schema})
        >>> encoder.transform(pd.DataFrame({"age": [52.0, None]})).tolist()
        [[1.0], [0.0]]
    """

    target_name: str
    _state: Mapping[str, Any]

    def __init__(self, client: str) -> None:
        self.client = client
        self.scaling: Scaling = "client"
        self.categories: Categories = "codes"
        self.columns: dict[str, ColumnEncoder] = {}
        self.features: tuple[str, ...] = ()
        self.schema = Schema({})

    def read(self, raw: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Convert raw rows, as a file has them, to rows that :meth:`transform` takes.

        Returns:
            The rows with their index, and notes for a person: what was converted.

        Raises:
            DataError: a column is not there, or holds something else.
        """
        typed, notes = self.schema.apply(raw, f"client {self.client!r}")
        return typed, list[str](notes)

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        """Encode the rows of a table that has these columns, in any order, as (n, inputs) float32.

        Raises:
            DataError: a column is missing, has values of another type, or is not finite in float32.
        """
        (x,) = encode_rows([self], [frame])
        return x

    def state_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as plain data."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the encoder from its state (see
        :meth:`fedlit.data.encoder.TableEncoder.state_dict`).
        """
        self._state = state
        self.scaling = state["scaling"]
        self.categories = state["categories"]
        self.columns = {
            name: ColumnEncoder.of(name, column) for name, column in state["columns"].items()
        }
        self.features = tuple(state["features"])
        self.target_name = state["target"]
        self.schema = Schema.of(state["schema"])


def encode_rows(encoders: Sequence[RowEncoder], frames: Sequence[pd.DataFrame]) -> list[np.ndarray]:
    """Encode the rows of each client as (n, inputs) float32.

    Args:
        encoders: the encoder of each client.
        frames: its rows, with the columns of the encoder, in any order.

    Raises:
        DataError: see :meth:`RowEncoder.transform`.
    """
    encoded = list[np.ndarray]()
    kinds = list[tuple[str, ...]]()
    for encoder, frame in zip(encoders, frames, strict=True):
        check_columns(encoder.columns, frame, f"client {encoder.client!r}")
        encoded.append(np.zeros((len(frame), len(encoder.features)), np.float32))
        numeric = [name for name, column in encoder.columns.items() if column.kind == NUMBERS]
        kinds.append((encoder.scaling, *numeric))
    for group in grouped_rows(frames, kinds):
        _, *numeric = kinds[group.members[0]]
        for names in blocks_of(numeric, len(group.frame)):
            _encode_numbers(encoders, group, names, encoded)
    for encoder, frame, x in zip(encoders, frames, encoded, strict=True):
        _encode_categories(encoder, frame, x)
        _refuse_overflow(encoder, x)
    return encoded


def _encode_numbers(
    encoders: Sequence[RowEncoder],
    group: GroupedRows,
    names: Sequence[str],
    encoded: Sequence[np.ndarray],
) -> None:
    """Write columns of numbers, and the inputs that say where they are missing, into the inputs of
    each client.
    """
    members = [encoders[member] for member in group.members]
    numbers = _numbers_of(members, group, names)
    moments = [_moments_of(members, name) for name in names]
    standardised = standardise(moments, numbers, group.sizes, members[0].scaling)
    for encoder, (member, rows) in zip(members, group.slices, strict=True):
        x = encoded[member]
        positions = {name: position for position, name in enumerate(encoder.features)}
        inputs = [encoder.columns[name].inputs(encoder.categories) for name in names]
        with np.errstate(over="ignore"):  # An overflow is refused.
            x[:, [positions[items[0]] for items in inputs]] = standardised[:, rows].T
        for values, items in zip(numbers[:, rows], inputs, strict=True):
            for item in items[1:]:
                x[:, positions[item]] = np.isnan(values)


def _moments_of(members: Sequence[RowEncoder], name: str) -> list[Moments | None]:
    return [encoder.columns[name].moments for encoder in members]


def _numbers_of(
    members: Sequence[RowEncoder], group: GroupedRows, names: Sequence[str]
) -> np.ndarray:
    try:
        return plain_numbers(group.frame, names, f"client {members[0].client!r}")
    except DataError:
        # The message names the client whose cells are of another type.
        for encoder, (_, rows) in zip(members, group.slices, strict=True):
            plain_numbers(group.frame.iloc[rows], names, f"client {encoder.client!r}")
        raise


def _encode_categories(encoder: RowEncoder, frame: pd.DataFrame, x: np.ndarray) -> None:
    """Write columns of categories into the inputs ``x`` (n, inputs) of a client."""
    positions = {name: position for position, name in enumerate(encoder.features)}
    for name, column in encoder.columns.items():
        if column.kind == NUMBERS:
            continue
        head = f"client {encoder.client!r}, column {name!r}"
        arrays = column.transform(frame[name], encoder.scaling, encoder.categories, head)
        for item, values in zip(column.inputs(encoder.categories), arrays, strict=True):
            x[:, positions[item]] = values


def _refuse_overflow(encoder: RowEncoder, x: np.ndarray) -> None:
    overflowing = np.flatnonzero(~np.isfinite(x).all(axis=0))
    if len(overflowing):
        names = shorten([encoder.features[index] for index in overflowing])
        raise DataError(
            f"client {encoder.client!r}: expected numbers that are finite float32 when "
            f"standardised, found others in {names}; rescale them, or mark outliers as missing"
        )
