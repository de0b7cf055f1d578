"""What is predicted of a client's rows: its task, and the facts about its target that it sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.table import ClientTable, TaskSettings, check_patterns, first_match
from fedlit.errors import ConfigError, DataError, FedlitError, did_you_mean
from fedlit.outcomes import DEFAULT_TASK, Outcome, outcome_type
from fedlit.show.text import in_rows

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.tasks import Task


def class_labels(client: str, target: pd.Series, outcome: type[Outcome]) -> pd.Series:
    """Return labels (n,), with whole numbers that are stored as floats as integers. Numbers of other
    outcomes stay unchanged.

    Raises:
        DataError: numbers that are no classes.
    """
    if not outcome.one_label or target.dtype.kind != "f" or target.isna().any():
        return target
    fractions = target[target % 1 != 0]
    if not fractions.empty:
        raise DataError(
            f"client {client!r}, target {target.name!r}: expected class labels, found numbers such "
            f"as {in_rows(fractions.index, fractions, 3)}; say task: regression to predict "
            "numbers; or name another target, or cut this one into classes first"
        )
    return target.astype(np.int64)  # The label is 1, not 1.0.


def strata_of(target: pd.Series, outcome: type[Outcome]) -> pd.Series | None:
    """Return the class by which each row (n,) is drawn into splits and folds; None if rows are drawn
    regardless of their target.

    Example:
        >>> import pandas as pd
        >>> target = pd.Series([(30, 1), (8, 0)], name=("days", "died"))
        >>> strata_of(target, outcome_type("survival")).rename("died").tolist()
        [1, 0]
    """
    if isinstance(target.name, tuple):
        if outcome.stratum is None:
            return None
        cells = target.map(lambda row: row[outcome.stratum])
        return cells.rename(target.name[outcome.stratum])
    return target if outcome.one_label else None


def check_task(task: TaskSettings | None, clients: Iterable[str]) -> None:
    """Refuse an invalid ``task``.

    Args:
        task: the task setting of the configuration.
        clients: the clients that it may name.

    Raises:
        ConfigError: an unknown task or choice, or a pattern that matches no client.
    """
    if isinstance(task, dict) and "name" not in task:
        check_patterns("task", task, clients)
        for settings in task.values():
            _checked(settings)
    elif task is not None:
        _checked(task)


def task_for(task: TaskSettings | None, client: str) -> dict[str, Any] | None:
    """Return a client's task as ``{name: …}`` with its options, or None if the setting does not
    mention it.

    Example:
        >>> task_for({"north": "regression", "*": {"name": "classification"}}, "north")
        {'name': 'regression'}
    """
    if isinstance(task, dict) and "name" not in task:
        task = first_match(task, client)
    if task is None:
        return None
    return _checked(task)


def named_columns(task: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the columns of the target that a client's task names by their roles; none if its target
    is named by ``target``.

    Example:
        >>> named_columns({"name": "survival", "time": "days", "event": "died"})
        ('days', 'died')
    """
    if task is None:
        return ()
    outcome = outcome_type(task["name"])
    roles = {} if outcome is None else outcome.roles
    return tuple(str(task[role]) for role in roles if role in task)


def outcome_for(task: TaskSettings | None, client: str) -> type[Outcome]:
    """Return what a client predicts.

    Args:
        task: the task setting of the configuration.
        client: the client's name.

    Raises:
        ConfigError: an unknown task or choice.
    """
    settings = task_for(task, client)
    outcome = outcome_type(DEFAULT_TASK if settings is None else settings["name"])
    assert outcome is not None  # the setting names a task, and so its class has been imported
    return outcome


def task_name(table: ClientTable) -> str:
    """Return the name of a client's task. The look-up does not import torch, which tasks need."""
    task = table.task or DEFAULT_TASK
    if isinstance(task, dict) and "name" not in task:
        task = first_match(task, table.name) or DEFAULT_TASK
    return task if isinstance(task, str) else str(task["name"])


def outcome_at(table: ClientTable) -> type[Outcome]:
    """Return what is predicted of the rows of a client's table."""
    return outcome_type(task_name(table)) or outcome_for(table.task, table.name)


def has_classes(table: ClientTable) -> bool:
    """Return whether a client's target is one of several classes."""
    return outcome_at(table).one_label


def has_sequences(table: ClientTable) -> bool:
    """Return whether a client's target is a label for each position of a row, as with reads."""
    return outcome_at(table).sequence


def without_classes(table: ClientTable) -> str:
    """Describe a target that is not one of several classes."""
    outcome = outcome_at(table)
    if isinstance(table.target.name, tuple):
        description = "several columns" if outcome.number else "several labels"
        description = f"{description} a row"
    else:
        description = "a label for each position" if outcome.sequence else "a number to predict"
    return f"{description} (task: {task_name(table)})"


