"""Prediction tasks: outputs, labels as tensors, losses and scores."""

from __future__ import annotations

from dataclasses import asdict
from pydoc import ErrorDuringImport, locate

from fedlit.errors import ConfigError
from fedlit.outcomes import DEFAULT_TASK, imported, unknown_task
from fedlit.tasks.base import Task as Task
from fedlit.tasks.classification import Classification as Classification
from fedlit.tasks.counts import Counts as Counts
from fedlit.tasks.multi_label import MultiLabel as MultiLabel
from fedlit.tasks.regression import Regression as Regression
from fedlit.tasks.scores import BASELINES as BASELINES
from fedlit.tasks.scores import COMPARED as COMPARED
from fedlit.tasks.scores import SCORES as SCORES
from fedlit.tasks.scores import Score as Score
from fedlit.tasks.scores import add_task
from fedlit.tasks.sequence_labelling import SequenceLabelling as SequenceLabelling
from fedlit.tasks.survival import Survival as Survival
from fedlit.types import Label, State

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (Classification, Regression, MultiLabel, Counts, SequenceLabelling, Survival)
}
"""The tasks that ship with fedlit, by the name that configurations use."""

for _task in TASKS.values():
    add_task(_task.scores, _task.go_alone)


def known_task(name: str) -> type[Task] | None:
    """Return a task, given its name; None if it neither ships nor has been imported (see
    :func:`fedlit.outcomes.outcome_type`).
    """
    if name in TASKS:
        return TASKS[name]
    task = imported(name)
    if isinstance(task, type) and issubclass(task, Task):
        return task
    return None


def task_named(name: str) -> type[Task]:
    """Return a task, given its name, which may come from a file.

    Raises:
        ConfigError: it neither ships nor has been imported.
    """
    task = known_task(name)
    if task is None:
        raise ConfigError(f"task: {unknown_task(name)}")
    return task


def task_of_settings(name: str) -> type[Task] | None:
    """Return a task that the user's settings name, given its name or the path of its class, whose
    module is imported; None if there is no such task.

    Raises:
        ConfigError: the module fails when it is imported.
    """
    if name in TASKS or "." not in name:
        return TASKS.get(name)
    try:
        task = locate(name)
    except ErrorDuringImport as error:
        raise ConfigError(f"task: expected the path of a class, found {name!r}: {error}") from error
    if isinstance(task, type) and issubclass(task, Task):
        return task
    return None


def default_task(classes: tuple[Label, ...], class_rows: tuple[int, ...]) -> Task:
    """Return the task if nobody names one: to predict one of these labels."""
    return TASKS[DEFAULT_TASK](classes, class_rows)  # type: ignore[call-arg]  # tasks are dataclasses


def task_state(task: Task) -> State:
    """Return a task as plain data.

    Example:
        >>> task_state(Classification(("ill", "well"), (3, 4)))
        {'name': 'classification', 'classes': ['ill', 'well'], 'class_rows': [3, 4]}
    """
    state: dict[str, object] = {"name": task.name}
    for key, value in asdict(task).items():  # type: ignore[call-overload]  # tasks are dataclasses
        state[key] = list(value) if isinstance(value, tuple) else value
    return state


def task_from(state: State) -> Task:
    """Restore a task from its :func:`task_state`.

    Raises:
        ConfigError: the task is not known here.
    """
    fields = {}
    for key, value in state.items():
        if key != "name":
            fields[key] = tuple(value) if isinstance(value, list) else value
    return task_named(str(state["name"]))(**fields)
