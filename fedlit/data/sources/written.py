"""The settings of tables as a configuration writes them: for all clients, or by client's name or
pattern. They are resolved here, once for each client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fedlit.data.reading.options import (
    Conversions,
    Declared,
    Recoding,
)
from fedlit.data.settings import ClientSettings
from fedlit.data.sources.places import Place
from fedlit.data.splitting import ClientSplit, SplitSettings, check_split, split_for
from fedlit.data.table import TaskSettings, check_patterns, first_match
from fedlit.data.targets import check_task, named_columns, task_for
from fedlit.errors import expect

Value = TypeVar("Value")
Targets = str | list[str]


@dataclass(frozen=True)
class ByClient(Generic[Value]):
    """A setting with one value for all clients, or one by client's name or pattern.

    Example:
        >>> ByClient.of("y").at("north"), ByClient.of({"n*": "y", "south": "z"}).at("south")
        ('y', 'z')
        >>> ByClient.of({"n*": "y"}).at("west") is None
        True
    """

    patterns: Mapping[str, Value]

    @classmethod
    def of(cls, setting: Value | Mapping[str, Value]) -> ByClient[Value]:
        """Read a setting, of which a mapping is one by client."""
        return cls(setting if isinstance(setting, Mapping) else {"*": setting})

    def at(self, client: str) -> Value | None:
        """Return the value for a client: that of the first pattern that matches, or None."""
        value: Value | None = first_match(self.patterns, client)
        return value


@dataclass(frozen=True)
class WrittenSettings:
    """The settings of :class:`fedlit.Tables`, which explains them."""

    target: ByClient[Targets | None]
    drop: ByClient[list[str] | None]
    positive: ByClient[Any]
    weight: ByClient[str | None]
    values: ByClient[Mapping[str, Recoding]]
    convert: ByClient[Mapping[str, Conversions]]
    types: Mapping[str, Declared]
    split: SplitSettings | None
    test: float
    validation: float
    task: TaskSettings | None
    unlabelled: str

    def check(self, clients: Sequence[str]) -> None:
        """Refuse settings for clients that do not exist, and a client without a target.

        Raises:
            ConfigError: A pattern matches no client, a client has no target, or a task or a split
                is invalid.
        """
        for key in ("target", "drop", "positive", "weight", "values", "convert"):
            setting: ByClient[Any] = getattr(self, key)
            check_patterns(f"tables: {key}", setting.patterns, clients)
        check_task(self.task, clients)
        for client in clients:
            written = self.target.at(client)
            columns = named_columns(task_for(self.task, client))
            if columns:
                expected = f"none, because the task of client {client!r} names {', '.join(columns)}"
                expect(written is None, "tables: target", expected, written, "leave it out")
            else:
                expected = f"a column for client {client!r}"
                expect(written is not None, "tables: target", expected, self.target.patterns)
        check_split(self.split, clients)

    def named_columns(
        self,
        columns: Mapping[str, Sequence[str]],
        locations: Iterable[Place],
        missing_everywhere: Any,
    ) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Yield each setting, the pattern of its clients, and the columns that it names.

        Args:
            columns: Maps each client to its columns.
            locations: The locations of the tables.
            missing_everywhere: The option ``missing`` of all files.
        """
        yield "types", "*", self.types
        by_client: tuple[tuple[str, Mapping[str, Iterable[str] | None]], ...] = (
            ("drop", self.drop.patterns),
            ("values", self.values.patterns),
            ("convert", self.convert.patterns),
        )
        for key, patterns in by_client:
            for pattern, names in patterns.items():
                yield key, pattern, names or ()
        for pattern, column in self.weight.patterns.items():
            if column is not None:
                yield "weight", pattern, [column]
        for location in locations:
            is_common = location.options.missing == missing_everywhere
            pattern = location.client
            if is_common or location.client not in columns:
                pattern = "*"
            names = [name for name in location.options.missing_by_column if name != "*"]
            yield "missing", pattern, names

    def resolve(self, location: Place) -> ClientSettings:
        """Return the settings of the client at a location.

        The client has a target: :meth:`check` has passed.
        """
        from fedlit.data.schema.recode import recoded_label, words_as_values

        client = location.client
        task = task_for(self.task, client)
        written_target = self.target.at(client) or named_columns(task)
        target = written_target if isinstance(written_target, str) else tuple(written_target)
        targets = (target,) if isinstance(target, str) else target
        values = self.values.at(client) or {}
        positive = self.positive.at(client)
        label_words = set[str]()
        for column, recoding in values.items():
            if column in targets:
                label_words.update(words_as_values(recoding))
                positive = recoded_label(positive, recoding)
        method, split_column = split_for(self.split, client)
        return ClientSettings(
            client,
            target,
            task=task,
            asks_for_task=self.task is None,
            split=ClientSplit(method, split_column, self.test, self.validation),
            unlabelled=self.unlabelled,
            positive=positive,
            label_words=frozenset(label_words),
            options=location.options,
            types=self.types,
            file_types=location.types,
            values=values,
            convert=self.convert.at(client) or {},
            drop=frozenset(self.drop.at(client) or ()),
            weight=self.weight.at(client),
            note=location.note,
        )
