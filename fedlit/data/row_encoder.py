"""Encodes raw rows as inputs of a network, by what a client's training rows said. It does not import PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.columns import Categories, ColumnEncoder, Scaling
from fedlit.data.schema.schema import Schema
from fedlit.errors import DataError, did_you_mean


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
        >>> schema = Schema.typed(pd.DataFrame({"age": [50.0]}), []).to_dict()
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

    @property
    def asked(self) -> list[str]:
        """The columns that raw rows must have."""
        return self.schema.used

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        """Encode the rows of a table that has these columns, in any order, as (n, inputs) float32.

        Raises:
            DataError: a column is missing, has values of another type, or is not finite in float32.
        """
        position = {name: place for place, name in enumerate(self.features)}
        x = np.zeros((len(frame), len(position)), np.float32)
        for column, encoder in self.columns.items():
            if column not in frame:
                raise DataError(
                    f"client {self.client!r}: expected the column {column!r}, found none of this name; add it (empty "
                    "cells are allowed)." + did_you_mean(column, map(str, frame))
                )
            where = f"client {self.client!r}, column {column!r}"
            made = encoder.transform(frame[column], self.scaling, self.categories, where)
            for name, values in zip(encoder.inputs(self.categories), made, strict=True):
                x[:, position[name]] = values
        bad = ~np.isfinite(x).all(axis=0)
        if bad.any():
            raise DataError(
                f"client {self.client!r}: column {self.features[int(bad.argmax())]!r} is not finite after "
                "standardisation: expected numbers within the range of float32; rescale the column or mark the "
                "outliers as missing"
            )
        return x

    def state_dict(self) -> dict[str, Any]:
        """Return everything that was learnt as plain data."""
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the encoder from its state (see :meth:`fedlit.data.encoder.TableEncoder.state_dict`)."""
        self._state = state
        self.scaling, self.categories = state["scaling"], state["categories"]
        self.columns = {name: ColumnEncoder.of(name, column) for name, column in state["columns"].items()}
        self.features, self.target_name = tuple(state["features"]), state["target"]
        self.schema = Schema.of(state["schema"])
