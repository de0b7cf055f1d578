"""The user's tables: a file, a sheet or a query for each client."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.note import Note, prefixed
from fedlit.data.reading import Raw, read_table
from fedlit.data.reading.options import (
    Conversions,
    Declared,
    Recoding,
    check_declared,
    conversions_by_client,
    values_by_client,
)
from fedlit.data.sources.base import Source, check_names, check_tables, choose_clients, owners_of
from fedlit.data.sources.places import (
    MOVE_PREDICTIONS,
    Files,
    Place,
    are_predictions,
    places_of,
)
from fedlit.data.sources.recoded import converted, recoded
from fedlit.data.splitting import (
    SplitSettings,
    check_split,
    groups_of,
    own_split,
    same_rows,
    split_rows,
    twins_are_ordinary,
)
from fedlit.data.table import (
    ClientTable,
    TaskSettings,
    check_patterns,
    check_task,
    first_match,
    outcome_at,
    outcome_for,
    own_task,
)
from fedlit.errors import DataError, Told, did_you_mean, expect
from fedlit.outcomes import NUMBER_TASK
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

    from fedlit.data.schema.schema import Schema
    from fedlit.names import Share

_NUMBERING = 1.25  # of the rows that is the range of numbers that count them
_FEW_TWINS = 2
_ORDINARY = 0.02  # of the rows that may be equal to others
_FEW_ROWS = 10  # validation rows by which nothing should be chosen
_BY_CLIENT = ("target", "drop", "positive", "weight")  # settings that may be a mapping by client


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
        positive: the label that counts as positive if there are two; the larger one if None; one
            for all clients, or by client's name or pattern.
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
        for column, said in (self.types or {}).items():
            check_declared(column, said)
        values_by_client(self.values or {})
        conversions_by_client(self.convert or {})
        expect(
            self.unlabelled in ("refuse", "drop"), "unlabelled", "refuse or drop", self.unlabelled
        )
        check_split(self.split)
        if isinstance(self.files, Mapping):
            self._places()

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        if self.client_column is None:
            return _with_tasks_noted(self.some(list(self._places()), seed))
        (place,) = places = [*self._places().values()]
        raws = _by_client(self._read(place), self.client_column, place, self.least_rows)
        self._check_clients(list(raws))
        self._check_columns(_columns(raws), places)
        return _with_tasks_noted(self._made(raws, seed))

    def some(
        self, clients: Sequence[str], seed: int, share: Share | None = None
    ) -> list[ClientTable]:
        """Read some clients' tables. If each client has a file, other clients' files are not
        read.
        """
        if self.client_column is not None:
            return super().some(clients, seed, share)
        places = self._places()
        chosen = choose_clients(clients, list(places), self.name)
        raws = {client: (self._read(places[client]), places[client]) for client in chosen}
        columns = _columns(raws) if share is None else share("names of columns", _columns(raws))
        if len(columns) == len(places):  # otherwise a column may be another client's
            self._check_columns(columns, places.values())
        return self._made(raws, seed)

    def sizes(self) -> dict[str, int] | None:
        """Return the size of each client's file in bytes; None if all clients are in one file or in
        a database.
        """
        places = self._places()
        if self.client_column is not None or any("://" in place.path for place in places.values()):
            return None
        return {name: place.find().stat().st_size for name, place in places.items()}

    # ------------------------------------------------------------------ settings

    def _places(self) -> dict[str, Place]:
        places = {place.client: place for place in places_of(self.files, self.read, self.root)}
        if self.client_column is None:
            self._check_clients(list(places))
        else:
            told = "one file that holds all clients' rows"
            found = Told(f"{len(places)} files")
            expect(len(places) == 1, "tables: client_column", told, found)
        return places

    def _check_clients(self, clients: Sequence[str]) -> None:
        """Refuse settings for clients that do not exist."""
        for key in _BY_CLIENT:
            if isinstance(value := getattr(self, key), dict):
                check_patterns(f"tables: {key}", value, clients)
        check_patterns("tables: values", values_by_client(self.values or {}), clients)
        check_patterns("tables: convert", conversions_by_client(self.convert or {}), clients)
        for client in clients:
            said = self._of("target", client) is not None
            expect(said, "tables: target", f"a column for client {client!r}", self.target)
        check_task(self.task, clients)
        check_split(self.split, clients)

    def _check_columns(self, columns: Mapping[str, Sequence[str]], places: Iterable[Place]) -> None:
        """Refuse settings for columns that no client has."""
        drop = self.drop if isinstance(self.drop, dict) else {"*": self.drop or ()}
        said = [("types", "*", self.types or ()), *(("drop", *own) for own in drop.items())]
        said += [("values", *own) for own in values_by_client(self.values or {}).items()]
        said += [("convert", *own) for own in conversions_by_client(self.convert or {}).items()]
        weight = self.weight if isinstance(self.weight, dict) else {"*": self.weight}
        said += [
            ("weight", pattern, [column])
            for pattern, column in weight.items()
            if column is not None
        ]
        for place in places:
            of_all = (
                place.options.missing == (self.read or {}).get("missing")
                or place.client not in columns
            )
            missing = [own for own in place.options.missing_by_column if own != "*"]
            said.append(("missing", "*" if of_all else place.client, missing))
        for key, pattern, wanted in said:
            known = dict.fromkeys(
                name for own in fnmatch.filter(columns, pattern) for name in columns[own]
            )
            for column in wanted:
                expect(
                    column in known,
                    f"tables: {key}",
                    f"columns of clients {pattern}",
                    column,
                    known=known,
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

    def _read(self, place: Place) -> Raw:
        return read_table(
            place.path if "://" in place.path else str(place.find()), place.options, place.client
        )

    def _made(self, raws: dict[str, tuple[Raw, Place]], seed: int) -> list[ClientTable]:
        import pandas as pd

        made = []
        schema = None
        common = list[Note]()
        if self.values:
            raws = recoded(raws, self._values, together=self.client_column is not None)
        if self.convert:
            raws = converted(raws, self._conversions)
        # what one table's columns are is the same at all clients
        if self.client_column is not None:
            rows = pd.concat([raw.frame for raw, _ in raws.values()]).sort_index()
            unused = {
                own
                for client in raws
                for own in (*self._targets(client), self._of("weight", client))
            }
            unused |= set.intersection(*({*(self._of("drop", client) or ())} for client in raws))
            (_, place), *_ = raws.values()
            schema, _, common = self._find(
                list(raws), rows[[name for name in rows if name not in unused]], place
            )
        for client in list(raws):
            raw, place = raws.pop(client)  # so that it can be forgotten
            made.append(self._table(client, raw, place, seed, schema))
        made[0] = replace(made[0], notes=(*common, *made[0].notes))
        return check_tables(made)

    def _find(
        self, clients: list[str], rows: pd.DataFrame, place: Place
    ) -> tuple[Schema, pd.DataFrame, list[Note]]:
        """Return the schema of columns, the typed rows, and notes."""
        from fedlit.data.schema.recode import words_as_values
        from fedlit.data.schema.schema import Schema

        types: dict[str, Declared] = {
            own: said for own, said in (self.types or {}).items() if own in rows
        }
        for client in clients:
            way, by = own_split(self.split, client)
            if way in ("group", "column") and by in rows:
                # What a table is split by says nothing of tomorrow's rows, but for a time.
                types[by] = "identifier" if way == "group" else "drop"
        options = place.options
        missing = place.options.missing
        # the target's are its own; what is said of all files need not fit each
        if isinstance(missing, dict):
            here = {own: words for own, words in missing.items() if own == "*" or own in rows}
            options = replace(options, missing=here)
        kept: dict[str, dict[str, str]] = {}
        for client in clients:
            for column, recoding in self._values(client).items():
                kept.setdefault(column, {}).update(words_as_values(recoding))
        return Schema.find(rows, {**types, **place.types}, options, f"client {clients[0]!r}", kept)

    def _table(
        self, client: str, raw: Raw, place: Place, seed: int, schema: Schema | None
    ) -> ClientTable:
        """Return one client's table. ``schema`` is given if its columns were examined together with
        those of other clients.
        """
        from fedlit.data.labels import read_target, read_weights
        from fedlit.data.schema.recode import words_as_values

        targets = self._targets(client)
        frame = raw.frame
        options = place.options
        (way, by), several = (
            own_split(self.split, client),
            not isinstance(self._of("target", client), str),
        )
        self._check_table(client, raw, place, by)
        target = frame[targets if several else targets[0]]
        positive = self._of("positive", client)
        mapped = [
            words_as_values(recoding)
            for column, recoding in self._values(client).items()
            if column in targets
        ]
        kept = {word for words in mapped for word in words}
        labels = read_target(client, target, self.task, self.unlabelled, positive, options, kept)
        rows = frame if labels.labelled.all() else frame[labels.labelled]
        weight = self._of("weight", client)
        apart = {*targets, weight, *(self._of("drop", client) or ())}
        used = rows.drop(columns=[own for own in rows if own in apart])
        if schema is None:
            schema, features, found = self._find([client], used, place)
        else:
            schema = replace(
                schema, columns={name: own for name, own in schema.columns.items() if name in used}
            )
            features, found = schema.apply(used, f"client {client!r}")
        # as new rows are written
        schema = schema.with_values(self._values(client), self._conversions(client))
        column = rows[by] if by else None
        task = own_task(self.task, client)
        classes = not several and outcome_for(self.task, client).one_label
        of_split = labels.target
        known = schema.columns.get(by)
        splits, how = split_rows(
            client, way, of_split, column, seed, self.test, self.validation, classes, known
        )
        keys = {
            name: _hashed(used[name], options.missing_in(name))
            for name in schema.keys
            if name in used
        }
        table = ClientTable(
            name=client,
            features=features,
            target=labels.target,
            splits=splits,
            groups=groups_of(column, f"client {client!r}")
            if column is not None and way == "group"
            else None,
            categorical=schema.categorical(features),
            positive=labels.positive,
            task=task,
            schema=schema,
            keys={name: own for name, own in keys.items() if len(own)},
            unit=labels.unit,
            weights=None
            if weight is None
            else read_weights(f"client {client!r}", rows[weight], options),
        )
        first = [place.note] if place.note else []
        said = (prefixed(client, note) for note in found)
        return replace(
            table, notes=(*first, *raw.notes, *said, *labels.notes, *how, *_notes(table))
        )

    def _check_table(self, client: str, raw: Raw, place: Place, by: str) -> None:
        """Refuse a table without its target or the column to split by, and columns with
        contradictory settings.
        """
        targets = self._targets(client)
        names = raw.frame.columns.tolist()
        weight = self._of("weight", client)
        wanted = [*(("target", own) for own in targets), ("split", by), ("weight", weight)]
        for key, column in [own for own in wanted if own[1]]:
            if column not in names:
                below = [str(cell).strip() for cell in raw.frame.iloc[0]]
                second = " The first row holds it: if that is the header, write skiprows: 1." * (
                    column in below
                )
                told = f"expected a column {column!r}, the {key}, found {', '.join(names[:20])}"
                said = "; ".join(note.text for note in raw.notes)
                more = f"{did_you_mean(column, names)}{second}" + (
                    said and f" Noted while reading: {said}."
                )
                if key == "target" and are_predictions(names):
                    more += f" {MOVE_PREDICTIONS.capitalize()}."
                raise DataError(f"{raw.head}: {told}.{more}")
        drop = self._of("drop", client) or ()
        types = [*(self.types or ()), *place.types]
        for key, columns in {
            "drop": drop,
            "types": types,
            "split": [by],
            "weight": [weight],
        }.items():
            twice = {*columns} & {*targets}
            told = f"other columns than the target of client {client!r}"
            expect(not twice, f"tables: {key}", told, min(twice, default=""), "take it out")


def _hashed(key: pd.Series, missing: tuple[str | float, ...]) -> np.ndarray:
    """Return the distinct values of an identifier as uint64, ascending; none if it only numbers the
    rows.
    """
    import pandas as pd

    from fedlit.data.schema.cells import Cells

    cells, _ = Cells.of(key).without(missing)
    numbers = pd.to_numeric(pd.Series(cells.texts, dtype=object), errors="coerce").to_numpy(
        np.float64
    )
    plain = bool((np.abs(numbers) < 2**53).all())  # beyond, different numbers are one float
    if not cells.texts or (plain and np.ptp(numbers) < _NUMBERING * cells.counts.sum()):
        return np.empty(0, np.uint64)
    hashes = pd.util.hash_array(
        numbers if plain else np.array(cells.texts, object), categorize=False
    )
    return np.unique(hashes)


def _columns(raws: Mapping[str, tuple[Raw, Place]]) -> dict[str, list[str]]:
    return {client: raw.frame.columns.tolist() for client, (raw, _) in raws.items()}


def _notes(table: ClientTable) -> list[str]:
    """Return notes on rows and splits."""
    notes = list[str]()
    name = table.name
    doubled, across = same_rows(table.features, table.target, table.splits)
    judging = len(table.splits["validation"]) + len(table.splits["test"])
    # a few twins among all rows are ordinary, and so are many where columns have few values
    few = max(_FEW_TWINS, _ORDINARY * len(table.features))
    many = doubled > few or across > max(_FEW_TWINS, _ORDINARY * judging)
    ordinary = many and twins_are_ordinary(table.features, table.target)
    if ordinary:
        text = f"{counted(doubled, 'row')} equal to others, as chance makes them, for there are few"
        text += " different ones"
        notes.append(Note(text, "twins", head=name))
    elif many:
        said = f"duplicate rows: {doubled:,} of {len(table.features):,}"
        said += (
            f", and {across:,} in validation or test with a twin in training: scores are too good"
            * (across > 0)
        )
        ask = "Are they the same cases? Then drop them" + ", or split by group" * (
            table.groups is None
        )
        notes.append(Note(f"{said}. {ask}", "duplicate", head=name))
    if (few := len(table.splits["validation"])) < _FEW_ROWS:
        text = f"{counted(few, 'validation row')}: what is chosen by so few is chosen by chance"
        notes.append(Note(text, "few rows", head=name))
    return notes


def _with_tasks_noted(tables: list[ClientTable]) -> list[ClientTable]:
    """Return the tables, with a note at each client that predicts classes by default while others
    predict a number.
    """
    tasks = {table.name: own_task(table.task, table.name) for table in tables}
    numbers = [table.name for table in tables if outcome_at(table).number]
    for place, table in enumerate(tables):
        column = table.target.name
        if numbers and tasks[table.name] is None and not isinstance(column, tuple):
            text = (
                f"is predicted as one of {table.target.nunique()} classes, but a number is "
                f"predicted at {shorten(numbers)}; say task: {{{table.name}: classification}} if "
                "that is meant, else regression"
            )
            fix = {"task": NUMBER_TASK} if table.target.dtype.kind in "iu" else None
            note = Note(text, "task", column=str(column), fix=fix, head=f"{table.name}: {column}")
            tables[place] = replace(table, notes=(*table.notes, note))
    return tables


def _by_client(
    raw: Raw, column: str, place: Place, least_rows: int
) -> dict[str, tuple[Raw, Place]]:
    """Split the rows of one table by the column that names the client. Clients with fewer than
    ``least_rows`` rows are left out.
    """
    names = raw.frame.columns.tolist()
    expect(
        column in names, "tables: client_column", f"a column of {raw.head}", column, known=names
    )
    values = raw.frame[column]
    where = f"{raw.head}, column {column!r}"
    gaps = Told(counted(int(values.isna().sum()), "gap"))
    fill = "fill them in, or leave those rows out"
    expect(bool(values.notna().all()), where, "a client in each row", gaps, fill, DataError)
    owner = owners_of(values)
    sizes = owner.value_counts()
    small = sorted(sizes.index[sizes < least_rows])
    notes = list(raw.notes)
    expect(
        len(small) < len(sizes),
        "tables: least_rows",
        f"at most {sizes.max():,}, the largest client",
        least_rows,
    )
    if small:
        text = f"clients of fewer than {least_rows:,} rows are left out: {shorten(small)}"
        notes.append(Note(text, "small clients"))
    made = dict[str, tuple[Raw, Place]]()
    for client, rows in raw.frame.groupby(owner):
        if client in small:
            continue
        called = [str(own) for own in rows[column].unique()]
        name = str(client)
        text = f"is {column} {' and '.join(map(repr, called))}"
        note = Note(text, "read", head=name) if called != [name] else ""
        first = tuple(notes) if not made else ()  # said once
        where = f"client {name!r}, {column} of {raw.head}"
        made[name] = (
            Raw(rows.drop(columns=column), first, where),
            replace(place, client=name, note=note),
        )
    check_names(list(made))
    return made
