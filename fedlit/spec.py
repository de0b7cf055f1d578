"""The description of a client before its network is built. The network takes its sizes from it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlit.errors import ConfigError
from fedlit.inputs import Input
from fedlit.tasks import Task, default_task, task_from, task_state
from fedlit.tasks.metrics import Site
from fedlit.types import Label, State


@dataclass(frozen=True)
class ClientSpec:
    """The description of a client.

    Attributes:
        name: the client's name.
        features: names of the input columns, in the order of the input tensor's columns.
        classes: labels in the source's own values, in the order of the class indices. With two, the
            second is the positive class. Empty where no label is predicted.
        rows: number of rows per split.
        sites: the sites on which the client is scored.
        class_rows: the number of training rows of each class.
        absent: inputs that the client's table does not have: a common space fills them with 0.
        common: maps each of the client's groups of clients that share columns to the inputs that
            these columns became, in an order that is the same at all clients of the group; None if
            ``data.common`` does not ask for groups.
        concept: the concept that its labels follow, if an experiment knows it; used only for
            evaluation.
        task: what is predicted; classification into ``classes`` if None is given.
        inputs: what is known of each input, in the order of ``features``; empty where nothing is.
        facts_from: the least number of training rows that stand behind each value that the client
            sends of its table.

    Example:
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {"train": 182}, ())
        >>> spec.num_features, spec.num_outputs
        (2, 1)
    """

    name: str
    features: tuple[str, ...]
    classes: tuple[Label, ...]
    rows: Mapping[str, int]
    sites: tuple[Site, ...]
    class_rows: tuple[int, ...] = ()
    absent: tuple[str, ...] = ()
    common: Mapping[str, tuple[str, ...]] | None = None
    concept: str | None = None
    task: Task = None  # type: ignore[assignment]  # never None once made
    inputs: tuple[Input, ...] = ()
    facts_from: int = 1

    def __post_init__(self) -> None:
        if self.task is None:
            object.__setattr__(self, "task", default_task(self.classes, self.class_rows))

    def state_dict(self) -> State:
        """Return the description as plain data. A checkpoint keeps it, so that a client can be
        built without its table.
        """
        return {
            **vars(self),
            "sites": [vars(site) for site in self.sites],
            "inputs": [vars(client_input) for client_input in self.inputs],
            "task": task_state(self.task),
        }

    @classmethod
    def from_state(cls, state: State) -> ClientSpec:
        """Restore a description from its ``state_dict``.

        Example:
            >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {"train": 182}, (), common={"all": ("age",)})
            >>> ClientSpec.from_state(spec.state_dict()) == spec
            True
        """
        fields = _whole({key: value for key, value in state.items() if key != "task"})
        fields["sites"] = tuple(Site(**site) for site in fields["sites"])
        fields["inputs"] = tuple(Input(**entry) for entry in fields["inputs"])
        return cls(**fields, task=task_from(state["task"]))

    @property
    def output_labels(self) -> tuple[str, ...]:
        """What each output stands for: a class, both classes if a single output distinguishes them,
        or the target. Outputs of several clients correspond if they have the same label.

        Example:
            >>> ClientSpec("cleveland", ("age", "sex"), ("well", "ill"), {}, ()).output_labels
            ('well|ill',)
        """
        names = self.task.output_names
        if len(names) < len(self.classes):
            return ("|".join(map(str, self.classes)),)
        return tuple(map(str, names))

    @property
    def unique(self) -> tuple[str, ...]:
        """The inputs that the client's table has and that belong to no group's common columns."""
        shared = set(self.absent).union(*(self.common or {}).values())
        return tuple(name for name in self.features if name not in shared)

    @property
    def num_features(self) -> int:
        """The width of the input."""
        return len(self.features)

    @property
    def num_outputs(self) -> int:
        """The width of the output, as the task defines it. A classifier has a logit for each class,
        or a single one (for the positive class) if there are two classes.
        """
        return self.task.outputs


def _whole(value: Any) -> Any:
    """Restore tuples from lists."""
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_whole(item) for item in value)
    return value


def own_share(values: float | Mapping[str, float], client: str, key: str) -> float:
    """Return a client's value of a setting that is either one share in [0, 1] for all clients, or
    one for each client's name or pattern. The first pattern that matches counts.

    Raises:
        ConfigError: there is no value for this client, or it is no share.

    Example:
        >>> own_share({"cleve*": 0.25, "*": 0.5}, "cleveland", "alpha")
        0.25
    """
    if isinstance(values, Mapping):
        matches = [
            value for pattern, value in values.items() if fnmatch.fnmatchcase(client, pattern)
        ]
        if not matches:
            raise ConfigError(
                f"{key}: expected a value for client {client!r}, found {dict(values)}; add '*': 0.5"
            )
        values = matches[0]
    if not 0 <= values <= 1:
        raise ConfigError(f"{key}: expected a share in [0, 1], found {values}")
    return float(values)
