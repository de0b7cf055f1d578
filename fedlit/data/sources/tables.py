"""The user's tables: a file, a sheet or a query for each client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fedlit.data.note import Note, prefixed
from fedlit.data.reading import Raw, read_table
from fedlit.data.reading.options import (
    Conversions,
    Declared,
    ReadOptions,
    Recoding,
    check_declared,
    conversions_by_client,
    values_by_client,
)
from fedlit.data.sources.base import Source, check_tables, choose_clients
from fedlit.data.sources.client_rows import columns_by_client, rows_by_client
from fedlit.data.sources.places import Files, Place, places_of
from fedlit.data.sources.recoded import converted, recoded
from fedlit.data.sources.table_checks import check_named, check_required
from fedlit.data.sources.table_notes import row_notes, with_task_notes
from fedlit.data.splitting import SplitSettings, check_split, groups_of, split_for, split_rows
from fedlit.data.table import ClientTable, TaskSettings, check_patterns, first_match
from fedlit.data.targets import check_task, outcome_for, task_for
from fedlit.errors import ConfigError, expect

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.labels import Labels
    from fedlit.data.schema.schema import Schema
    from fedlit.names import Share

_BY_CLIENT = ("target", "drop", "positive", "weight")
"""Settings that may be a mapping by client."""


@dataclass(eq=False)
class Tables(Source):
    """Your own tables: a file, a sheet or a query for each client.

    The type of each column is detected and reported: a number, a category, yes or no, a date.
    Identifiers, free text and constants are left out, with a note. ``types`` changes this. By
    default, splits are stratified by class.

    - Clients: one for each file you name, or for each value of client_column.
    - Columns: their types are detected and reported; types and drop change them.
    - Target: the column you name.
    - Splits: by the run's seed, 20 % test, then 10 % of the rest validation, stratified by class;
      or by group, time or column.

    Args:
        files: maps each client's name to its file, or to ``{path: FILE, …}`` with the options for
            reading this file (see :class:`fedlit.data.reading.ReadOptions`) and the ``types`` of
            its columns. A path is that of a CSV file (also compressed), a Parquet or Excel file, or
            the URL of a database with a ``query``. Relative paths are searched in the working
            directory, then in ``root``, then in the cache. Alternatively a folder or a pattern, in
            which each file is a client; or one file, with ``client_column``.
        target: the column to predict; one name for all clients, or by client's name or pattern. A
            list of columns with two values each means ``task: multi_label``.
        client_column: the column of one table that names the client of each row.
        least_rows: with ``client_column``, clients with fewer rows are left out, with a note.
        read: the options for reading all files: ``sep``, ``decimal``, ``encoding``, ``names``,
            ``missing``, ``rename``, …
        types: the types of columns: ``numeric``, ``categorical``, ``boolean``, ``date``,
            ``identifier``, ``text``, ``drop``; a list is the order of an ordinal column; ``{date:
            '%d/%m/%Y'}``.
        values: what values of columns become, before types are found, also of the target: ``{sex:
            {1: M, 2: F}, smoker: {"": no}}``, where ``""`` is an empty cell and ``null`` no value;
            by column for all clients, or by client's name or pattern.
        convert: how numbers are converted to another unit, also of the target: ``{weight: {lb:
            0.45359237}}`` multiplies those that are written with ``lb``; ``"*"`` stands for all
            other numbers, and ``[0.5556, -17.78]`` also adds an offset; by column for all clients,
            or by client's name or pattern.
        drop: the columns to leave out; one list for all clients (each drops the columns that it
            has), or by client's name or pattern.
        weight: the column that says how much each row counts in loss and scores, which is no
            feature; one for all clients, or by client's name or pattern. A row of weight 2 counts
            as two rows.
        root: a folder that is searched for relative paths after the working directory;
            ``$FEDLIT_DATA`` if None.
        split: ``stratified``, ``random``, ``{group: COLUMN}`` (rows of one group are in one split),
            ``{time: COLUMN}`` (the latest rows are test rows) or ``{column: COLUMN}`` (train,
            validation or test); for all clients, or by client's name or pattern. If None,
            stratified by class if there are classes, otherwise random.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        unlabelled: whether to ``refuse`` rows without a label, or to ``drop`` them.
        positive: the label that counts as positive if there are two, spelled as in the file or as
            ``values`` maps it; the larger one if None; one for all clients, or by client's name or
            pattern.
        task: what is predicted: ``classification``, ``regression``, ``counts``, ``multi_label`` or
            ``{name: regression, loss: huber, targets: pooled}``; for all clients, or by client's
            name or pattern. If None, classification, or multi_label if the target is a list.

    Example::

        source = Tables(
            files={"north": "north.csv", "south": {"path": "south.csv", "sep": ";", "decimal":
            ","}}, target={"north": "readmitted", "south": "outcome"},
            types={"ward": "categorical"},
            drop=["patient_id"],
        )
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "tables"

    files: Files
    target: str | list[str] | dict[str, str | list[str]]
    client_column: str | None = None
    least_rows: int = 0
    read: dict[str, Any] | None = None
    types: dict[str, Any] | None = None
    values: dict[str, dict[str, Any]] | None = None
    convert: dict[str, dict[str, Any]] | None = None
    drop: list[str] | dict[str, list[str]] | None = None
    weight: str | dict[str, str] | None = None
    root: str | None = None
    split: SplitSettings | None = None
    test: float = 0.2
    validation: float = 0.1
    unlabelled: str = "refuse"
    positive: Any = None
    task: TaskSettings | None = None

    def __post_init__(self) -> None:
        """Check the arguments as far as this is possible without reading a file."""
        super().__post_init__()
        for column, declared in (self.types or {}).items():
            check_declared(column, declared)
        values_by_client(self.values or {})
        conversions_by_client(self.convert or {})
        is_valid = self.unlabelled in ("refuse", "drop")
        expect(is_valid, "unlabelled", "refuse or drop", self.unlabelled)
        check_split(self.split)
        if isinstance(self.files, Mapping):
            self._locations()

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        if self.client_column is None:
            return with_task_notes(self.some(list(self._locations()), seed))
        (location,) = self._locations().values()
        raw = self._read(location)
        raws = rows_by_client(raw, self.client_column, location, self.least_rows)
        self._check_clients(list(raws))
        columns = columns_by_client(raws)
        check_named(columns, self._named_columns(columns, [location]))
        return with_task_notes(self._tables(raws, seed))

    def some(
        self, clients: Sequence[str], seed: int, share: Share | None = None
    ) -> list[ClientTable]:
        """Read some clients' tables. If each client has a file, other clients' files are not
        read.
        """
        if self.client_column is not None:
            return super().some(clients, seed, share)
        locations = self._locations()
        raws = dict[str, tuple[Raw, Place]]()
        for client in choose_clients(clients, list(locations), self.name):
            raws[client] = (self._read(locations[client]), locations[client])
        columns: Mapping[str, Sequence[str]] = columns_by_client(raws)
        if share is not None:
            columns = share("names of columns", columns)
        # Unless all tables are read, a column of the settings may be another client's.
        if len(columns) == len(locations):
            check_named(columns, self._named_columns(columns, locations.values()))
        return self._tables(raws, seed)

    def sizes(self) -> dict[str, int] | None:
        """Return the size of each client's file in bytes; None if all clients are in one file or in
        a database.
        """
        locations = self._locations()
        has_url = any("://" in location.path for location in locations.values())
        if self.client_column is not None or has_url:
            return None
        return {name: location.find().stat().st_size for name, location in locations.items()}

    # ------------------------------------------------------------------ settings

    def _locations(self) -> dict[str, Place]:
        """Return each client's location, by name."""
        locations = {
            location.client: location for location in places_of(self.files, self.read, self.root)
        }
        if self.client_column is None:
            self._check_clients(list(locations))
        elif len(locations) != 1:
            raise ConfigError(
                "tables: client_column: expected one file that holds all clients' rows, found "
                f"{len(locations)} files"
            )
        return locations

    def _check_clients(self, clients: Sequence[str]) -> None:
        """Refuse settings for clients that do not exist."""
        for key in _BY_CLIENT:
            value = getattr(self, key)
            if isinstance(value, dict):
                check_patterns(f"tables: {key}", value, clients)
        check_patterns("tables: values", values_by_client(self.values or {}), clients)
        check_patterns("tables: convert", conversions_by_client(self.convert or {}), clients)
        for client in clients:
            has_target = self._of("target", client) is not None
            expect(has_target, "tables: target", f"a column for client {client!r}", self.target)
        check_task(self.task, clients)
        check_split(self.split, clients)

    def _named_columns(
        self, columns: Mapping[str, Sequence[str]], locations: Iterable[Place]
    ) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Yield each setting, the pattern of its clients, and the columns that it names."""
        yield "types", "*", self.types or ()
        drop = self.drop if isinstance(self.drop, dict) else {"*": self.drop or []}
        by_client: tuple[tuple[str, Mapping[str, Iterable[str]]], ...] = (
            ("drop", drop),
            ("values", values_by_client(self.values or {})),
            ("convert", conversions_by_client(self.convert or {})),
        )
        for key, setting in by_client:
            for pattern, names in setting.items():
                yield key, pattern, names
        weight = self.weight if isinstance(self.weight, dict) else {"*": self.weight}
        for pattern, column in weight.items():
            if column is not None:
                yield "weight", pattern, [column]
        missing_everywhere = (self.read or {}).get("missing")
        for location in locations:
            is_common = location.options.missing == missing_everywhere
            pattern = location.client
            if is_common or location.client not in columns:
                pattern = "*"
            yield (
                "missing",
                pattern,
                [name for name in location.options.missing_by_column if name != "*"],
            )

    def _of(self, key: str, client: str) -> Any:
        """Return the value of a setting for a client."""
        value = getattr(self, key)
        return first_match(value, client) if isinstance(value, dict) else value

    def _values(self, client: str) -> dict[str, Recoding]:
        """Return what values of a client's columns become."""
        return first_match(values_by_client(self.values or {}), client) or {}

    def _conversions(self, client: str) -> dict[str, Conversions]:
        """Return how the numbers of a client's columns are converted."""
        return first_match(conversions_by_client(self.convert or {}), client) or {}

    def _targets(self, client: str) -> list[str]:
        target = self._of("target", client)
        return [target] if isinstance(target, str) else list(target)

    # ------------------------------------------------------------------ one table

    def _read(self, location: Place) -> Raw:
        source = location.path if "://" in location.path else str(location.find())
        return read_table(source, location.options, location.client)

    def _tables(self, raws: dict[str, tuple[Raw, Place]], seed: int) -> list[ClientTable]:
        if self.values:
            raws = recoded(raws, self._values, together=self.client_column is not None)
        if self.convert:
            raws = converted(raws, self._conversions)
        schema = None
        notes = list[Note]()
        if self.client_column is not None:
            schema, notes = self._common_schema(raws)
        tables = []
        for client in list(raws):
            raw, location = raws.pop(client)  # Its memory is free once the table is made.
            tables.append(self._table(client, raw, location, seed, schema))
        tables[0] = replace(tables[0], notes=(*notes, *tables[0].notes))
        return check_tables(tables)

    def _common_schema(self, raws: dict[str, tuple[Raw, Place]]) -> tuple[Schema, list[Note]]:
        """Return the schema of one file's columns, which is the same at all clients, and notes."""
        import pandas as pd

        rows = pd.concat([raw.frame for raw, _ in raws.values()]).sort_index()
        unused = set[Any]()
        for client in raws:
            unused.update(self._targets(client), [self._of("weight", client)])
        unused |= set.intersection(*({*(self._of("drop", client) or ())} for client in raws))
        used = rows[[name for name in rows if name not in unused]]
        _, location = next(iter(raws.values()))
        schema, _, notes = self._find(list(raws), used, location)
        return schema, notes

    def _find(
        self, clients: list[str], rows: pd.DataFrame, location: Place
    ) -> tuple[Schema, pd.DataFrame, list[Note]]:
        """Return the schema of columns, the typed rows, and notes."""
        from fedlit.data.schema.recode import words_as_values
        from fedlit.data.schema.schema import Schema

        types: dict[str, Declared] = {
            name: declared for name, declared in (self.types or {}).items() if name in rows
        }
        for client in clients:
            method, by = split_for(self.split, client)
            if method in ("group", "column") and by in rows:
                # New rows come without such a column, whereas a time may be a feature.
                types[by] = "identifier" if method == "group" else "drop"
        options = location.options
        missing = location.options.missing
        # The target's words are its own, and the settings of all files need not fit each.
        if isinstance(missing, dict):
            columns = {
                name: values for name, values in missing.items() if name == "*" or name in rows
            }
            options = replace(options, missing=columns)
        not_missing: dict[str, dict[str, str]] = {}
        for client in clients:
            for column, recoding in self._values(client).items():
                not_missing.setdefault(column, {}).update(words_as_values(recoding))
        head = f"client {clients[0]!r}"
        return Schema.find(rows, {**types, **location.types}, options, head, not_missing)

    def _table(
        self, client: str, raw: Raw, location: Place, seed: int, schema: Schema | None
    ) -> ClientTable:
        """Return one client's table. ``schema`` is given if its columns were examined together with
        those of other clients.
        """
        from fedlit.data.labels import read_weights
        from fedlit.data.sources.keys import hashed_keys

        options = location.options
        head = f"client {client!r}"
        method, by = split_for(self.split, client)
        self._check_table(client, raw, location, by)
        labels = self._labels(client, raw.frame, options)
        rows = raw.frame if labels.labelled.all() else raw.frame[labels.labelled]
        weight = self._of("weight", client)
        no_features = {*self._targets(client), weight, *(self._of("drop", client) or ())}
        used = rows.drop(columns=[name for name in rows if name in no_features])
        schema, features, column_notes = self._features(client, used, location, schema)
        split_column = rows[by] if by else None
        has_classes = isinstance(self._of("target", client), str)
        has_classes = has_classes and outcome_for(self.task, client).one_label
        splits, split_notes = split_rows(
            client,
            method,
            labels.target,
            split_column,
            seed,
            self.test,
            self.validation,
            has_classes,
            schema.columns.get(by),
        )
        groups = None
        if split_column is not None and method == "group":
            groups = groups_of(split_column, head)
        weights = None
        if weight is not None:
            weights = read_weights(head, rows[weight], options)
        table = ClientTable(
            name=client,
            features=features,
            target=labels.target,
            splits=splits,
            groups=groups,
            categorical=schema.categorical(features),
            positive=labels.positive,
            task=task_for(self.task, client),
            schema=schema,
            keys=hashed_keys(schema, used, options),
            unit=labels.unit,
            weights=weights,
        )
        notes = [*filter(None, [location.note]), *raw.notes]
        notes += [prefixed(client, note) for note in column_notes]
        notes += [*labels.notes, *split_notes, *row_notes(table)]
        return replace(table, notes=tuple(notes))

    def _features(
        self, client: str, rows: pd.DataFrame, location: Place, common: Schema | None
    ) -> tuple[Schema, pd.DataFrame, list[Note]]:
        """Return the schema of a client's columns, the typed rows, and notes.

        Args:
            client: The name of the client.
            rows: The raw rows, with the columns that become features.
            location: The location of the rows.
            common: The schema of the columns of all clients, if they were examined together.
        """
        if common is None:
            schema, features, notes = self._find([client], rows, location)
        else:
            columns = {name: column for name, column in common.columns.items() if name in rows}
            schema = replace(common, columns=columns)
            features, notes = schema.apply(rows, f"client {client!r}")
        # New rows have the values and the units of the file.
        return schema.with_values(self._values(client), self._conversions(client)), features, notes

    def _labels(self, client: str, frame: pd.DataFrame, options: ReadOptions) -> Labels:
        """Read the target of a client."""
        from fedlit.data.labels import read_target
        from fedlit.data.schema.recode import recoded_label, words_as_values

        targets = self._targets(client)
        is_single = isinstance(self._of("target", client), str)
        target = frame[targets[0] if is_single else targets]
        not_missing = set[str]()
        positive = self._of("positive", client)
        for column, recoding in self._values(client).items():
            if column in targets:
                not_missing.update(words_as_values(recoding))
                positive = recoded_label(positive, recoding)
        return read_target(
            client, target, self.task, self.unlabelled, positive, options, not_missing
        )

    def _check_table(self, client: str, raw: Raw, location: Place, by: str) -> None:
        """Refuse a table without its target or the column to split by, and columns with
        contradictory settings.
        """
        targets = self._targets(client)
        weight = self._of("weight", client)
        required = [*(("target", target) for target in targets), ("split", by), ("weight", weight)]
        check_required(raw, required)
        settings = {
            "drop": self._of("drop", client) or (),
            "types": [*(self.types or ()), *location.types],
            "split": [by],
            "weight": [weight],
        }
        expected = f"other columns than the target of client {client!r}"
        for key, columns in settings.items():
            both = {*columns} & {*targets}
            expect(not both, f"tables: {key}", expected, min(both, default=""), "take it out")
