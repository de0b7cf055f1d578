"""What tasks that predict a number have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from fedlit.errors import DataError
from fedlit.tasks.base import Score, Task
from fedlit.tasks.curves import Line

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAE", "RMSE", "Number", "numbers_of"]

RMSE = Score("rmse", "RMSE", higher_is_better=False, percent=False, low=0.0, always=True)
MAE = Score("mae", "MAE", higher_is_better=False, percent=False, low=0.0)


class Number(Task):
    """A task with one output, which is 0 at the mean and of the size of 1.

    Attributes:
        target: what the number is called.
    """

    target: str

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the number is called."""
        return (self.target,)

    def as_input(self, outputs: Tensor) -> Tensor:
        """The output itself."""
        return outputs

    @property
    def input_width(self) -> int:
        """One."""
        return 1

    @abstractmethod
    def true(self, y: Tensor) -> Tensor:
        """The target (n,) as ``encode`` gave it, in the user's units: float64, on the CPU."""

    def numbers(self, predictions: Tensor, y: Tensor) -> Line | None:
        """In the user's units."""
        true, found = self.true(y).numpy(), predictions[:, 0].cpu().double().numpy()
        return (true, found) if len(true) and np.isfinite(found).all() else None


_FURTHEST = 1e15
"""How many scales a target may be from the mean: sums of its squares are still within float32."""


def numbers_of(target: pd.Series, task: str, mean: float = 0.0, scale: float = 1e100) -> np.ndarray:
    """A target as float64, for a task of this name.

    Raises:
        DataError: not numbers, or not finite; with one that is at fault.
    """
    import pandas as pd

    if target.dtype.kind not in "iuf":
        no_number = pd.to_numeric(target.astype(str), errors="coerce").isna()
        found = [target[no_number].iloc[0], int(no_number.sum())] if no_number.any() else [target.iloc[0], len(target)]
        raise DataError(
            f"target {target.name!r}: expected numbers for task: {task}, found {found[1]} others of {len(target)}, "
            f"such as {str(found[0])!r}; mend them, name another target, or task: classification"
        )
    values = target.to_numpy(np.float64)
    wrong = ~(np.abs(values - mean) <= _FURTHEST * scale)
    if wrong.any():
        raise DataError(
            f"target {target.name!r}: expected finite numbers within {_FURTHEST * scale:g} of {mean:g}, found "
            f"{int(wrong.sum())} others of {len(values)}, such as {values[wrong][0]:g} in row "
            f"{target.index[wrong][0]}; mend or drop those rows"
        )
    return values
