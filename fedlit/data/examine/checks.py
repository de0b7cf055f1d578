"""What is odd in clients' tables, alone and beside each other: a list of small checks, each makes notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, is_number, named, owners, sampled
from fedlit.data.examine.leaks import leaks
from fedlit.data.examine.names import pairs, spelt
from fedlit.data.note import Note
from fedlit.show.text import counted, shorten

__all__ = ["MOST_PAIRS", "OF_EACH", "OF_SEVERAL"]

_UNITS = (
    (365.25, "days and years"), (30.44, "days and months"), (12, "months and years"), (7, "days and weeks"),
    (24, "hours and days"), (60, "minutes and hours"), (1000, "a factor of 1,000, as of mg and g"),
    (100, "a factor of 100, as of cm and m, or percent and shares"), (10, "a factor of 10, as of mm and cm"),
    (2.54, "cm and inches"), (2.2046, "pounds and kg"), (18.016, "mg/dl and mmol/l of glucose"),
    (38.67, "mg/dl and mmol/l of cholesterol"), (88.42, "µmol/l and mg/dl of creatinine"),
)  # fmt: skip
_FAR = 5.0  # times: from here on the size itself is odd
_NEAR, _NEAR_AND_FAR = 0.05, 0.4  # of a logarithm: quartiles' ratios that are one of units
_WORDS = {"number": "numbers", "categorical": "categories", "boolean": "yes or no", "date": "dates"}
_NOT_USED = ("constant", "empty", "dropped")
_FEW_CODES, _MOST_VALUES = 20, 200
_MOST_GROUPS = 8  # clients of equal names or values are compared as one
_MOST_ROWS, MOST_PAIRS = 1_000_000, 300
_FEWEST_COLUMNS, _FEWEST_ROWS = 3, 20
_BEYOND_CHANCE = 50  # times as many equal rows as chance would make


def noted(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """What reading, schema, labels and splitting found."""
    for own in clients:
        for note in own.table.notes:
            if not isinstance(note, Note):
                note = Note(note.removeprefix(f"{own.client}: "), head=own.client)
            who = () if note == note.text else (own.client,)  # without a name before it, it is of all
            yield Note(note.text, note.kind, clients=who, column=note.column, fix=note.fix)


def untrainable(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Training rows from which nothing can be learnt."""
    for own in clients:
        rows = own.table.target.iloc[own.table.splits["train"]].dropna()
        values = [set(column) - {None} for column in zip(*rows, strict=True)] if own.labels else [set(rows)]
        if not len(rows):
            text = "no training row has a value to predict"
        elif own.task in ("classification", "multi_label") and all(len(held) < 2 for held in values):
            text = f"one value in all {len(rows):,} training rows: a classifier cannot be trained on it"
        elif own.task == "counts" and values[0] == {0}:
            text = f"0 in all {len(rows):,} training rows: no rate can be learnt from it"
        else:
            continue
        yield Note(text, "untrainable", clients=(own.client,), column=own.target)


