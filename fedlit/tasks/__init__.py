"""Prediction tasks: outputs, labels as tensors, losses and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedlit.tasks.base import WEIGHT, by_name
from fedlit.tasks.base import Score as Score
from fedlit.tasks.base import Task as Task
from fedlit.tasks.classification import Classification as Classification
from fedlit.tasks.multi_label import MultiLabel as MultiLabel
from fedlit.tasks.number import Counts as Counts
from fedlit.tasks.number import Regression as Regression
from fedlit.tasks.sequence_labelling import SequenceLabelling as SequenceLabelling

if TYPE_CHECKING:
    import pandas as pd

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classification, Regression, MultiLabel, Counts, SequenceLabelling)
}
"""By the name that configurations use."""

SCORES: dict[str, Score] = by_name(score for task in TASKS.values() for score in task.scores)
"""Of all tasks, by name."""

COMPARED: dict[str, Score] = {
    name: own for name, own in SCORES.items() if name != "loss" and not own.context
}
"""Those by which models of different kinds can be compared."""


def read_predictions(frame: pd.DataFrame) -> tuple[Task, Tensor, Tensor]:
    """Return (task, predictions, y) of one client's rows, which
    :meth:`~fedlit.tasks.base.Task.frame` of some task wrote.

    Args:
        frame: the columns ``target``, ``predicted`` and, for classifiers, ``probability_<label>``;
            with several labels, ``target_<label>``, ``probability_<label>`` and
            ``predicted_<label>``; and ``task``, the name of the task.
    """
    return TASKS[str(frame["task"].iloc[0])].read(frame)


def read_weights(frame: pd.DataFrame) -> Tensor | None:
    """Return how much each row counts of a frame that :meth:`~fedlit.tasks.base.Task.frame` wrote,
    (n,) float64; None if all count alike.
    """
    import torch

    if WEIGHT not in frame or frame[WEIGHT].isna().all():
        return None
    return torch.tensor(frame[WEIGHT].to_numpy("float64"))


def task_state(task: Task) -> dict[str, Any]:
    """Return a task as plain data.

    Example:
        >>> task_state(Classification(("ill", "well"), (3, 4)))
        {'name': 'classification', 'classes': ['ill', 'well'], 'class_rows': [3, 4]}
    """
    own: dict[str, Any] = asdict(task)  # type: ignore[call-overload]  # tasks are dataclasses
    return {
        "name": task.name,
        **{key: list(value) if isinstance(value, tuple) else value for key, value in own.items()},
    }


def task_from(state: Mapping[str, Any]) -> Task:
    """Restore a task from its :func:`task_state`."""
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in state.items()}
    return TASKS[str(own.pop("name"))](**own)
