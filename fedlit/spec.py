"""What a client is before it is built: the data side's description, from which the network takes its sizes."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlit.errors import ConfigError
from fedlit.tasks import Classification, Task
from fedlit.tasks.metrics import Site

__all__ = ["ClientSpec", "Site", "own_share"]


@dataclass(frozen=True)
class ClientSpec:
    """One client's description.

    Attributes:
        name: the client's name.
        features: names of the input columns, in the order of the input tensor's columns.
        classes: labels in the source's own values, in the order of the class indices. With two, the second is the
            positive class. Empty where no label is predicted.
        rows: number of rows per split.
        sites: where the client is scored.
        class_rows: training rows of each class.
        input_mean: mean of each input over the training rows.
        input_scale: standard deviation of each input over the training rows, 1 where it is 0.
        absent: inputs that the client's table does not have: a common space fills them with 0.
        common: group of clients that share columns → the inputs that these columns became, in an order that is the same
            at all of them, of the groups that this client is in; None if ``data.common`` does not ask for any.
        concept: which of several concepts its labels follow, where an experiment knows; only to judge by.
        task: what is predicted; classification into ``classes`` if None is given.

    Example:
        >>> spec = ClientSpec("cleveland", ("age", "sex"), (0, 1), {"train": 182}, ())
        >>> spec.num_features, spec.num_outputs
        (2, 1)
    """

    name: str
    features: tuple[str, ...]
    classes: tuple[Any, ...]
    rows: Mapping[str, int]
    sites: tuple[Site, ...]
    class_rows: tuple[int, ...] = ()
    input_mean: tuple[float, ...] = ()
    input_scale: tuple[float, ...] = ()
    absent: tuple[str, ...] = ()
    common: Mapping[str, tuple[str, ...]] | None = None
    concept: str | None = None
    task: Task = None  # type: ignore[assignment]  # never None once made

    def __post_init__(self) -> None:
        if self.task is None:
            object.__setattr__(self, "task", Classification(self.classes, self.class_rows))

    @property
    def unique(self) -> tuple[str, ...]:
        """The inputs that the client's own table has and no group's common columns are."""
        shared = {name for names in (self.common or {}).values() for name in names} | set(self.absent)
        return tuple(name for name in self.features if name not in shared)

    @property
    def num_features(self) -> int:
        """Width of the input."""
        return len(self.features)

    @property
    def num_outputs(self) -> int:
        """Width of the output, as the task has it: of a classifier a logit per class, or a single one (of the positive
        class) where there are two.
        """
        return self.task.outputs


def own_share(values: float | Mapping[str, float], client: str, key: str) -> float:
    """A client's value of a setting that is one share in [0, 1] for all, or one by client's name or pattern: the first
    that matches.

    Raises:
        ConfigError: none for this client, or no share.

    Example:
        >>> own_share({"cleve*": 0.25, "*": 0.5}, "cleveland", "alpha")
        0.25
    """
    if isinstance(values, Mapping):
        found = [value for pattern, value in values.items() if fnmatch.fnmatchcase(client, pattern)]
        if not found:
            raise ConfigError(f"{key}: expected a value for client {client!r}, found {dict(values)}; add '*': 0.5")
        values = found[0]
    if not 0 <= values <= 1:
        raise ConfigError(f"{key}: expected a share in [0, 1], found {values}")
    return float(values)