def names(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Two names for what looks the same: each pair once, whoever has them."""
    who, renamed = owners(clients), set[tuple[str, str]]()
    sets = list(dict.fromkeys(tuple(own.columns) for own in clients))[:_MOST_GROUPS]
    found: dict[tuple[str, ...], bool] = {}
    for ours, theirs in combinations(sets, 2):
        one, other = ([name for name in mine if name not in yours] for mine, yours in ((ours, theirs), (theirs, ours)))
        for first, second, same in pairs(one, other):
            found.setdefault(tuple(sorted((first, second))), same)
    for (first, second), same in found.items():
        if {own.client for own in who[first]} & {own.client for own in who[second]}:
            continue  # two names at one client are two things
        if (len(who[first]), first.islower(), -len(first)) < (len(who[second]), second.islower(), -len(second)):
            first, second = second, first
        mine, yours = who[first][0].columns[first], who[second][0].columns[second]
        fit, at = _fit(mine, yours), [own.client for own in who[second]]
        taken = {(client, first) for client in at} & renamed  # two names of one client must not become one
        if not (fit or same) or taken:
            continue
        text = f"{first!r} at {_who(who[first])}, {second!r} at {named(at)}"
        if not fit and (times := _times(mine, yours)) is not None:
            text += f", but of another size: median {_median(mine)} and {_median(yours)}{times}"
        elif mine.group != yours.group:
            text += f", but {_WORDS.get(mine.group)} here and {_WORDS.get(yours.group)} there"
        fix = {"rename": {second: first}} if fit and same else None
        renamed |= {(client, first) for client in at} if fix else set()
        both = [own.client for own in who[first]] + at
        yield Note(text, "name", clients=both, column=first, fix=fix, at=at)


def _who(clients: Sequence[ClientFacts]) -> str:
    return named([own.client for own in clients])


def _median(column: ColumnFacts) -> str:
    return f"{column.quantiles[3]:,.5g}"


def _fit(one: ColumnFacts, other: ColumnFacts) -> bool:
    """Whether two columns could hold the same thing."""
    if one.group != other.group:
        return False
    if one.values is not None and other.values is not None:
        first, second = ({value.casefold() for value in own.values or ()} for own in (one, other))
        return len(first & second) >= 0.5 * min(len(first), len(second))
    if not one.quantiles or not other.quantiles:
        return False
    (low, high), (least, most) = (own.quantiles[2:5:2] for own in (one, other))
    both = min(high, most) - max(low, least)
    return both >= 0 and both >= 0.2 * min(high - low, most - least)


def scales(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Numbers of one name that clients have in different sizes, targets among them."""
    held: dict[tuple[str, bool], dict[str, ColumnFacts]] = {}
    for own in clients:
        for name, column in own.columns.items():
            if column.group == "number" and column.quantiles:
                held.setdefault((name, False), {})[own.client] = column
        if own.quantiles:
            held.setdefault((own.target, True), {})[own.client] = ColumnFacts("numeric", 0.0, 0, own.quantiles)
    for (name, target), columns in held.items():
        base = sorted(columns, key=lambda client: columns[client].quantiles[3])[(len(columns) - 1) // 2]
        apart = {client: times for client in columns if (times := _times(columns[base], columns[client])) is not None}
        if apart:
            told = shorten([f"{_median(columns[client])} at {client}{times}" for client, times in apart.items()])
            text = f"median {_median(columns[base])} at {base}, {told}"
            more = "; scores in units of the target are compared in one unit only" * target
            yield Note(text + more, "scale", clients=(base, *apart), column=name)


def _times(one: ColumnFacts, other: ColumnFacts) -> str | None:
    """How far the numbers of two columns are apart, in words; None where that is not odd."""
    if one.group != "number" or other.group != "number" or not one.quantiles or not other.quantiles:
        return None
    first, second = sorted((np.asarray(own.quantiles[2:5]) for own in (one, other)), key=lambda own: float(own[1]))
    if first[0] <= 0 or second[0] <= 0 or first[2] >= second[0]:  # quartiles overlap
        return None
    ratio, logs = float(second[1] / first[1]), np.log(second / first)
    for unit, words in sorted(_UNITS, key=lambda own: abs(np.log(ratio / own[0]))):
        if (np.abs(logs - np.log(unit)) < (_NEAR if unit < _FAR else _NEAR_AND_FAR)).all():
            return f" ({ratio:,.3g} times: {words}?)"
    return f" ({ratio:,.3g} times)" if ratio >= _FAR and (logs > np.log(_FAR / 2)).all() else None


def kinds(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """One name, values of another kind."""
    for name in owners(clients):
        found: dict[str, list[ClientFacts]] = {}
        for own in clients:
            if name in own.columns:
                found.setdefault(own.columns[name].group, []).append(own)
            elif own.left_out.get(name, "dropped") not in _NOT_USED:
                found.setdefault(f"left out ({own.left_out[name]})", []).append(own)
        if len(found) < 2:
            continue
        numbers = found.get("number", [])
        columns, fix = [own.columns[name] for own in numbers], None
        if set(found) == {"number", "boolean"} and all(set(own.quantiles) <= {0, 1} for own in columns):
            fix = {"types": {name: "boolean"}}
        elif set(found) == {"number", "categorical"} and all(own.different <= _FEW_CODES for own in columns):
            fix = {"types": {name: "categorical"}}
        text = "; ".join(f"{_WORDS.get(kind, kind)} at {_who(who)}" for kind, who in found.items())
        everybody, at = [own.client for who in found.values() for own in who], [own.client for own in numbers]
        yield Note(text, "kind", clients=everybody, column=name, fix=fix, at=at)


def spellings(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Categories of one column, or classes of one target, that clients write in two ways."""
    held: dict[tuple[str, str], dict[tuple[Any, ...], list[str]]] = {}
    for own in clients:
        columns = {name: column for name, column in own.columns.items() if column.kind == "categorical"}
        for name, column in columns.items():
            if column.values and column.different <= _MOST_VALUES:
                held.setdefault(("values", name), {}).setdefault(tuple(sorted(column.values)), []).append(own.client)
        if own.classes:
            classes = tuple(sorted(own.classes, key=str))
            held.setdefault(("labels", own.target), {}).setdefault(classes, []).append(own.client)
    for (kind, name), groups in held.items():
        for (ours, mine), (theirs, yours) in combinations(list(groups.items())[:_MOST_GROUPS], 2):
            if how := _alike(ours, theirs):
                text = f"{_shown(ours)} at {named(mine)}, {_shown(theirs)} at {named(yours)}: {how}"
                yield Note(text, kind, clients=(*mine, *yours), column=name)


def _shown(held: Sequence[Any]) -> str:
    return "/".join(map(str, held)) if len(held) <= 5 else f"{held[0]} … {held[-1]} ({len(held)})"


def _alike(ones: tuple[Any, ...], others: tuple[Any, ...]) -> str:
    """What is odd about two sets of categories or classes, if anything is."""
    words = [{str(own) for own in side} for side in (ones, others)]
    low = [{own.casefold().strip() for own in side} for side in words]
    if low[0] == low[1]:
        return "the same but for spelling" if words[0] != words[1] else "the same words, and numbers at one of them"
    if all(type(own) is int for own in (*ones, *others)):
        first, second = sorted(ones), sorted(others)
        if len(first) == len(second) and np.ptp(np.subtract(first, second)) == 0:
            return f"the same, counted from {first[0]} and from {second[0]}?"
        further = [0, 1] in (first, second) and first[0] == second[0] == 0
        return "one counts further than the other" if further else ""
    return shorten([f"{one!r} and {other!r}" for one, other in spelt(words[0] - words[1], words[1] - words[0])], 4)


def rows(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Rows that stand at two clients: equal in all columns that both have. Only where one process sees both."""
    known: dict[tuple[str, tuple[str, ...]], tuple[pd.DataFrame, np.ndarray]] = {}
    for one, other in islice(combinations(clients, 2), MOST_PAIRS):
        ours, theirs = one.table.features, other.table.features
        both = [name for name in map(str, ours) if name in theirs]
        columns = tuple(name for name in both if is_number(ours[name]) == is_number(theirs[name]))
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for own in (one, other):
            if (own.client, columns) not in known:
                known[own.client, columns] = _hashed(own, columns)
        (first, left), (second, right) = known[one.client, columns], known[other.client, columns]
        same = len(np.intersect1d(left, right))
        copied = same >= max(_FEWEST_ROWS, 0.9 * min(len(left), len(right)))  # however few values
        if copied or (same and same > _BEYOND_CHANCE * len(left) * len(right) * _by_chance(first, second)):
            text = f"{counted(same, 'row')} of both are equal in all {len(columns)} common columns"
            yield Note(text, "rows", clients=(one.client, other.client))


def _hashed(own: ClientFacts, columns: tuple[str, ...]) -> tuple[pd.DataFrame, np.ndarray]:
    """A client's rows, plain, and (n,) hashes of different ones."""
    frame = own.table.features[list(columns)]
    frame = frame.iloc[sampled(np.arange(len(frame)), _MOST_ROWS)]
    frame = frame[frame.notna().sum(axis=1) >= _FEWEST_COLUMNS]
    frame = frame.astype({name: np.float64 if is_number(cells) else str for name, cells in frame.items()})
    return frame, np.unique(pd.util.hash_pandas_object(frame, index=False).to_numpy())


def _by_chance(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """How likely two rows would be equal if columns had nothing to do with each other. Columns of two values say
    nothing: they often depend on each other.
    """
    likely = 1.0
    for name in one:
        ours, theirs = (own[name].value_counts(normalize=True, dropna=False) for own in (one, other))
        if max(len(ours), len(theirs)) > 2:
            likely *= float((ours * theirs.reindex(ours.index).fillna(0)).sum())
    return likely


Check = Callable[[Sequence[ClientFacts]], Iterable[Note]]
OF_EACH: tuple[Check, ...] = (untrainable, leaks, rows, noted)
OF_SEVERAL: tuple[Check, ...] = (names, scales, kinds, spellings)
"""Checks of tables that need not have the same columns: of one table with a column of clients they say nothing."""
