"""The checks of clients' tables, alone and together. Each check is a small function that makes
notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, by_name, sampled
from fedlit.data.examine.leaks import leaks
from fedlit.data.examine.pairs import recodings
from fedlit.data.examine.roles import event_times, sampling_weights
from fedlit.data.note import Note
from fedlit.data.reading.options import ANY_UNIT, KINDS, Conversions
from fedlit.data.schema.cells import true_or_false
from fedlit.data.schema.convert import UNWRITTEN, conversion, is_conversion, likely_conversions
from fedlit.data.schema.detection import ROWS_THAT_TELL, names_rows
from fedlit.data.schema.numbers import same_unit
from fedlit.data.table import ClientTable, row_hashes
from fedlit.show.text import counted, shorten

MOST_PAIRS = 300  # of clients whose rows and identifiers are compared
_UNITS = (
    "years",
    "yrs",
    "months",
    "weeks",
    "days",
    "mg",
    "dl",
    "kg",
    "g",
    "cm",
    "mm",
    "mmhg",
    "ml",
    "l",
    "percent",
)
# times that numbers differ: in a constant factor, in any way; what is constant
_TWICE = 2
_FAR = 10
_EVEN = 1.05
_IDENTIFIER = "left out (identifier)"
_NOT_USED = ("constant", "empty", "dropped")
_MOST_VALUES = 200
_FEW_VALUES = 5
_MOST_GROUPS = 8  # clients of equal values are compared as one
_FEWEST_COLUMNS = 3
_BEYOND_CHANCE = 5
_LEAST_SHARED = 0.02  # of the smaller table's rows, below which scores hardly change
# small clients whose values are looked at together
_FEWEST_TOGETHER = 5
_MOST_TOGETHER = 200


def noted(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Yield the notes of reading, schema, labels and splitting."""
    for table in tables:
        for note in table.notes:
            if not isinstance(note, Note):
                note = Note(note.removeprefix(f"{table.name}: "), head=table.name)
            # of one file with a column of clients, what is said of the file names no client
            whole = note.startswith(f"{note.column}: ") if note.column else note == note.text
            yield note.copied(clients=() if whole else (table.name,), column=note.column)