def _checked(task: TaskSettings) -> dict[str, Any]:
    from fedlit.tasks import TASKS, task_of_settings

    settings: dict[str, Any] = {}
    if isinstance(task, str):
        settings = {"name": task}
    elif isinstance(task, dict):
        settings = dict(task)
    name = str(settings.get("name", ""))
    kind = task_of_settings(name)
    if kind is None:
        hint = did_you_mean(name, TASKS).strip()
        raise ConfigError(
            f"task: expected one of {', '.join(TASKS)}, the path of a task's class, or {{name: one "
            f"of them, …}}, found {task!r}" + (hint and f"; {hint}")
        )
    settings["name"] = kind.name
    roles = kind.outcome_type.roles
    allowed = [f"{key}: {' or '.join(values)}" for key, values in kind.choices.items()]
    allowed += [f"{key}: COLUMN" for key in roles]
    allowed += [f"{key}: …" for key in kind.more_settings]
    for key, value in settings.items():
        is_chosen = value in kind.choices.get(key, ())
        is_column = key in roles and isinstance(value, str) and bool(value)
        if key not in ("name", *kind.more_settings) and not is_chosen and not is_column:
            raise ConfigError(
                f"task: {name}: expected {'; '.join(allowed) or 'no choices'}, found {key}: {value}"
            )
    for role, is_needed in roles.items():
        if is_needed and role not in settings:
            raise ConfigError(
                f"task: {name}: expected a column as {role}, found none; write {{name: {name}, "
                f"{', '.join(f'{key}: COLUMN' for key, needed in roles.items() if needed)}}}"
            )
    kind.check(settings)
    return settings


def target_facts(table: ClientTable, facts_from: int = 1) -> dict[str, Any]:
    """Return everything that a client may send about its target before training, as plain data.
    ``shared`` says whether it is sent whatever ``align`` is.

    Args:
        table: the client's table.
        facts_from: the least number of training rows behind each value that is sent.

    Raises:
        DataError: a target that the task cannot predict.
    """
    from fedlit.tasks import task_named

    settings = task_for(table.task, table.name) or {"name": DEFAULT_TASK}
    task = task_named(settings["name"])
    target = table.training_target
    try:
        facts = task.facts(target, {**settings, "facts_from": facts_from}, table.positive)
    except FedlitError as error:
        raise type(error)(f"client {table.name!r}, {error}") from error
    if table.classes:
        facts = {**facts, "labels": list(table.classes)}
    usual = task.choices.get("targets", ("client",))[0]
    return {**facts, "shared": settings.get("targets", usual) == "pooled"}


def agree_on_task(
    client: str, facts: Mapping[str, Mapping[str, Any]], *, classes: bool = False
) -> Task:
    """Return a client's task, given what all clients send about their targets.

    Args:
        client: the client's name.
        facts: what each client sends, as :func:`target_facts` returns it. Facts of other clients
            count only if they are shared.
        classes: whether classifiers have their classes in common.

    Raises:
        DataError: nothing can be learnt of the target.
    """
    from fedlit.tasks import task_named

    client_facts = facts[client]
    task = client_facts["task"]
    shared = {
        name: sent
        for name, sent in facts.items()
        if sent["task"] == task and (sent["shared"] or (classes and "labels" in sent))
    }
    if client not in shared:
        shared = {client: client_facts}
    return task_named(task).agree(client, shared)


def refuse_several_tasks(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse clients with different tasks if their rows are pooled.

    Raises:
        ConfigError: they have different tasks.
    """
    kinds = {
        (client_facts["task"], client_facts.get("loss")): name
        for name, client_facts in facts.items()
    }
    if len(kinds) > 1:
        tasks_text = " and ".join(
            f"{' of loss '.join(filter(None, kind))} at {name!r}" for kind, name in kinds.items()
        )
        raise ConfigError(
            f"pool: true puts all rows into one table and so needs one task, found {tasks_text}"
        )


def numbers_sent(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return how many numbers a client sends about its target, by their names."""
    from fedlit.tasks import task_named

    task = task_named(facts["task"])
    names = ("count", "mean", "variance", *task.more_facts, *task.fact_lists)
    return {name: np.size(facts[name]) for name in names if name in facts}


def target_of_another(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what another client might say about its target, by which a site plans alone; see
    :meth:`fedlit.tasks.Task.of_another`.
    """
    from fedlit.tasks import task_named

    return task_named(facts["task"]).of_another(facts)


def rows_behind_target(facts: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of training rows behind each number about a client's target, by name."""
    from fedlit.tasks import task_named

    return task_named(facts["task"]).rows_behind(facts)
