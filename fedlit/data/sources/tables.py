"""The user's tables: a file, a sheet or a query for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedlit.data.reading import Raw, read_table
from fedlit.data.reading.options import check_declared, conversions_by_client, values_by_client
from fedlit.data.sources.base import Source, choose_clients
from fedlit.data.sources.client_rows import rows_by_client
from fedlit.data.sources.client_tables import client_tables
from fedlit.data.sources.places import Files, Place, places_of
from fedlit.data.sources.table_checks import check_named
from fedlit.data.sources.table_notes import with_task_notes
from fedlit.data.sources.written import ByClient, WrittenSettings
from fedlit.data.splitting import SplitSettings, check_split
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.errors import ConfigError, expect

if TYPE_CHECKING:
    from fedlit.names import Share


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
            list of columns with two values each means ``task: multi_label``. None if the task
            names its columns.
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
        task: what is predicted: ``classification``, ``regression``, ``counts``, ``multi_label``,
            ``{name: regression, loss: huber, targets: pooled}``, or ``{name: survival, time: days,
            event: died, unit: day, entry: start, horizons: [1y, 5y]}``; for all clients, or by
            client's name or pattern. If None, classification, or multi_label if the target is a
            list.

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
    target: str | list[str] | dict[str, str | list[str]] | None = None
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
        rows_of, file_rows = rows_by_client(raw, self.client_column, location, self.least_rows)
        written = self._settings_by_client
        written.check(list(rows_of))
        columns = {client: rows.frame.columns.tolist() for client, (rows, _) in rows_of.items()}
        named = written.named_columns(columns, [location], (self.read or {}).get("missing"))
        check_named(columns, named)
        raws = {
            client: (rows, written.resolve(client_location))
            for client, (rows, client_location) in rows_of.items()
        }
        rows_of.clear()  # The memory of each is free once its table is made.
        return with_task_notes(client_tables(raws, seed, file_rows))

    def some(
        self, clients: Sequence[str], seed: int, share: Share | None = None
    ) -> list[ClientTable]:
        """Read some clients' tables. If each client has a file, other clients' files are not
        read.
        """
        if self.client_column is not None:
            return super().some(clients, seed, share)
        locations = self._locations()
        chosen = choose_clients(clients, list(locations), self.name)
        read = {client: self._read(locations[client]) for client in chosen}
        columns: Mapping[str, Sequence[str]] = {
            client: raw.frame.columns.tolist() for client, raw in read.items()
        }
        if share is not None:
            columns = share("names of columns", columns)
        written = self._settings_by_client
        # Unless all tables are read, a column of the settings may be another client's.
        if len(columns) == len(locations):
            missing = (self.read or {}).get("missing")
            named = written.named_columns(columns, locations.values(), missing)
            check_named(columns, named)
        raws = {client: (raw, written.resolve(locations[client])) for client, raw in read.items()}
        read.clear()  # As above.
        return client_tables(raws, seed)

    def sizes(self) -> dict[str, int] | None:
        """Return the size of each client's file in bytes; None if all clients are in one file or in
        a database.
        """
        locations = self._locations()
        has_url = any("://" in location.path for location in locations.values())
        if self.client_column is not None or has_url:
            return None
        return {name: location.find().stat().st_size for name, location in locations.items()}

    @property
    def _settings_by_client(self) -> WrittenSettings:
        """The settings by client's name or pattern."""
        return WrittenSettings(
            target=ByClient.of(self.target),
            drop=ByClient.of(self.drop),
            positive=ByClient.of(self.positive),
            weight=ByClient.of(self.weight),
            values=ByClient(values_by_client(self.values or {})),
            convert=ByClient(conversions_by_client(self.convert or {})),
            types=self.types or {},
            split=self.split,
            test=self.test,
            validation=self.validation,
            task=self.task,
            unlabelled=self.unlabelled,
        )

    def _locations(self) -> dict[str, Place]:
        """Return each client's location, by name."""
        locations = {
            location.client: location for location in places_of(self.files, self.read, self.root)
        }
        if self.client_column is None:
            self._settings_by_client.check(list(locations))
        elif len(locations) != 1:
            raise ConfigError(
                "tables: client_column: expected one file that holds all clients' rows, found "
                f"{len(locations)} files"
            )
        return locations

    def _read(self, location: Place) -> Raw:
        source = location.path if "://" in location.path else str(location.find())
        return read_table(source, location.options, location.client)