def untrainable(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find training rows from which nothing can be learnt."""
    for table in tables:
        rows = table.target.iloc[table.splits["train"]].dropna()
        labels = zip(*rows, strict=True) if isinstance(table.target.name, tuple) else [rows]
        if all(len({*column} - {None}) < 2 for column in labels):
            name = (
                ", ".join(table.target.name)
                if isinstance(table.target.name, tuple)
                else str(table.target.name)
            )
            text = (
                f"{name} has one value or none in all {len(rows):,} training rows, from which "
                "nothing can be learnt "
            )
            text += "alone: leave the client out, or say why it takes part"
            either: list[dict[str, Any]] = [{"leave_out": []}]  # these clients
            yield Note(text, "untrainable", clients=(table.name,), alternatives=either)


def rows(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find rows of two clients that are equal in all columns that both have. This works only if one
    process sees both.
    """
    known: dict[tuple[str, tuple[str, ...]], tuple[np.ndarray, np.ndarray]] = {}
    kinds = [
        {str(name): dtype.kind in "iuf" for name, dtype in own.features.dtypes.items()}
        for own in tables
    ]
    for (one, ours), (other, theirs) in islice(
        combinations(zip(tables, kinds, strict=True), 2), MOST_PAIRS
    ):
        columns = tuple(name for name in ours if name in theirs and ours[name] == theirs[name])
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for own in (one, other):
            if (own.name, columns) not in known:
                features = own.features[list(columns)]
                held = features.notna().sum(axis=1).to_numpy() >= _FEWEST_COLUMNS
                known[own.name, columns] = np.unique(row_hashes(features)[held], return_counts=True)
        (first, few), (second, many) = known[one.name, columns], known[other.name, columns]
        _, left, right = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        equal = int((few[left] * many[right]).sum())  # pairs of a row here and a row there
        # as many as a table has by chance
        within = sum(int((own * (own - 1)).sum()) for own in (few, many))
        chance = (1 + within) / sum(max(int(own.sum()), 2) ** 2 for own in (few, many))
        shared = len(left) >= _LEAST_SHARED * min(int(few.sum()), int(many.sum()))
        if shared and equal > _BEYOND_CHANCE * chance * int(few.sum()) * int(many.sum()):
            text = (
                f"{counted(len(left), 'row')} of both are equal in all {len(columns)} common "
                "columns; if they are "
            )
            text += "the same people, scores are too good: leave them out at one client"
            yield Note(text, "rows", clients=(one.name, other.name))


def people(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find values of an identifier that two clients have. This works only if one process sees
    both.
    """
    for one, other in islice(combinations(tables, 2), MOST_PAIRS):
        for name, known in one.keys.items():
            both = len(np.intersect1d(known, other.keys.get(name, ()), assume_unique=True))
            if both > 1:
                text = (
                    f"both clients have {counted(both, 'value')}; if they are the same people, "
                    "leave them out at "
                )
                text += "one client; if each client counts its own, nothing is wrong"
                yield Note(text, "people", clients=(one.name, other.name), column=name)


def identifiers(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find columns that have another value in each row of clients whose own rows are too few to
    tell.
    """
    small = [
        table
        for table in tables
        if table.schema is not None and len(table.features) < ROWS_THAT_TELL
    ]
    if len(small) < _FEWEST_TOGETHER:
        return
    chosen = [small[place] for place in sampled(np.arange(len(small)), _MOST_TOGETHER).tolist()]
    cells = dict[str, list[pd.Series]]()
    for table in chosen:
        for name, column in table.features.items():
            if str(name) in table.categorical or names_rows(str(name)):
                cells.setdefault(str(name), []).append(column.dropna())
    for name, columns in cells.items():
        rows = sum(map(len, columns))
        enough = len(columns) >= _FEWEST_TOGETHER and rows >= 2 * ROWS_THAT_TELL
        if enough and pd.concat(columns).nunique() == rows:
            text = (
                f"has a different value in each of {rows:,} rows of {len(columns):,} small "
                "clients, as an "
            )
            text += "identifier has"
            holders = [table.name for table in tables if name in table.features]
            yield Note(
                text,
                "identifier",
                clients=holders,
                column=name,
                fix={"types": {name: "identifier"}},
            )


# ---------------------------------------------------------------------- between clients


def names(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find names of the same words, such as age and AGE_YEARS. No client has both."""
    held = by_name(clients)
    same: dict[str, list[str]] = {}
    for name in sorted(held, key=lambda own: -len(held[own])):
        words = [word for word in re.split(r"[\W_]+", name.casefold()) if word not in _UNITS]
        same.setdefault("".join(words) or name, []).append(name)
    for first, *others in same.values():
        ours = list(held[first])
        taken = {*held[first]}
        for second in others:
            theirs = list(held[second])
            if taken & {*theirs}:
                continue  # two names at one client are two things
            taken |= {*theirs}
            mine = held[first][ours[0]]
            yours = held[second][theirs[0]]
            text = (
                f"{_shown(first, mine)} at {shorten(ours, 4)}, {_shown(second, yours)} at "
                f"{shorten(theirs, 4)}: if "
            )
            text += "they are the same, give them one name, in one unit"
            rename = [{"rename": {second: first}}] if mine.kind == yours.kind else []
            fix = rename[0] if rename and _same_size(mine, yours) else None
            either = [] if fix else rename
            yield Note(
                text,
                "name",
                clients=(*ours, *theirs),
                column=first,
                fix=fix,
                alternatives=either,
                at=theirs,
            )


def _same_size(one: ColumnFacts, other: ColumnFacts) -> bool:
    """Return whether two columns hold categories, or numbers that need not be of two units."""
    if not (one.quantiles and other.quantiles):
        return one.kind == other.kind
    return not _times(one.quantiles[1:4], other.quantiles[1:4])


def _shown(name: str, column: ColumnFacts) -> str:
    return f"{name!r} ({f'median {column.quantiles[2]:,.5g}' if column.quantiles else column.kind})"


def scales(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find numbers of one name that differ in size between clients, including targets."""
    for name, columns in by_name(clients).items():
        yield from _scales(name, columns)
    for name, columns in by_name(clients, targets=True).items():
        yield from _scales(
            name, columns, "; scores in units of the target can only be compared in one unit"
        )


def _scales(name: str, columns: Mapping[str, ColumnFacts], more: str = "") -> Iterator[Note]:
    quartiles = {
        client: own.quantiles[1:4] for client, own in columns.items() if own.kind == "numeric"
    }
    clients = sorted(
        (client for client in quartiles if quartiles[client]),
        key=lambda client: quartiles[client][1],
    )
    base = clients[(len(clients) - 1) // 2] if clients else ""
    units = {same_unit(columns[client].unit) for client in clients} - {""}
    if len(units) > 1:
        return  # which are found as units
    times = {client: _times(quartiles[base], quartiles[client]) for client in clients}
    middle = clients.index(base) if clients else 0
    for side in (clients[:middle], clients[middle:]):
        apart = [client for client in side if times[client]]
        if not apart:
            continue
        conversions = likely_conversions(quartiles[apart[len(apart) // 2]], quartiles[base])
        told = [f"{quartiles[own][1]:,.5g} at {own} ({times[own]:,.3g} times)" for own in apart]
        text = (
            f"median {quartiles[base][1]:,.5g} at {base}, {shorten(told)}; if the units differ, "
            f"convert one{more}"
        )
        if conversions:
            text += f" ({' or '.join(conversions)}?)"
        either = [_converting(name, {ANY_UNIT: UNWRITTEN[own]}) for own in conversions]
        yield Note(
            text, "scale", clients=(base, *apart), column=name, alternatives=either, at=apart
        )


def _converting(name: str, conversions: Conversions) -> dict[str, Any]:
    """Return the setting that converts a column's numbers."""
    changes = dict[str, Any]()
    for unit, (factor, offset) in conversions.items():
        times, plus = (float(f"{own:.12g}") for own in (factor, offset))
        changes[unit] = [times, plus] if plus else times
    return {"convert": {name: changes}}


def _times(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how many times the quartiles (3,) of two clients differ; 0 if that is not odd. A unit
    gives a constant factor.
    """
    small, large = sorted((one, other), key=lambda own: own[1])
    if small[0] <= 0 or small[2] >= large[0]:  # quartiles overlap
        return 0.0
    low = min(ratios := [big / few for big, few in zip(large, small, strict=True)])
    high = max(ratios)
    constant = low >= _TWICE and high <= _EVEN * low
    odd = (constant and is_conversion(large, small)) or (ratios[1] >= _FAR and low > _FAR / 2)
    return ratios[1] if odd else 0.0


def units(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find numbers of one name that clients write with different units or currencies."""
    for name, columns in [*by_name(clients).items(), *by_name(clients, targets=True).items()]:
        found = dict[str, list[str]]()
        for client, own in columns.items():
            if own.kind == "numeric" and own.unit:
                found.setdefault(same_unit(own.unit), []).append(client)
        (first, ours), *others = found.items() or [("", [])]
        for unit, theirs in others:
            text = (
                f"{first!r} at {shorten(ours, 4)}, {unit!r} at {shorten(theirs, 4)}; convert "
                "one, or give them two "
            )
            text += "names"
            change = conversion(unit, first)
            either = [_converting(name, {unit: change})] if change is not None else []
            either.append({"rename": {name: f"{name} ({unit})"}})
            yield Note(
                text, "unit", clients=(*ours, *theirs), column=name, alternatives=either, at=theirs
            )


def kinds(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find columns of one name whose values differ in kind."""
    for name, columns in by_name(clients).items():
        found: dict[str, list[str]] = {}
        for own in clients:
            if own.client in columns:
                found.setdefault(columns[own.client].kind, []).append(own.client)
            elif own.left_out.get(name, "dropped") not in _NOT_USED:
                found.setdefault(f"left out ({own.left_out[name]})", []).append(own.client)
        if len(found) > 1:
            numbers = found.get("numeric", [])
            values = {number for client in numbers for number in columns[client].quantiles}
            fix = (
                {"types": {name: "boolean"}}
                if {*found} == {"numeric", "boolean"} and values <= {0, 1}
                else None
            )
            text = "; ".join(f"{kind} at {shorten(who, 4)}" for kind, who in found.items())
            text += "; columns are common by name and kind"
            everyone = [*chain(*found.values())]
            others = [kind for kind in found if kind in KINDS] if _IDENTIFIER in found else []
            either = [{"types": {name: kind}} for kind in ("identifier", *others)] if others else []
            at = numbers if fix else everyone
            words = {
                value
                for client in found.get("categorical", [])
                for value in columns[client].values or ()
            }
            if {*found} == {"numeric", "categorical"} and len(words) == 2 and _are_two(values):
                either = _recoding(
                    name, sorted(words, key=str), [f"{min(values):g}", f"{max(values):g}"]
                )
                at = numbers
            if not fix and not either and {*found} <= {*KINDS}:
                rare = min(found, key=lambda kind: len(found[kind]))
                either = [{"rename": {name: f"{name} ({rare})"}}, {"drop": [name]}]
                at = found[rare]
            yield Note(
                text, "kind", clients=everyone, column=name, fix=fix, alternatives=either, at=at
            )


def _are_two(quantiles: Collection[float]) -> bool:
    """Return whether quantiles can be those of two numbers, between which a median may lie."""
    if len({*quantiles}) < 2:
        return False
    middle = (min(quantiles) + max(quantiles)) / 2
    return {*quantiles} <= {min(quantiles), middle, max(quantiles)}


def spellings(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find categories of one column, or classes of one target, that clients spell differently."""
    for kind in ("values", "labels"):
        for name, columns in by_name(clients, targets=kind == "labels").items():
            groups: dict[tuple[Any, ...], list[str]] = {}
            for client, own in columns.items():
                if own.kind == "categorical" and 0 < len(own.values or ()) <= _MOST_VALUES:
                    groups.setdefault(tuple(sorted(own.values or (), key=str)), []).append(client)
            for (ours, mine), (theirs, yours) in combinations(
                list(groups.items())[:_MOST_GROUPS], 2
            ):
                if _alike(ours, theirs, kind == "labels"):
                    first, second = (
                        shorten([*map(str, values)], _FEW_VALUES) for values in (ours, theirs)
                    )
                    text = (
                        f"{first} at {shorten(mine, 4)}; {second} at {shorten(yours, 4)}; if "
                        "some mean the same, "
                    )
                    text += "write them in the same way"
                    yield Note(
                        text,
                        kind,
                        clients=(*mine, *yours),
                        column=name,
                        alternatives=_recoding(name, ours, theirs),
                        at=yours,
                    )


def _recoding(name: str, ones: Sequence[Any], others: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the settings that write a column's values as those of another client."""
    return [{"values": {name: values}} for values in recodings(ones, others)]


def _alike(ones: Sequence[Any], others: Sequence[Any], labels: bool) -> bool:
    """Return whether two sets of values could mean the same, or in part, though they are not
    written alike.
    """
    # classes 0 and 1 beside 1 and 2, or beside 0 to 4
    if all(type(own) is int for own in (*ones, *others)):
        low, high = sorted(map(sorted, (ones, others)))
        shifted = len(low) > 1 and [own + 1 for own in low] == high
        return labels and ((low == [0, 1] and high[0] == 0) or shifted)
    first, second = (
        {"".join(str(own).casefold().split()): own for own in side} for side in (ones, others)
    )
    if any(first[word] != second[word] for word in first.keys() & second):
        return True
    left = first.keys() - second
    right = second.keys() - first
    if {*map(true_or_false, left)} == {*map(true_or_false, right)} == {True, False}:
        return True
    if len(first) == len(second) == 2 and not first.keys() & second:
        return True  # alive and dead beside vivant and mort
    few = len(first) <= _FEW_VALUES >= len(second)  # M and male
    words = [{word for word in side if word.isalpha()} for side in (left, right)]
    return few and any(
        one.startswith(other) or other.startswith(one) for one in words[0] for other in words[1]
    )


Check = Callable[[Sequence[ClientTable]], Iterable[Note]]
Comparison = Callable[[Sequence[ClientFacts]], Iterable[Note]]
CHECKS: tuple[Check, ...] = (
    untrainable,
    leaks,
    rows,
    people,
    identifiers,
    sampling_weights,
    event_times,
    noted,
)
BLOCKING: tuple[Check, ...] = (leaks,)
"""Those of the checks whose findings may forbid a verdict."""
COMPARISONS: tuple[Comparison, ...] = (names, scales, units, kinds, spellings)
"""Checks of tables that need not have the same columns: of one table with a column of clients they
say nothing."""
