"""The settings of one client's table: no pattern, no mapping by client and no default of another
place is left in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlit.data.reading.options import DEFAULTS, Conversions, Declared, ReadOptions, Recoding
from fedlit.data.splitting import ClientSplit
from fedlit.data.table import TaskSettings
from fedlit.data.targets import outcome_for
from fedlit.outcomes import Outcome


@dataclass(frozen=True)
class ClientSettings:
    """What a configuration says about one client's table.

    Attributes:
        client: the name of the client.
        target: the column to predict, or several of them.
        task: the client's task; None if the configuration names none.
        asks_for_task: whether a person is asked if whole numbers are classes: the configuration
            names no client's task.
        split: how the rows are split.
        unlabelled: whether to ``refuse`` rows without a label, or to ``drop`` them.
        positive: the label that counts as positive, as it is called after ``values``; None if it is
            not set.
        label_words: words, in lower case, that are labels even if they mean missing elsewhere.
        options: how the file is read.
        types: the declared types of columns; the table need not have them.
        file_types: the types that the file's own entry declares; the table must have these columns.
        values: maps columns to what their values become.
        convert: maps columns to how their numbers are converted.
        drop: the columns to leave out.
        weight: the column that says how much each row counts.
        note: a note on the client's file or rows; "" for none.

    Example:
        >>> sorted(ClientSettings("north", ("died", "readmitted"), weight="w").no_features)
        ['died', 'readmitted', 'w']
    """

    client: str
    target: str | tuple[str, ...]
    task: TaskSettings | None = None
    asks_for_task: bool = True
    split: ClientSplit = field(default_factory=ClientSplit)
    unlabelled: str = "refuse"
    positive: Any = None
    label_words: frozenset[str] = frozenset()
    options: ReadOptions = DEFAULTS
    types: Mapping[str, Declared] = field(default_factory=dict)
    file_types: Mapping[str, Declared] = field(default_factory=dict)
    values: Mapping[str, Recoding] = field(default_factory=dict)
    convert: Mapping[str, Conversions] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    weight: str | None = None
    note: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def outcome(self) -> type[Outcome]:
        """What is predicted of a row."""
        return outcome_for(self.task, self.client)

    @property
    def no_features(self) -> frozenset[str]:
        """The columns that are no features."""
        weight = () if self.weight is None else (self.weight,)
        return self.drop.union(self.targets, weight)
