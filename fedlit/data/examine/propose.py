"""What a configuration for tables of which nothing is known could say."""

from __future__ import annotations

import csv
import re
import sys
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
from fedlit.data.sources.places import Place, places_of
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
    """What a configuration could say.

    Attributes:
        settings: arguments of :class:`fedlit.Tables`.
        notes: what a person should know, by the argument that it is about.
        kinds: client → column → what it holds, or why it is left out.
        codes: columns of few whole numbers, that may be categories.
        rows: of the smallest client, with a label.
        sites: the column that may name the client of each row, where there is one file.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, dict[str, str]] = field(default_factory=dict)
    codes: dict[str, None] = field(default_factory=dict)
    rows: int = sys.maxsize
    sites: str | None = None

    def put(self, key: str, client: str, value: Any, note: str) -> None:
        """Propose a client's value of an argument."""
        self.settings.setdefault(key, {})[client] = value
        self.note(key, client, note)

    def note(self, key: str, client: str, text: str) -> None:
        """Say something of an argument."""
        self.notes.setdefault(key, []).append(f"{client}: {text}")


def propose(
    folder: str,
    targets: Mapping[str | None, str],
    names: Sequence[str] | None = None,
    client_column: str | None = None,
) -> Proposal:
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
    places = places_of(folder)
    clients = [place.client for place in places]
    if client_column is not None and len(places) != 1:
        raise ConfigError(f"--client-column: expected one file that holds all clients' rows, found {len(places)}.")
    for client in targets:
        if client is not None and client not in clients:
            hint = did_you_mean(client, clients)
            raise ConfigError(f"--target: expected a client among {shorten(clients)}, found {client!r}.{hint}")
    made, labels = Proposal(), dict[str, Any]()
    for place in places:
        raw = _looked(made, place, names, targets.get(place.client, targets.get(None)))
        labels[place.client] = _predict(made, place.client, raw)
        if len(places) == 1 and client_column is None:
            _sites(made, place.client, raw)
    tasks, target = made.settings.get("task", {}), made.settings["target"]
    numbers = {target[client] for client in tasks}
    for client, held in labels.items():
        whole = held.dtype.kind in "iu" and not {*held} <= {0, 1}
        if client not in tasks and whole and target[client] in numbers:  # few rows have few values: one task for all
            made.put("task", client, "regression", f"{target[client]} is a number at other clients: regression")
    if names is not None and not any("names" in own for own in made.settings["files"].values()):
        raise ConfigError("--names: is for files without a header, and all files have one. Leave it out.")
    if len({*target.values()}) == 1:
        made.settings["target"] = target[clients[0]]
    if client_column is not None:
        _federate(made, clients[0], raw, client_column)
    if client_column is not None or made.sites is not None:  # of any client
        made.settings |= {key: own[clients[0]] for key in ("task", "positive") if (own := made.settings.get(key))}
    return made


def _looked(made: Proposal, place: Place, names: Sequence[str] | None, said: str | None) -> Raw:
    """A file's table; what its columns hold, and how it is read, is put into the proposal."""
    from fedlit.data.schema.schema import Schema

    client, path = place.client, place.find()
    options, note = _header(path, names)
    raw = read_table(path, ReadOptions(**options), client)
    options |= {key: value for own in raw.notes if isinstance(own, Note) for key, value in own.fix.items()}
    few = raw.frame.iloc[sampled(np.arange(len(raw.frame)), _DRAWN)]
    schema, typed, found = Schema.find(few)
    kinds = {name: own.why or own.kind for name, own in schema.columns.items()}
    here, whole = Path.cwd(), path.absolute()
    shown = str(whole.relative_to(here)) if whole.is_relative_to(here) else str(whole)
    made.settings.setdefault("files", {})[client] = {"path": shown, **options} if options else shown
    sample = f"what its columns hold is found in {len(few):,} of its {len(raw.frame):,} rows"
    for text in (place.note.removeprefix(f"{client}: "), note, sample if len(few) < len(raw.frame) else ""):
        if text:
            made.note("files", client, text)
    target, why = _target(raw, kinds, said)
    made.put("target", client, target, f"predicts {target} ({why})")
    made.kinds[client] = {name: kind for name, kind in kinds.items() if name != target}
    for name, kind in made.kinds[client].items():
        if kind == "numeric" and _is_code(typed[name].dropna().to_numpy()):
            made.codes[name] = None
    for group in found:
        if isinstance(group, Note) and group.kind == "group" and group.column != target:
            made.note("split", client, f"{group.column}: {group.text}")
    return raw


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


