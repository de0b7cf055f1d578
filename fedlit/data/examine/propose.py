"""What a configuration for tables of which nothing is known could say."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.examine.alone import likely_positive
from fedlit.data.examine.names import words_of
from fedlit.data.examine.sites import by_client
from fedlit.data.note import Note
from fedlit.data.reading import Raw, ReadOptions, read_table
from fedlit.data.reading.names import mostly_numbers
from fedlit.data.sources.places import Place, find_file, places_of
from fedlit.errors import ConfigError, DataError, did_you_mean
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Proposal", "propose"]

_NAMES = """target label labels class outcome y response diagnosis species readmitted survived died death event chd num
    default churn progression status result"""  # of targets, the likeliest first
_NO_TARGETS, _ONE_VALUE = ("identifier", "free text", "date"), ("constant", "empty")
_SITES = """site hospital client clinic centre center branch bank region area ward district country city store shop
    school plant factory institution department practice location"""  # of columns that name the client of each row
_MOST_SITES = 50
_TIME = {"year", "month", "date", "time", "day"}
_FEW_CLASSES, _MOST_CLASSES = 10, 30  # whole numbers, and words
_SEPARATORS = ",;\t|"
_DRAWN = 20_000  # rows of which types are found


@dataclass(frozen=True)
class Proposal:
    """The part of a configuration for one client.

    Attributes:
        client: its name.
        path: its file.
        options: how it is read, where that is not the default.
        target: the column to predict.
        why: how the target was found.
        task: what is predicted, if no class.
        labels: label → rows; or of a number its range, in words.
        positive: the label that counts as positive, where a word says so.
        unlabelled: rows without a label.
        kinds: column → what it holds, or why it is left out.
        codes: columns of few whole numbers, that may be categories.
        notes: what a person should know.
        groups: columns whose rows belong in one split.
        sites: the column that may name the client of each row, where there is one file.
        whole: whether the labels are whole numbers, and not 0 and 1 alone.
        rows: of the smallest client, with a label.
        federation: where ``sites`` was asked for, further keys of :class:`fedlit.Tables` that make a client of each of
            its values.
    """

    client: str
    path: str
    options: Mapping[str, Any]
    target: str
    why: str
    task: str | None
    labels: str
    positive: Any = None
    unlabelled: int = 0
    kinds: Mapping[str, str] = field(default_factory=dict)
    codes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[Note, ...] = ()
    sites: str | None = None
    whole: bool = False
    rows: int = 0
    federation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> Any:
        """The entry under ``files``."""
        return {"path": self.path, **self.options} if self.options else self.path


def propose(
    folder: str,
    targets: Mapping[str | None, str],
    names: Sequence[str] | None = None,
    client_column: str | None = None,
) -> list[Proposal]:
    """Look at the files of a folder.

    Args:
        folder: a folder, a pattern or one file.
        targets: the column to predict by client; of all others under None; guessed where nothing is said.
        names: of the columns of files without a header.
        client_column: the column of one file that names the client of each row.

    Raises:
        DataError: a file cannot be read, or has no column that could be meant.
        ConfigError: a client or a column that is not there.
    """
    places = places_of(folder, {}, None)
    clients = [place.client for place in places]
    if client_column is not None and len(places) != 1:
        raise ConfigError(f"--client-column: expected one file that holds all clients' rows, found {len(places)}.")
    for client in targets:
        if client is not None and client not in clients:
            raise ConfigError(
                f"--target: expected a client among {', '.join(clients)}, found {client!r}."
                + did_you_mean(client, clients)
            )
    said = {place.client: targets.get(place.client, targets.get(None)) for place in places}
    if client_column is not None:
        return [_propose(places[0], True, said[clients[0]], names, client_column=client_column)]
    made = [_propose(place, len(places) == 1, said[place.client], names) for place in places]
    numbers = {own.target for own in made if own.task == "regression"}
    for at, (place, own) in enumerate(zip(places, made, strict=True)):
        if own.task is None and own.whole and own.target in numbers:  # few rows have few values: one task for all
            made[at] = _propose(place, len(places) == 1, said[place.client], names, few=0)
    if names is not None and not any("names" in own.options for own in made):
        raise ConfigError("--names: is for files without a header, and all files have one. Leave it out.")
    return made


def _propose(
    place: Place,
    single: bool,
    target: str | None,
    names: Sequence[str] | None,
    few: int = _FEW_CLASSES,
    client_column: str | None = None,
) -> Proposal:
    path = find_file(place.client, place.path, None)
    options, notes = _header(place.client, path, names)
    raw = read_table(path, ReadOptions(**options), place.client)
    options |= {key: value for note in raw.notes if isinstance(note, Note) for key, value in note.fix.items()}
    kinds, codes, groups = _kinds(raw.frame)
    columns = list(map(str, raw.frame.columns))
    target, why = _target(raw, columns, kinds, target)
    task, labels, positive, unlabelled, whole = _predicted(raw, target, few)
    rows, federation = len(raw.frame) - unlabelled, dict[str, Any]()
    sites = _sites(raw.frame, kinds, codes, target) if single and client_column is None else client_column
    if client_column is not None:
        federation, rows, said = by_client(raw, client_column, target)
        kinds = {name: kind for name, kind in kinds.items() if name != client_column}
        notes += said
    elif sites is not None:
        values = raw.frame[sites].nunique()
        told = f"{place.client}: {sites!r} has {values} values and may name sites: client_column: {sites}"
        notes.append(f"{told} makes a client of each value")
    return Proposal(
        place.client, _shown(path), options, target, why, task, labels, positive, unlabelled,
        {name: kind for name, kind in kinds.items() if name != target}, tuple(own for own in codes if own != target),
        (*([place.note] if place.note else []), *notes), groups, sites, whole, rows, federation,
    )  # fmt: skip


def _shown(path: Path) -> str:
    """A path as it can be written: from here, if it is below."""
    here, whole = Path.cwd(), path.absolute()
    return str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)


# ---------------------------------------------------------------------- reading


def _header(client: str, path: Path, names: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    """``names``, if the file has no header: its first line is numbers."""
    from fedlit.data.schema.cells import MISSING

    first = _first_line(path)
    held = [cell for cell in first if cell.casefold() not in MISSING]
    if not mostly_numbers(held) or not all(mostly_numbers([cell]) for cell in held) or _years(held):
        return {}, []
    if names is not None:
        if len(names) != len(first):
            raise ConfigError(
                f"--names: expected {len(first)} names, one for each column of {path.name} (client {client!r}), found "
                f"{len(names)}."
            )
        return {"names": list(names)}, [f"{client}: {path.name} has no header; its columns are called as you said"]
    made = [f"c{place}" for place in range(1, len(first) + 1)]
    note = (
        f"{client}: the first line of {path.name} is numbers, so it has no header; its columns are called c1 to "
        f"c{len(first)}. Write their names here, or give --names"
    )
    return {"names": made}, [note]


def _first_line(path: Path) -> list[str]:
    """The fields of a text's first line; none of another file."""
    from fedlit.data.reading.table import first_line

    line = first_line(path)
    sep = max(_SEPARATORS, key=line.count)
    return [cell.strip() for cell in next(csv.reader([line], delimiter=sep), [])]


