"""The local baselines that a study may name: a model of a task, any class, or the mean of trees and
a linear model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedlit.errors import expect, must_be_known
from fedlit.study.method import NAME
from fedlit.tasks import BASELINES, Task
from fedlit.tasks.go_alone import LINEAR, TREES, TREES_AND_LINEAR, GoAlone, is_any_model

Models = Mapping[str, Mapping[str, Any] | None]


def names_alone() -> list[str]:
    """Return the name of each local baseline that a study may have without describing it."""
    return [*BASELINES, TREES_AND_LINEAR]


def labels_alone(baselines: Models, tasks: Iterable[type[Task]]) -> dict[str, str]:
    """Map each local baseline to its label for clients with these tasks. Where the tasks have
    unlike labels, the label is the name.

    Args:
        baselines: the baselines of the study.
        tasks: the tasks of its clients.

    Example:
        >>> from fedlit.tasks import Classification, Survival
        >>> labels_alone({"mean": None}, [Survival])
        {'mean': 'Kaplan–Meier of its own rows'}
        >>> labels_alone({"mean": None}, [Classification, Survival])
        {'mean': 'Mean'}
    """
    kinds = list(tasks)
    labels = dict[str, str]()
    for name, settings in baselines.items():
        label = name.replace("_", " ").capitalize()
        if is_any_model(settings):
            label = (settings or {}).get("label") or name
        elif name == TREES_AND_LINEAR:
            label = "Trees and linear, mean"
        else:
            models = [task.go_alone[name] for task in kinds if name in task.go_alone]
            of_tasks = {model.label for model in models}
            if len(of_tasks) == 1:
                (label,) = of_tasks
        labels[name] = label
    return labels


def check_alone(baselines: Models, methods: Iterable[str], tasks: Mapping[str, type[Task]]) -> None:
    """Refuse local baselines that no client can have, and names that are already taken.

    Args:
        baselines: the baselines of the study.
        methods: the names of the study's methods.
        tasks: maps each client to its task.

    Raises:
        ConfigError: a baseline or a name is not allowed.
    """
    kinds = {task.name: task for task in tasks.values()}
    models_of_tasks = dict[str, None]()
    for task in kinds.values():
        models_of_tasks |= dict.fromkeys(task.go_alone)
    models_of_tasks[TREES_AND_LINEAR] = None
    custom = [name for name, settings in baselines.items() if is_any_model(settings)]
    taken = set(names_alone())
    for key, names in (("methods", methods), ("baselines", custom)):
        for name in names:
            free = bool(NAME.fullmatch(name)) and name not in taken
            expect(
                free,
                key,
                "names of letters, digits, '_' and '-' that nothing else in the study has",
                name,
            )
        taken |= set(names)
    must_be_known("baselines", [name for name in baselines if name not in custom], models_of_tasks)
    for name, settings in baselines.items():
        if name in custom:
            if not any(model_for(name, settings, task) for task in kinds.values()):
                kind = GoAlone.read(name, settings or {}).kind.lower()
                expect(False, f"baselines.{name}", f"a model for {' or '.join(kinds)}", kind)
            continue
        for key, values in (settings or {}).items():
            mean = name == TREES_AND_LINEAR
            right = isinstance(values, list) and bool(values) and not mean
            expected = "nothing: give settings to its parts" if mean else "a list of values"
            expect(right, f"baselines.{name}.{key}", expected, values)
    if TREES_AND_LINEAR in baselines:
        linear = " or ".join(name for name in LINEAR if name in models_of_tasks)
        both = f"{TREES[0]} and {linear} beside it, whose mean it is"
        key = f"baselines.{TREES_AND_LINEAR}"
        expect(all(means_of(baselines)), key, both, [*baselines], "add what is missing")


def default_models(tasks: Iterable[type[Task]]) -> dict[str, None]:
    """Return the local baselines of a study that names none: all except the mean of the client's
    own rows, and the mean of trees and a linear model if both exist.
    """
    names = dict[str, None]()
    for task in tasks:
        names |= {name: None for name, model in task.go_alone.items() if not model.on_request}
    if all(means_of(names)):
        names[TREES_AND_LINEAR] = None
    return names


def means_of(baselines: Iterable[str]) -> list[list[str]]:
    """Return the tree models and the linear models of which :data:`TREES_AND_LINEAR` is the mean.
    Each client has one of each.
    """
    names = list(baselines)
    trees = [name for name in names if name in TREES]
    linear = [name for name in names if name in LINEAR]
    return [trees, linear]


def model_for(
    name: str, settings: Mapping[str, Any] | None, task: type[Task] | Task
) -> GoAlone | None:
    """Return the local baseline of this name for a task, or None if the task has none.

    Args:
        name: the name in the study.
        settings: the study's entry under this name: settings, or a class.
        task: the client's task.
    """
    if is_any_model(settings):
        return GoAlone.read(name, settings or {}).for_outcome(task.outcome_type)
    return task.go_alone.get(name)
