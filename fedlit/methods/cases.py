"""What models of single labels and numbers are fitted to: a client's rows or, for the time to an
event, its person-periods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedlit.data.encoding import Rows
from fedlit.spec import ClientSpec
from fedlit.tasks import default_task

PeriodInput = Literal["number", "indicators"]
"""Whether the period of a case is one input, its position, or an indicator for each period but the
first."""


class Cases:
    """The cases that a model is fitted to: here, each row is one.

    Args:
        spec: the client's description.

    Attributes:
        spec: the description of a client whose rows are the cases.
    """

    def __init__(self, spec: ClientSpec) -> None:
        self.spec = spec

    def of(self, rows: Rows) -> Rows:
        """Return the cases of rows."""
        return rows

    def behind(self, rows: int) -> int:
        """Return the number of cases behind which there are at least so many rows."""
        return rows

    def least(self, rows: int) -> tuple[int, ...]:
        """Return the number of cases of each class behind which there are at least so many rows."""
        return (rows,) * max(len(self.spec.classes), 1)

    def persons(self, cases: Rows) -> Tensor | None:
        """Return the position of the row that each case belongs to (cases,) int64, among the rows
        that have cases; None if each row is one.
        """
        return None

    def outputs(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the outputs for rows (n, d) of a model of cases, (n, outputs)."""
        return model(x)


class PersonPeriods(Cases):
    """A case for each row and each period in which it is at risk: did the event happen in it?

    Inputs are those of the row, and its period. So any model of two classes becomes one of the time
    to an event, with the logit of the hazard as its output (Craig, Zhong and Tibshirani 2021,
    "Survival stacking: casting survival analysis as a classification problem").

    Args:
        spec: the client's description; its task has periods.
        period_input: how the period becomes inputs.
    """

    def __init__(self, spec: ClientSpec, period_input: PeriodInput) -> None:
        periods = spec.task.periods
        names: tuple[str, ...] = ("period",)
        inputs = torch.arange(len(periods), dtype=torch.float32)[:, None]
        if period_input == "indicators":
            names = tuple(f"period {period}" for period in periods[1:])
            inputs = torch.eye(len(periods))[:, 1:]
        self.inputs = inputs
        self._task = spec.task
        self._stacked: tuple[Rows, Rows] | None = None
        task = default_task(("no event", "event"), ())
        super().__init__(
            replace(
                spec,
                features=(*spec.features, *names),
                classes=task.classes,
                task=task,
                inputs=(),
            )
        )

    def of(self, rows: Rows) -> Rows:
        """Return the cases of the rows whose target is known. Each has the number and the weight of
        its row.

        Those of the last rows are kept, because a rule asks about the same rows many times.
        """
        if self._stacked is None or self._stacked[0] is not rows:
            self._stacked = rows, self._cases_of(rows)
        return self._stacked[1]

    def _cases_of(self, rows: Rows) -> Rows:
        row, period, happens = self._task.cases(rows.y)
        x = torch.cat([rows.x[row], self.inputs[period].to(rows.x)], 1)
        weight = rows.weight
        if weight is not None:
            weight = weight[row]
        return Rows(x, happens.long(), rows.row[row.cpu().numpy()], weight)

    def behind(self, rows: int) -> int:
        """Return the number of cases behind which there are at least so many rows: a row has at
        most one case in each period.
        """
        return rows if rows <= 1 else rows * len(self.inputs)

    def least(self, rows: int) -> tuple[int, ...]:
        """Return the number of cases without and with the event behind which there are at least so
        many rows: a row has the event once.
        """
        return self.behind(rows), rows

    def persons(self, cases: Rows) -> Tensor:
        """Return the position of each case's row; a row's cases have its number."""
        _, position = np.unique(cases.row, return_inverse=True)
        return torch.from_numpy(position.reshape(-1))

    def outputs(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return the outputs for rows: the model's logits for each row in all periods, less the
        logits that the task adds.
        """
        count = len(self.inputs)
        periods = self.inputs.to(x).repeat(len(x), 1)
        logits = model(torch.cat([x.repeat_interleave(count, 0), periods], 1))
        return self._task.outputs_of_cases(logits.reshape(len(x), count))


def cases_of(spec: ClientSpec, period_input: PeriodInput) -> Cases:
    """Return what a model of single labels and numbers is fitted to at a client.

    Example:
        >>> cases_of(ClientSpec("north", ("age",), (0, 1), {}, ()), "number").spec.features
        ('age',)
    """
    if spec.task.periods:
        return PersonPeriods(spec, period_input)
    return Cases(spec)