def _years(names: Sequence[str]) -> bool:
    return len(set(names)) == len(names) and all(re.fullmatch(r"(19|20)\d\d", own) for own in names)


def _kinds(frame: pd.DataFrame) -> tuple[dict[str, str], list[str], tuple[Note, ...]]:
    """Return the kinds of columns, the columns that may be codes, and notes on columns whose rows belong together."""
    from fedlit.data.schema.schema import Schema

    few = frame if len(frame) <= _DRAWN else frame.iloc[np.linspace(0, len(frame) - 1, _DRAWN).astype(np.int64)]
    schema, typed, notes = Schema.find(few)
    numbers = [name for name, own in schema.columns.items() if own.kind == "numeric"]
    codes = [name for name in numbers if _is_code(typed[name].dropna().to_numpy())]
    kinds = {name: own.why or own.kind for name, own in schema.columns.items()}
    return kinds, codes, tuple(note for note in notes if isinstance(note, Note) and note.kind == "group")


def _is_code(numbers: np.ndarray) -> bool:
    """Return whether numbers may be codes of categories: few, and whole."""
    whole = bool((numbers[:100] % 1 == 0).all() and (numbers % 1 == 0).all())
    return whole and 2 < len(np.unique(numbers)) <= _FEW_CLASSES


# ---------------------------------------------------------------------- the target


