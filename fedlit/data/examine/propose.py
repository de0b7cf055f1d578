"""What a configuration for tables of which nothing is known could say."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.data.examine.facts import sampled
from fedlit.data.examine.names import words_of
from fedlit.data.labels import likely_positive, plain_target
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
_FEWEST_ROWS = 20  # of a client by default: below, its test rows are two or three
_SEPARATORS = ",;\t|"
_DRAWN = 20_000  # rows of which types are found


@dataclass
class Proposal:
    """The part of a configuration for one client.

    Attributes:
        client: its name.
        path: its file.
        target: the column to predict.
        options: how the file is read, where that is not the default.
        task: what is predicted, if no class.
        positive: the label that counts as positive, where a word says so.
        unlabelled: rows without a label.
        rows: of the smallest client, with a label.
        kinds: column → what it holds, or why it is left out.
        codes: columns of few whole numbers, that may be categories.
        notes: what a person should know, by the key of :class:`fedlit.Tables` that it is about.
        sites: the column that may name the client of each row, where there is one file.
        federation: further keys that make a client of each value of the column that was asked for.
    """

    client: str
    path: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    task: str | None = None
    positive: Any = None
    unlabelled: int = 0
    rows: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    codes: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    sites: str | None = None
    federation: dict[str, Any] = field(default_factory=dict)

    def note(self, key: str, text: str) -> None:
        """Say something of a key."""
        self.notes.append((key, f"{self.client}: {text}"))


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
                f"--target: expected a client among {shorten(clients)}, found {client!r}."
                + did_you_mean(client, clients)
            )
    made: list[Proposal] = []
    labels: dict[str, pd.Series] = {}
    for place in places:
        raw, own = _looked(place, names, targets.get(place.client, targets.get(None)))
        if client_column is not None:
            _federate(own, raw, client_column)
        elif len(places) == 1:
            own.sites = _sites(raw.frame, own)
            if own.sites is not None:
                own.note("client_column", f"client_column: {own.sites} makes a client of each of its values")
        labels[own.client] = _predict(own, raw)
        made.append(own)
    numbers = {own.target for own in made if own.task == "regression"}
    for own in made:
        whole = labels[own.client].dtype.kind in "iu" and not {*labels[own.client]} <= {0, 1}
        if own.task is None and whole and own.target in numbers:  # few rows have few values: one task for all
            own.task = "regression"
            own.note("task", f"{own.target} is a number at other clients: regression, not classes")
    if names is not None and not any("names" in own.options for own in made):
        raise ConfigError("--names: is for files without a header, and all files have one. Leave it out.")
    return made


def _looked(place: Place, names: Sequence[str] | None, said: str | None) -> tuple[Raw, Proposal]:
    """A file's table, and what its columns hold."""
    from fedlit.data.schema.schema import Schema

    path = find_file(place.client, place.path, None)
    options, note = _header(path, names)
    raw = read_table(path, ReadOptions(**options), place.client)
    options |= {key: value for own in raw.notes if isinstance(own, Note) for key, value in own.fix.items()}
    few = raw.frame.iloc[sampled(np.arange(len(raw.frame)), _DRAWN)]
    schema, typed, found = Schema.find(few)
    kinds = {name: own.why or own.kind for name, own in schema.columns.items()}
    target, why = _target(raw, kinds, said)
    here, whole = Path.cwd(), path.absolute()
    shown = str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
    own = Proposal(place.client, shown, target, options)
    own.kinds = {name: kind for name, kind in kinds.items() if name != target}
    numbers = [name for name, kind in own.kinds.items() if kind == "numeric"]
    own.codes = [name for name in numbers if _is_code(typed[name].dropna().to_numpy())]
    own.note("target", f"predicts {target} ({why})")
    for text in filter(None, [place.note.removeprefix(f"{place.client}: "), note]):
        own.note("files", text)
    if len(few) < len(raw.frame):
        own.note("files", f"what its columns hold is found in {len(few):,} of its {len(raw.frame):,} rows")
    for group in found:
        if isinstance(group, Note) and group.kind == "group" and group.column != target:
            own.note("split", f"{group.column}: {group.text}")
    return raw, own


def _is_code(numbers: np.ndarray) -> bool:
    """Return whether numbers may be codes of categories: few, and whole."""
    whole = bool((numbers[:100] % 1 == 0).all() and (numbers % 1 == 0).all())
    return whole and 2 < len(np.unique(numbers)) <= _FEW_CLASSES


# ---------------------------------------------------------------------- headers


