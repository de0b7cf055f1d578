"""Stores fitted scikit-learn models as arrays: trees, linear models, and one of these for each
label. Pickles are neither written nor read. Predictions equal those of scikit-learn, to the bit if
scikit-learn's sums have a fixed order.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import cast

import numpy as np

from fedlit.errors import DataError, told_as
from fedlit.outcomes import OneEach, Outcome
from fedlit.outcomes.censored import Steps
from fedlit.outcomes.models import Fitted
from fedlit.outcomes.periods import OnPeriods
from fedlit.score.array_models import CURVE, LINEAR, TREES, Linear, OneCurve, Trees, check_trees
from fedlit.score.plain import read_json, unfit, write_json
from fedlit.types import Arrays, PredictionArray, SingleFloats, State

FILES = ("model.json", "model.npz")


class ArrayFunction:
    """The predictions of a scikit-learn model that is stored as arrays, as a function of encoded
    rows.

    Args:
        state: the state of the model, as :func:`fedlit.score.as_arrays.as_arrays` returns it.
        arrays: the arrays of the model, likewise.
        outcome: what the model predicts.
        inputs: the width of the encoded rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """

    network = "arrays"

    def __init__(self, state: State, arrays: Arrays, outcome: Outcome, inputs: int) -> None:
        self._state = state
        self._arrays = arrays
        self._outcome = outcome
        self._model = from_arrays(state, arrays, inputs)
        self(np.zeros((1, inputs), np.float32))

    def __call__(self, x: SingleFloats) -> PredictionArray:
        """Return predictions (n, width) for rows (n, d) float32."""
        return self._outcome.of_model(self._model, x)

    def write(self, folder: Path) -> None:
        """Write :data:`FILES` to a folder."""
        content = BytesIO()
        np.savez(content, **self._arrays)  # type: ignore[arg-type]  # names are anybody's, and no options
        write_json(folder / FILES[0], self._state)
        (folder / FILES[1]).write_bytes(content.getvalue())

    @classmethod
    def read(cls, folder: Path, outcome: Outcome, inputs: int) -> ArrayFunction:
        """Read what :meth:`write` wrote.

        Raises:
            DataError: the files are not what :meth:`write` writes.
        """
        state = read_json(folder / FILES[0])
        with told_as(lambda error: unfit(folder / FILES[1], error)):
            with zipfile.ZipFile(folder / FILES[1]) as archive:
                if any(array.compress_type != zipfile.ZIP_STORED for array in archive.infolist()):
                    raise ValueError("compressed arrays")
            with np.load(folder / FILES[1], allow_pickle=False) as stored:
                arrays = dict(stored)
        for name, array in arrays.items():
            if array.dtype.kind not in "iuf" or np.isnan(array).any():
                raise DataError(
                    f"{folder / FILES[1]}: expected numbers in {name[:60]!r}, found {array.dtype}, "
                    "or some that are none"
                )
        with told_as(lambda error: unfit(folder / FILES[0], error)):
            return cls(state, arrays, outcome, inputs)


def from_arrays(state: State, arrays: Mapping[str, np.ndarray], inputs: int) -> Fitted:
    """Restore the model that :func:`fedlit.score.as_arrays.as_arrays` returned.

    Args:
        state: the plain data.
        arrays: the arrays, by name.
        inputs: the width of the model's rows.

    Raises:
        ValueError, LookupError: they do not fit each other.
    """
    kind = state["kind"]
    classes = arrays.get("classes")
    if kind == "trees":
        trees = Trees(**{name: arrays[name] for name in TREES}, classes_=classes)
        check_trees(trees, inputs)
        return trees
    if kind == "linear":
        return _linear(state, arrays, inputs)
    if kind == "curve":
        return cast("Fitted", OneCurve(_curve(**{name: arrays[name] for name in CURVE})))
    if kind == "one each":
        every: list[Arrays] = [{} for _ in state["models"]]
        for name, one in arrays.items():
            label, _, array_name = name.partition(".")
            every[int(label)][array_name] = one
        pairs = zip(state["models"], every, strict=True)
        return OneEach([from_arrays(model, part, inputs) for model, part in pairs])
    if kind == "periods":
        return _on_periods(state, arrays, inputs)
    expected = "expected a model of trees, linear, a curve, periods or one each"
    raise ValueError(f"{expected}, found {kind!r}")


def _on_periods(state: State, arrays: Mapping[str, np.ndarray], inputs: int) -> OnPeriods:
    ends = arrays["ends"]
    if ends.ndim != 1 or not len(ends) or (np.diff([0.0, *ends]) <= 0).any():
        raise ValueError("expected ascending ends of periods above 0")
    indicators = bool(state["indicators"])
    width = OnPeriods.inputs_of(len(ends), indicators=indicators).shape[1]
    prefix = "of_periods."
    inner = {name.removeprefix(prefix): arrays[name] for name in arrays if name != "ends"}
    model = from_arrays(state["model"], inner, inputs + width)
    return OnPeriods(model, ends, indicators=indicators)


def _curve(times: np.ndarray, left: np.ndarray) -> Steps:
    are_shares = times.shape == left.shape and times.ndim == 1
    if not are_shares or (np.diff(times) <= 0).any() or (left < 0).any() or (left > 1).any():
        raise ValueError("expected ascending times, and a share from each of them on")
    return Steps(times, left)


def _linear(state: State, arrays: Mapping[str, np.ndarray], inputs: int) -> Linear:
    columns = tuple(state["categorical"])
    categories = tuple(arrays[f"known.{position}"] for position in range(len(columns)))
    numbers = {name: arrays[name] for name in LINEAR}
    classes = arrays.get("classes")
    model = Linear(
        **numbers,
        exponential=bool(state["exponential"]),
        categorical=columns,
        categories=categories,
        classes_=classes,
    )
    if any(type(position) is not int or not 0 <= position < inputs for position in columns):
        raise ValueError("expected places of inputs")
    width = inputs - len(columns) + sum(len(one) for one in categories)
    if (
        model.mean.shape != (width,)
        or model.scale.shape != (width,)
        or model.coefficients.shape[-1] != width
    ):
        raise ValueError(f"expected coefficients of {width} inputs")
    return model
