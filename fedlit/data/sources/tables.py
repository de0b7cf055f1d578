"""One's own tables: a file, a sheet or a query for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from fedlit.data.note import Note, behind
from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.data.schema.declared import Declared, check_declared
from fedlit.data.sources.base import Source, check_fractions, check_names, check_tables
from fedlit.data.sources.places import Files, Place, client_name, find_file, places_of
from fedlit.data.splitting import SplitSettings, check_split, groups_of, own_split, same_rows, split_column, split_rows
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.target import check_task, is_classification, own_task
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.column import Column
    from fedlit.data.schema.schema import Schema
    from fedlit.names import Share

__all__ = ["Tables"]

_FEW_ROWS = 10  # validation rows by which nothing should be chosen


class Tables(Source):
    """Your own tables: a file, a sheet or a query for each client.

    What each column holds is found and said: a number, a category, yes or no, a date. Identifiers, free text and
    constants are left out, with a note. ``types`` says otherwise. Rows of a class are dealt to all splits alike.

    - Clients: one for each file you name, or for each value of client_column.
    - Columns: what they hold is found and said; types, categorical and drop say otherwise.
    - Target: the column you name.
    - Splits: by the run's seed, 20 % test, then 10 % of the rest validation, each class dealt alike; or by group,
      time or column.

    Args:
        files: each client's name and its file; or its name and ``{path: FILE, …}`` with how that file is read (see
            :class:`fedlit.data.reading.ReadOptions`) and the ``types`` of its columns. A path is one of CSV (also
            compressed), Parquet, Feather or Excel, or the URL of a database with a ``query``. Relative paths are looked
            up in the working directory, then in ``root``, then in the cache. Or a folder or pattern: a client for each
            file. Or one file, with ``client_column``.
        target: the column to predict; one name for all clients, or one for each. A list of columns of two values each
            is ``task: multi_label``.
        client_column: the column of one table that names the client of each row.
        least_rows: with ``client_column``, clients of fewer rows are left out, with a note.
        read: how all files are read: ``sep``, ``decimal``, ``encoding``, ``names``, ``missing``, ``rename``, …
        types: what columns hold: ``numeric``, ``categorical``, ``boolean``, ``date``, ``identifier``, ``text``,
            ``drop``; a list is the order of an ordinal column; ``{date: '%d/%m/%Y'}``.
        categorical: columns of numbers that hold categories; one list for all clients (each uses the ones it has), or
            one for each.
        drop: columns to leave out; one list for all clients (each drops the ones it has), or one for each.
        root: a folder in which relative paths are looked up after the working directory; ``$FEDLIT_DATA`` if None.
        encoding: how the text of the files is encoded; found if None.
        split: ``stratified``, ``random``, ``{group: COLUMN}`` (rows of one group on one side), ``{time: COLUMN}`` (the
            latest rows for test) or ``{column: COLUMN}`` (train, validation or test); for all clients, or by client's
            name or pattern. By class where there are classes, else random, if None.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        unlabelled: ``refuse`` rows without a label, or ``drop`` them.
        positive: the label that counts as positive where there are two; the larger one if None; one for all clients, or
            one for each.
        task: what is predicted: ``classification``, ``regression``, ``counts``, ``multi_label`` or ``{name:
            regression, loss: huber, targets: pooled}``; for all clients, or by client's name or pattern. If None,
            classification, or multi_label where the target is a list.

    Example::

        source = Tables(
            files={"north": "north.csv", "south": {"path": "south.csv", "sep": ";", "decimal": ","}},
            target={"north": "readmitted", "south": "outcome"},
            categorical=["ward"],
            drop=["patient_id"],
        )
        tables = source.tables(seed=8)
    """

    name: ClassVar[str] = "tables"
    about: ClassVar[str] = "your own tables: a file, a sheet or a query for each client"

    def __init__(
        self,
        files: Files,
        target: str | list[str] | dict[str, str | list[str]],
        client_column: str | None = None,
        least_rows: int = 0,
        read: dict[str, Any] | None = None,
        types: dict[str, Any] | None = None,
        categorical: list[str] | dict[str, list[str]] | None = None,
        drop: list[str] | dict[str, list[str]] | None = None,
        root: str | None = None,
        encoding: str | None = None,
        split: SplitSettings | None = None,
        test: float = 0.2,
        validation: float = 0.1,
        unlabelled: str = "refuse",
        positive: Any = None,
        task: TaskSettings | None = None,
    ) -> None:
        self.given, self.client_column, self.root = files, client_column, root
        self.least_rows = least_rows
        self.read = {**({"encoding": encoding} if encoding else {}), **(read or {})}
        for column, said in (types or {}).items():
            check_declared(column, said)
        if unlabelled not in ("refuse", "drop"):
            raise ConfigError(f"unlabelled: expected refuse or drop, found {unlabelled!r}.")
        check_split(split)
        check_fractions(test, validation)
        self.target, self.types, self.categorical = target, dict(types or {}), categorical
        self.drop = drop or []
        self.split, self.test, self.validation = split, test, validation
        self.unlabelled, self.positive, self.task = unlabelled, positive, task
        if isinstance(files, Mapping):
            self._places()

    def _check_keys(self, clients: Sequence[str]) -> None:
        """Refuse what is said of clients that are not there."""
        for key in ("target", "categorical", "drop"):
            value = getattr(self, key)
            for client in value if isinstance(value, dict) else ():
                if client not in clients:
                    raise ConfigError(
                        f"tables: {key}: expected clients among {', '.join(clients)}; found {client!r}."
                        f"{did_you_mean(str(client), clients)}"
                    )
        if isinstance(self.target, dict) and (without := [own for own in clients if own not in self.target]):
            raise ConfigError(f"tables: target: expected a column for each client, found none for {without[0]!r}.")
        check_task(self.task, clients)
        check_split(self.split, clients)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        raws = self._read_all()
        if self.client_column is not None:
            self._check_keys(list(raws))
        self._check_columns({client: _names(raw) for client, (raw, _) in raws.items()})
        schema, common = self._common(raws) if self.client_column is not None else (None, [])
        made = []
        for client in list(raws):
            raw, place = raws.pop(client)  # so that it can be forgotten
            made.append(self._table(client, raw, place, seed, schema))
        made[0] = replace(made[0], notes=(*common, *made[0].notes))
        return _with_tasks_noted(check_tables(made))

    def table(self, client: str, seed: int) -> ClientTable:
        """Return one client's table; reads no other's file."""
        if self.client_column is not None:
            return super().table(client, seed)
        places = self._places()
        if client not in places:
            raise ConfigError(
                f"{self.name}: expected a client among {', '.join(places)}, found {client!r}."
                + did_you_mean(client, places)
            )
        place = places[client]
        return check_tables([self._table(client, self._read(place), place, seed)])[0]

    def sizes(self) -> dict[str, int] | None:
        """Bytes of each client's file; None where clients are in one file or in a database."""
        places = self._places()
        if self.client_column is not None or any(place.is_database for place in places.values()):
            return None
        return {name: find_file(name, own.path, self.root).stat().st_size for name, own in places.items()}

    def some(self, clients: Sequence[str], seed: int, share: Share | None = None) -> list[ClientTable]:
        """Some clients' tables; reads no others' files."""
        places = self._places()
        raws = {client: self._read(places[client]) for client in clients}
        columns = {client: _names(raw) for client, raw in raws.items()}
        self._check_columns(columns if share is None else share("names of columns", columns))
        return check_tables([self._table(client, raws.pop(client), places[client], seed) for client in clients])

    # ------------------------------------------------------------------ reading

    def _places(self) -> dict[str, Place]:
        places = {place.client: place for place in places_of(self.given, self.read, self.root)}
        if self.client_column is None:
            self._check_keys(list(places))
        elif len(places) != 1:
            raise ConfigError(
                f"tables: client_column: expected one file that holds all clients' rows, found {len(places)} files."
            )
        return places

    def _read(self, place: Place) -> Raw:
        path = place.path if place.is_database else str(find_file(place.client, place.path, self.root))
        return read_table(path, place.options, place.client)

    def _read_all(self) -> dict[str, tuple[Raw, Place]]:
        places = self._places()
        if self.client_column is None:
            return {client: (self._read(place), place) for client, place in places.items()}
        (place,) = places.values()
        return _by_client(self._read(place), self.client_column, place, self.least_rows)

    # ------------------------------------------------------------------ one table

    def listed(self, key: str, client: str) -> list[str]:
        """Return what ``drop`` or ``categorical`` says about a client."""
        value = getattr(self, key)
        return list(value.get(client, []) if isinstance(value, dict) else value or [])

    def target_of(self, client: str) -> str | list[str]:
        """The column or columns that a client predicts."""
        return self.target[client] if isinstance(self.target, dict) else self.target

    def _targets(self, client: str) -> list[str]:
        target = self.target_of(client)
        return [target] if isinstance(target, str) else list(target)

    def _check_columns(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Refuse columns that are said to be there and are nowhere."""
        everywhere = dict.fromkeys(name for own in columns.values() for name in own)
        for key in ("types", "categorical", "drop"):
            value = getattr(self, key)
            named = value if key != "types" and isinstance(value, dict) else {None: value or []}
            for client, wanted in named.items():
                known = everywhere if client is None else columns[client]
                for column in wanted:
                    if column not in known:
                        who = "no client has a column" if client is None else f"client {client!r} has no column"
                        raise ConfigError(f"tables: {key}: {who} {column!r}.{did_you_mean(column, known)}")

    def _common(self, raws: Mapping[str, tuple[Raw, Place]]) -> tuple[Schema, list[Note]]:
        """What one table's columns hold, at all clients alike, and notes on it."""
        import pandas as pd

        whole = pd.concat([raw.frame for raw, _ in raws.values()]).sort_index()
        targets = dict.fromkeys(own for client in raws for own in self._targets(client))
        rows = whole.drop(columns=[own for own in targets if own in whole])
        schema, _, notes = self._found(next(iter(raws)), rows, next(iter(raws.values()))[1])
        several = {name for raw, _ in raws.values() for name in schema.used if raw.frame[name].nunique() > 1}
        if own := [name for name in schema.used if name not in several]:
            text = f"{shorten(own)}: one value at each client, another at others; kept for what is learnt together"
            notes.append(Note(text, "client columns"))
        return schema, notes

    def _table(self, client: str, raw: Raw, place: Place, seed: int, schema: Schema | None = None) -> ClientTable:
        """One client's table; ``schema`` where its columns were looked at together with others'."""
        from fedlit.data.labels import read_target
        from fedlit.data.schema.schema import words_by_column

        targets, split, frame = self._targets(client), own_split(self.split, client), raw.frame
        by = split_column(split)
        self._check_table(client, raw, place, by)
        options, notes = place.options, [place.note] if place.note else []
        words = words_by_column(options.missing)
        several = isinstance(self.target_of(client), list)
        labels = read_target(
            client,
            frame[targets] if several else frame[targets[0]],
            self.task,
            self.unlabelled,
            options.decimal,
            options.thousands,
            self._positive(client),
            {own: (*words.get("*", ()), *words.get(own, ())) for own in targets},
        )
        rows = frame if labels.labelled.all() else frame[labels.labelled]
        left = [own for own in (*targets, *self.listed("drop", client)) if own in rows]
        features, schema, said = self._features(client, rows.drop(columns=left), place, schema)
        classes = not several and is_classification(own_task(self.task, client))
        splits, how = split_rows(
            client,
            split,
            labels.target,
            rows[by] if by else None,
            seed,
            self.test,
            self.validation,
            classes,
            schema.columns.get(by or ""),
        )
        table = ClientTable(
            name=client,
            features=features,
            target=labels.target,
            splits=splits,
            groups=groups_of(rows[by], f"client {client!r}") if isinstance(split, dict) and "group" in split else None,
            categorical=schema.categorical(features),
            positive=labels.positive,
            task=own_task(self.task, client),
            schema=schema,
        )
        return replace(table, notes=(*notes, *raw.notes, *said, *labels.notes, *how, *_notes(table)))

    def _check_table(self, client: str, raw: Raw, place: Place, by: str | None) -> None:
        """Refuse a table without its target or what it is split by, and columns of which two things are said."""
        targets = self._targets(client)
        for key, column in (*(("target", own) for own in targets), *([("split", by)] if by else [])):
            if column not in raw.frame:
                found = ", ".join(_names(raw)[:20])
                below = [str(cell).strip() for cell in raw.frame.iloc[0]]
                second = " The first row holds it: if that is the header, write skiprows: 1." * (column in below)
                raise DataError(
                    f"{raw.where}: expected a column {column!r}, the {key}, found {found}."
                    f"{did_you_mean(column, _names(raw))} Correct the name or the file.{raw.hint}{second}"
                )
        drop, categorical = self.listed("drop", client), self.listed("categorical", client)
        for key, columns in (("drop", drop), ("categorical", categorical), ("types", [*self.types, *place.types])):
            for own in targets:
                if own in columns:
                    raise ConfigError(f"tables: {key}: names {own!r}, which is the target of {client!r}. Take it out.")
        if both := set(drop) & set(categorical):
            raise ConfigError(f"tables: {sorted(both)[0]!r} is under drop and under categorical. Keep one.")
        if by in targets:
            raise ConfigError(f"tables: split: names {by!r}, which is the target of {client!r}. Name another column.")

    def _features(
        self, client: str, rows: pd.DataFrame, place: Place, schema: Schema | None
    ) -> tuple[pd.DataFrame, Schema, list[Note]]:
        if schema is None:
            schema, features, notes = self._found(client, rows, place)
        else:
            own = {name: column for name, column in schema.columns.items() if name in rows}
            schema = replace(schema, columns={**own, **self._split_types(client, rows)})
            features, notes = schema.apply(rows, f"client {client!r}")
        return features, schema, [behind(client, note) for note in notes]

    def _split_types(self, client: str, rows: pd.DataFrame) -> dict[str, Column]:
        """What a table is split by says nothing of tomorrow's rows, but for a time."""
        from fedlit.data.schema.column import Column

        split, by = own_split(self.split, client), split_column(own_split(self.split, client))
        if by not in rows or not isinstance(split, dict) or "time" in split:
            return {}
        return {str(by): Column("left out", why="identifier" if "group" in split else "dropped")}

    def _found(self, client: str, rows: pd.DataFrame, place: Place) -> tuple[Schema, pd.DataFrame, list[Note]]:
        """Look at columns: the schema, the typed rows, and notes."""
        from fedlit.data.schema.schema import Schema

        types: dict[str, Declared] = {own: said for own, said in self.types.items() if own in rows}
        types |= dict.fromkeys((own for own in self.listed("categorical", client) if own in rows), "categorical")
        types |= {name: own.why.replace("dropped", "drop") for name, own in self._split_types(client, rows).items()}
        options, missing = place.options, place.options.missing
        if isinstance(missing, dict):  # the target's are its own; what is said of all files need not fit each
            common = options == ReadOptions.from_dict(self.read, "read")
            known = {"*", *rows} if common else {*missing} - {*self._targets(client)}
            missing = {own: words for own, words in missing.items() if own in known}
        reading = {key: value for key, value in options.to_dict().items() if key != "query"}
        said, where = {**types, **place.types}, f"client {client!r}"
        return Schema.find(rows, said, missing, options.decimal, options.thousands, reading, where)

    def _positive(self, client: str) -> Any:
        return self.positive.get(client) if isinstance(self.positive, dict) else self.positive


def _names(raw: Raw) -> list[str]:
    return [str(name) for name in raw.frame.columns]


def _notes(table: ClientTable) -> list[str]:
    """Return notes on rows and splits."""
    notes, name = list[str](), table.name
    doubled, across = same_rows(table.features, table.target, table.splits)
    if across:
        notes.append(
            f"{name}: {across:,} validation or test rows stand in training rows word for word ({doubled:,} rows of "
            f"{len(table.features):,} are doubles): scores flatter. Are they the same cases? Then drop them, or split "
            "by group"
        )
    if (few := len(table.splits["validation"])) < _FEW_ROWS:
        notes.append(f"{name}: {few} validation rows: what is chosen by them is chosen by chance")
    return notes


def _with_tasks_noted(tables: list[ClientTable]) -> list[ClientTable]:
    """Tables, with a note at each client that predicts classes, unasked, while others predict a number."""
    tasks = {table.name: own_task(table.task, table.name) for table in tables}
    numbers = [name for name, task in tasks.items() if task and task["name"] in ("regression", "counts")]
    made = []
    for table in tables:
        if numbers and tasks[table.name] is None and not isinstance(table.target.name, tuple):
            text = (
                f"is predicted as one of {table.target.nunique()} classes, but a number is predicted at "
                f"{shorten(numbers)}; say task: {{{table.name}: classification}} if that is meant, else regression or "
                "counts"
            )
            column, fix = str(table.target.name), {"task": "regression"} if table.target.dtype.kind in "iu" else None
            note = Note(text, "task", column=column, fix=fix, head=f"{table.name}: {column}")
            table = replace(table, notes=(*table.notes, note))
        made.append(table)
    return made


def _by_client(raw: Raw, column: str, place: Place, least_rows: int) -> dict[str, tuple[Raw, Place]]:
    """Split the rows of one table by the client that a column names; clients of fewer rows are left out."""
    if column not in raw.frame:
        raise DataError(
            f"{raw.where}: expected the column {column!r} that names clients, found {', '.join(_names(raw)[:20])}."
            + did_you_mean(column, _names(raw))
        )
    values = raw.frame[column]
    if values.isna().any():
        raise DataError(
            f"{raw.where}, column {column!r}: expected a client in each row, found {int(values.isna().sum()):,} rows "
            "without one. Fill them in, or leave those rows out."
        )
    made, called = dict[str, tuple[Raw, Place]](), dict[str, list[str]]()
    owner = values.map({own: client_name(own) for own in values.unique()})
    sizes = owner.value_counts()
    few, notes = sizes[sizes < least_rows], list(raw.notes)
    if len(few) == len(sizes):
        raise ConfigError(
            f"tables: least_rows: expected clients of {least_rows:,} or more rows, found none in {column!r}; the "
            f"largest has {sizes.max():,}. Lower it."
        )
    if len(few):
        text = f"clients of fewer than {least_rows:,} rows are left out: {shorten(sorted(few.index))}"
        notes.append(Note(text, "small clients"))
    for own in values[~owner.isin(few.index)].unique():
        called.setdefault(client_name(own), []).append(str(own))
    check_names(list(called))
    for client in sorted(called):
        rows = raw.frame[(owner == client).to_numpy()].drop(columns=column)
        text = f"is {column} {' and '.join(map(repr, called[client]))}"
        note = Note(text, "read", head=client) if called[client] != [client] else ""
        first = tuple(notes) if not made else ()  # said once
        where = f"client {client!r}, {column} of {raw.where}"
        made[client] = (Raw(rows, first, where), replace(place, client=client, note=note))
    return made