def _predict(made: Proposal, client: str, raw: Raw) -> pd.Series:
    """Put the task and the positive label into the proposal; return the labels or numbers."""
    target = made.settings["target"][client]
    found = plain_target(client, raw.frame[target])
    different, number, without = found.nunique(), found.dtype.kind in "iuf", len(raw.frame) - len(found)
    where = f"{raw.where}: the target {target!r} has"
    if different < 2:
        shown = f"one value, {found.iloc[0]}" if different else "no value"
        raise DataError(f"{where} {shown}. Say another --target.")
    if not number and different > max(_MOST_CLASSES, len(found) // 10):
        raise DataError(
            f"{where} {different:,} different texts in {len(found):,} rows, such as {found.iloc[0]!r}: too many for "
            "classes. Say another --target."
        )
    made.rows = min(made.rows, len(found))
    if without:
        made.settings["unlabelled"] = "drop"
        made.note("unlabelled", client, f"{counted(without, 'row')} without a label")
    if number and (different > _FEW_CLASSES or bool((found % 1 != 0).any())):
        text = f"{target} is a number, from {found.min():.4g} to {found.max():.4g}: regression"
        made.put("task", client, "regression", text)
        return found
    found = found.astype(np.int64) if number else found
    labels = found.value_counts()
    made.note("target", client, shorten([f"{label} ({counted(int(n), 'row')})" for label, n in labels.items()], 6))
    if (positive := likely_positive(labels.index.tolist())) is not None:
        made.put("positive", client, positive, f"AUROC and AUPRC are of {positive}")
    return found


# ---------------------------------------------------------------------- one file of many clients


def _sites(made: Proposal, client: str, raw: Raw) -> None:
    """Look for a column of categories that is called like a place."""
    for name, kind in made.kinds[client].items():
        called = set(_SITES.split()) & set(words_of(name))
        if called and (kind == "categorical" or name in made.codes) and 2 <= raw.frame[name].nunique() <= _MOST_SITES:
            made.sites = name
            made.note("client_column", client, f"client_column: {name} makes a client of each of its values")
            return


def _federate(made: Proposal, client: str, raw: Raw, column: str) -> None:
    """Make a client of each value of a column.

    Raises:
        ConfigError: there is no such column, or it names one client.
    """
    frame, target = raw.frame, made.settings["target"]
    if column not in frame:
        hint = did_you_mean(column, map(str, frame))
        raise ConfigError(f"--client-column: expected a column of {raw.where}, found {column!r}.{hint}")
    if column == target:
        raise ConfigError(f"--client-column: {column!r} is what is predicted. Name another column.")
    sizes = frame[frame[target].notna()].groupby(column).size()
    if len(sizes) < 2:
        raise ConfigError(f"--client-column: {column!r} has {len(sizes)} values, so there is no federation.")
    made.kinds[client].pop(column)
    made.codes.pop(column, None)
    file = made.settings["files"][client]
    made.settings |= {"client_column": column, "files": file if isinstance(file, str) else made.settings["files"]}
    made.note("client_column", client, f"{len(sizes):,} clients of {sizes.min():,} to {sizes.max():,} rows")
    large = sizes[sizes >= _FEWEST_ROWS]
    if 2 <= len(large) < len(sizes):
        made.settings["least_rows"] = _FEWEST_ROWS
        made.note("least_rows", client, f"{len(sizes) - len(large):,} clients of fewer rows are left out")
        sizes = large
    made.rows = int(sizes.min())