def _target(raw: Raw, columns: list[str], kinds: Mapping[str, str], said: str | None) -> tuple[str, str]:
    if said is not None:
        if said not in columns:
            raise ConfigError(
                f"{raw.where}: --target: expected one of {shorten(columns, 20)}, found {said!r}."
                f"{did_you_mean(said, columns)} Of one client alone: --target CLIENT=COLUMN.{raw.hint}"
            )
        return said, "as you said"
    usable = [name for name in columns if kinds[name] not in (*_NO_TARGETS, *_ONE_VALUE)]
    ranked = _NAMES.split()
    by_name = [
        (min(ranked.index(word) for word in words), name)
        for name in columns
        if kinds[name] not in _NO_TARGETS
        and (words := [word for word in {*words_of(name), "".join(words_of(name))} if word in ranked])
    ]
    first = [name for rank, name in by_name if name in usable and rank == min(by_name)[0]]
    if len(first) == 1:
        return first[0], "guessed by its name"
    last = columns[-1]
    if not by_name and last in usable and _few_values(raw.frame[last]) and not _TIME & set(words_of(last)):
        return last, "guessed: the last column, of few values"
    single = [name for _, name in by_name if kinds[name] in _ONE_VALUE]
    found = f" {single[0]!r} has one value here." if single else " None is called so that it can be guessed."
    among = [name for _, name in sorted(by_name) if name in usable] or usable
    raise DataError(
        f"{raw.where}: which column is to be predicted?{found} Candidates: {shorten(among, 20)}. Say --target COLUMN, "
        f"or for one client --target CLIENT=COLUMN; or leave the file out."
    )


def _sites(frame: pd.DataFrame, kinds: Mapping[str, str], codes: Sequence[str], target: str) -> str | None:
    """The first column of categories that is called like a place."""
    for name in map(str, frame.columns):
        among = kinds[name] == "categorical" or name in codes
        if (
            name != target
            and among
            and set(_SITES.split()) & set(words_of(name))
            and 2 <= frame[name].nunique() <= _MOST_SITES
        ):
            return name
    return None


def _few_values(values: pd.Series) -> bool:
    return 2 <= values.nunique() <= _FEW_CLASSES


def _predicted(raw: Raw, target: str, few: int) -> tuple[str | None, str, Any, int, bool]:
    """The task, the labels in words, the positive one, how many rows have none, and whether labels are whole numbers.
    Of more than ``few`` different ones they are numbers to predict.
    """
    from fedlit.data.schema.cells import held_text, is_text
    from fedlit.data.schema.numbers import find_notation

    values = raw.frame[target]
    if is_text(values):
        held = held_text(values).dropna()
        different = held.unique().tolist()
        numbers = find_notation(different)[0].read(different)
        if not np.isnan(numbers).any() and len(held):
            held = held.map(dict(zip(different, numbers, strict=True))).astype(np.float64)
    else:
        held = values.dropna()
    if not len(held):
        raise DataError(f"{raw.where}: the target {target!r} has no value. Say another --target.")
    unlabelled = len(values) - len(held)
    different = held.nunique()
    if different < 2:
        raise DataError(f"{raw.where}: the target {target!r} has the one value {held.iloc[0]}. Say another --target.")
    if held.dtype.kind in "iuf":
        own = held.astype(np.float64)
        if different > few or bool((own % 1 != 0).any()):
            words = f"a number from {own.min():.4g} to {own.max():.4g} ({different:,} different values)"
            return "regression", words, None, unlabelled, False
        held = own.astype(np.int64)
    elif different > max(_MOST_CLASSES, len(held) // 10):
        raise DataError(
            f"{raw.where}: the target {target!r} has {different:,} different texts in {len(held):,} rows, such as "
            f"{held.iloc[0]!r}: too many for classes. Say another --target."
        )
    if is_text(held):
        first = {str(own).casefold(): own for own in held.value_counts().index[::-1]}
        held = held.map(lambda own: first[str(own).casefold()])
    counts = held.value_counts()
    words = shorten([f"{label} ({counted(int(rows), 'row')})" for label, rows in counts.items()], 6)
    positive = likely_positive(sorted(counts.index.tolist(), key=str))
    return None, words, positive, unlabelled, held.dtype.kind in "iu" and not set(held) <= {0, 1}
