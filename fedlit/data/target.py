"""What a client predicts: the task setting, what the client sends about its target, and the task that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedlit.data.table import ClientTable, TaskSettings, check_patterns, first_match, several
from fedlit.errors import ConfigError, DataError, FedlitError, did_you_mean, expect

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.tasks import Task


def class_labels(client: str, target: pd.Series | pd.DataFrame, task: TaskSettings | None = None) -> pd.Series:
    """Return labels unchanged, except that whole numbers stored as floats become integers. Numbers of other tasks stay
    as they are, and several columns are combined by :func:`~fedlit.data.table.several`.

    Raises:
        DataError: numbers that are no classes.
    """
    if target.ndim > 1:
        return several(cast("pd.DataFrame", target), f"client {client!r}, target")
    target = cast("pd.Series", target)
    if is_classification(own_task(task, client)) and target.dtype.kind == "f" and target.notna().all():
        if (target % 1 != 0).any():
            raise DataError(
                f"client {client!r}, target {target.name!r}: expected class labels, found numbers such as "
                f"{target[target % 1 != 0].iloc[0]}. Say task: regression to predict numbers; or name another target, "
                "or cut this one into classes first."
            )
        return target.astype(np.int64)  # the label is 1, not 1.0
    return target


def check_task(task: TaskSettings | None, clients: Iterable[str]) -> None:
    """Refuse a ``task`` that cannot be meant.

    Args:
        task: the task setting of the configuration.
        clients: whom it may name.

    Raises:
        ConfigError: an unknown task or choice, or a pattern that matches no client.
    """
    if isinstance(task, dict) and "name" not in task:
        check_patterns("task", task, clients)
        for own in task.values():
            _checked(own)
    elif task is not None:
        _checked(task)


def own_task(task: TaskSettings | None, client: str) -> dict[str, str] | None:
    """Return a client's task as ``{name: …}`` with its options, or None if the setting does not mention it.

    Example:
        >>> own_task({"north": "regression", "*": {"name": "classification"}}, "north")
        {'name': 'regression'}
    """
    if isinstance(task, dict) and "name" not in task:
        task = first_match(task, client)
    return None if task is None else _checked(task)


def is_classification(task: Mapping[str, str] | None) -> bool:
    """Return whether a client's task, as :func:`own_task` returns it, is classification, which is the default."""
    return task is None or task["name"] == "classification"


def has_classes(table: ClientTable) -> bool:
    """Return whether a client's target is one of several classes."""
    return is_classification(own_task(table.task, table.name))


def without_classes(target: pd.Series) -> str:
    """Describe a target that is not one of several classes."""
    several = isinstance(target.name, tuple)
    if not several and target.dtype.kind not in "biuf":
        return "a label for each position (task: sequence_labelling)"
    return "several labels a row (task: multi_label)" if several else "a number to predict (task: regression or counts)"


def _checked(task: TaskSettings) -> dict[str, str]:
    from fedlit.tasks import TASKS

    known = ", ".join(TASKS)
    own = {"name": task} if isinstance(task, str) else dict(task) if isinstance(task, dict) else {}
    if (name := str(own.get("name", ""))) not in TASKS:  # the hint takes its time, and each of many clients asks
        expect(False, "task", f"one of {known}, or {{name: one of them, …}}", task, did_you_mean(name, TASKS).strip())
    choices = TASKS[name].choices
    for key, value in own.items():
        if key != "name" and value not in choices.get(key, ()):
            takes = "; ".join(f"{key}: {' or '.join(values)}" for key, values in choices.items()) or "nothing else"
            raise ConfigError(f"task: {name} takes {takes}; found {key}: {value}")
    return own


def target_facts(table: ClientTable) -> dict[str, Any]:
    """Return everything that a client may send about its target before training, as plain data. ``shared`` says whether
    it is sent whatever ``align`` is.

    Raises:
        DataError: a target that the task cannot predict.
    """
    from fedlit.tasks import TASKS

    settings = own_task(table.task, table.name) or {"name": "classification"}
    target: pd.Series = table.target.iloc[table.splits["train"]]
    try:
        facts = TASKS[settings["name"]].facts(target, settings, table.positive)
    except FedlitError as error:
        raise type(error)(f"client {table.name!r}, {error}") from error
    return {**facts, "shared": settings.get("targets") == "pooled"}


def agree_on_task(client: str, facts: Mapping[str, Mapping[str, Any]], *, classes: bool = False) -> Task:
    """Return a client's task, given what all clients send about their targets.

    Args:
        client: its name.
        facts: what each client sends, as :func:`target_facts` returns it. Facts of other clients count only if they are
            shared.
        classes: whether classifiers have their classes in common.

    Raises:
        DataError: nothing can be learnt of the target.
    """
    from fedlit.tasks import TASKS

    own = facts[client]
    alike = {name: other for name, other in facts.items() if other["task"] == own["task"]}
    met = {name: other for name, other in alike.items() if other["shared"] or (classes and "labels" in other)}
    return TASKS[own["task"]].agree(client, met if client in met else {client: own})


def refuse_several_tasks(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse clients with different tasks if their rows are pooled.

    Raises:
        ConfigError: they have different tasks.
    """
    kinds = {(own["task"], own.get("loss")): name for name, own in facts.items()}
    if len(kinds) > 1:
        found = " and ".join(f"{' of loss '.join(filter(None, kind))} at {name!r}" for kind, name in kinds.items())
        raise ConfigError(f"pool: true puts all rows into one table and so needs one task, found {found}")


def sent_about_targets(facts: Mapping[str, Mapping[str, Any]], align: str) -> list[dict[str, Any]]:
    """Describe what clients send each other about their targets (see :meth:`fedlit.data.agree.Agreement.told`)."""
    labels = [own for own in facts.values() if "labels" in own] if align in ("classes", "both") else []
    told: list[dict[str, Any]] = []
    if labels:
        what = "labels and length of sequences" if any("length" in own for own in labels) else "labels"
        told.append({"what": what, "key": f"data.align: {align}", "columns": [str(labels[0]["target"])]})
    pooled = {name: str(own["target"]) for name, own in facts.items() if own["shared"]}
    if pooled:
        numbers = {name: len({"count", "mean", "variance"} & facts[name].keys()) for name in pooled}
        what = "count, mean and variance" if 3 in numbers.values() else "count and mean"
        columns = sorted(set(pooled.values()))
        told.append({"what": what, "key": "task.targets: pooled", "columns": columns, "numbers": numbers})
    return told