def _header(path: Path, names: Sequence[str] | None) -> tuple[dict[str, Any], str]:
    """``names``, if the file has no header, and what to say of that: its first line is numbers."""
    from fedlit.data.reading.table import first_line
    from fedlit.data.schema.cells import MISSING

    line = first_line(path)
    first = [cell.strip() for cell in next(csv.reader([line], delimiter=max(_SEPARATORS, key=line.count)), [])]
    held = [cell for cell in first if cell.casefold() not in MISSING]
    years = len(set(held)) == len(held) and all(re.fullmatch(r"(19|20)\d\d", own) for own in held)
    if years or not held or not all(mostly_numbers([cell]) for cell in held):
        return {}, ""
    if names is None:
        made = [f"c{place}" for place in range(1, len(first) + 1)]
        note = f"the first line of {path.name} is numbers, so it has no header; its columns are called c1 to {made[-1]}"
        return {"names": made}, f"{note}. Write their names here, or give --names"
    if len(names) != len(first):
        raise ConfigError(
            f"--names: expected {len(first)} names, one for each column of {path.name}, found {len(names)}."
        )
    return {"names": list(names)}, f"{path.name} has no header; its columns are called as you said"


# ---------------------------------------------------------------------- the target


def _target(raw: Raw, kinds: Mapping[str, str], said: str | None) -> tuple[str, str]:
    columns = list(kinds)
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
    few = 2 <= raw.frame[last].nunique() <= _FEW_CLASSES
    if not by_name and last in usable and few and not _TIME & set(words_of(last)):
        return last, "guessed: the last column, of few values"
    single = [name for _, name in by_name if kinds[name] in _ONE_VALUE]
    found = f" {single[0]!r} has one value here." if single else " None is called so that it can be guessed."
    among = [name for _, name in sorted(by_name) if name in usable] or usable
    raise DataError(
        f"{raw.where}: which column is to be predicted?{found} Candidates: {shorten(among, 20)}. Say --target COLUMN, "
        f"or for one client --target CLIENT=COLUMN; or leave the file out."
    )


def _predict(own: Proposal, raw: Raw) -> pd.Series:
    """Find the task and the positive label; return the labels or numbers."""
    values = raw.frame[own.target]
    found = plain_target(own.client, values)
    different, number = found.nunique(), found.dtype.kind in "iuf"
    if different < 2:
        shown = f"one value, {found.iloc[0]}" if different else "no value"
        raise DataError(f"{raw.where}: the target {own.target!r} has {shown}. Say another --target.")
    own.unlabelled, own.rows = len(values) - len(found), own.rows or len(found)
    if number and (different > _FEW_CLASSES or bool((found % 1 != 0).any())):
        own.task = "regression"
        own.note("task", f"{own.target} is a number, from {found.min():.4g} to {found.max():.4g}: regression")
        return found
    if not number and different > max(_MOST_CLASSES, len(found) // 10):
        raise DataError(
            f"{raw.where}: the target {own.target!r} has {different:,} different texts in {len(found):,} rows, such as "
            f"{found.iloc[0]!r}: too many for classes. Say another --target."
        )
    if number:
        found = found.astype(np.int64)
    labels = found.value_counts()
    own.positive = likely_positive(labels.index.tolist())
    own.note("target", shorten([f"{label} ({counted(int(rows), 'row')})" for label, rows in labels.items()], 6))
    return found


# ---------------------------------------------------------------------- one file of many clients


def _sites(frame: pd.DataFrame, own: Proposal) -> str | None:
    """The first column of categories that is called like a place."""
    for name, kind in own.kinds.items():
        called = set(_SITES.split()) & set(words_of(name))
        if called and (kind == "categorical" or name in own.codes) and 2 <= frame[name].nunique() <= _MOST_SITES:
            return name
    return None


def _federate(own: Proposal, raw: Raw, column: str) -> None:
    """Make a client of each value of a column.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame = raw.frame
    if column not in frame:
        hint = did_you_mean(column, map(str, frame))
        raise ConfigError(f"--client-column: expected a column of {raw.where}, found {column!r}.{hint}")
    if column == own.target:
        raise ConfigError(f"--client-column: {column!r} is what is predicted. Name another column.")
    sizes = frame[frame[own.target].notna()].groupby(column).size()
    if len(sizes) < 2:
        raise ConfigError(f"--client-column: {column!r} has {len(sizes)} values, so there is no federation.")
    own.kinds.pop(column)
    own.codes = [name for name in own.codes if name != column]
    own.federation = {"client_column": column}
    own.note("client_column", f"{len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows")
    large = sizes[sizes >= _FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        own.federation["least_rows"] = _FEWEST_ROWS
        own.note("least_rows", f"{len(sizes) - len(large):,} clients of fewer rows are left out")
        sizes = large
    own.rows = int(sizes.min())
