"""Types that the whole library shares: arrays, labels, and plain data as JSON and YAML hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SingleFloats = NDArray[np.float32]
"""Encoded rows, and what networks compute."""
PredictionArray = NDArray[np.floating]
"""Numbers (n, width) of either precision: float32 from networks, float64 from other models."""
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Objects = NDArray[np.object_]
Numbers = NDArray[np.number]
"""Numbers of any kind, such as a target: whole numbers for classes, floats for quantities."""
Arrays = dict[str, np.ndarray]
"""Arrays of any type, by name, as a .npz file holds them."""

Label = bool | int | float | str
"""A label, as a cell of a table holds it."""
Plain = bool | int | float | str | None | Sequence["Plain"] | Mapping[str, "Plain"]
"""What JSON and YAML hold, of unknown form: whoever reads it asks for the type of each part."""
State = Mapping[str, Any]
"""The fields of an object as plain data, by name. The object's class wrote them, and reads and checks
them, so that nobody else needs their types."""
