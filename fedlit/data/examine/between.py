"""What is odd between clients' tables: a list of small checks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, is_number, named, sampled
from fedlit.data.examine.names import pairs, spelt
from fedlit.data.note import Note
from fedlit.data.schema.cells import true_or_false
from fedlit.show.text import counted, shorten

__all__ = ["MOST_PAIRS", "kinds", "labels", "names", "owners", "rows", "scales", "values"]

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


def owners(clients: Sequence[ClientFacts]) -> dict[str, list[ClientFacts]]:
    """Column → the clients that have it."""
    made: dict[str, list[ClientFacts]] = {}
    for own in clients:
        for name in own.columns:
            made.setdefault(name, []).append(own)
    return made


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


def values(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Categories of one column that two clients spell in two ways."""
    for name, who in owners(clients).items():
        sets: dict[frozenset[str], list[str]] = {}
        for own in who:
            column = own.columns[name]
            if column.kind == "categorical" and column.values and column.different <= _MOST_VALUES:
                sets.setdefault(frozenset(column.values), []).append(own.client)
        for (ours, mine), (theirs, yours) in combinations(list(sets.items())[:_MOST_GROUPS], 2):
            if alike := spelt(ours - theirs, theirs - ours):
                shown = shorten([f"{one!r} and {other!r}" for one, other in alike], 4)
                text = f"at {named(mine)} and at {named(yours)}: {shown}"
                yield Note(text, "values", clients=(*mine, *yours), column=name)
                break


def labels(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Labels of clients that look alike and are not the same."""
    groups: dict[tuple[Any, ...], list[ClientFacts]] = {}
    for own in clients:
        if own.classes:
            groups.setdefault(tuple(sorted(own.classes, key=str)), []).append(own)
    for (ours, mine), (theirs, yours) in combinations(list(groups.items())[:_MOST_GROUPS], 2):
        same = {own.target for own in mine} & {own.target for own in yours}
        if how := _alike(ours, theirs, bool(same)):
            ones, others = ([own for own in who if not same or own.target in same] for who in (mine, yours))
            text = f"{_shown(ours)} at {_who(ones)}, {_shown(theirs)} at {_who(others)}: {how}"
            column = next(iter(same), mine[0].target)
            yield Note(text, "labels", clients=[own.client for own in (*ones, *others)], column=column)


def _shown(held: Collection[Any]) -> str:
    own = list(map(str, held))
    return "/".join(own) if len(own) <= 5 else f"{own[0]} … {own[-1]} ({len(own)})"


def _alike(ones: tuple[Any, ...], others: tuple[Any, ...], same_target: bool) -> str:
    """What is odd about two sets of labels, if anything is."""
    words = [{str(own) for own in side} for side in (ones, others)]
    low = [{own.casefold().strip() for own in side} for side in words]
    truth = [{true_or_false(own) for own in side} for side in (ones, others)]
    if low[0] == low[1]:
        return "the same but for spelling" if words[0] != words[1] else "the same words, and numbers at one of them"
    if all(type(own) is int for own in (*ones, *others)):
        first, second = sorted(ones), sorted(others)
        if len(first) == len(second) and np.ptp(np.subtract(first, second)) == 0:
            return f"the same, counted from {first[0]} and from {second[0]}?"
        further = [0, 1] in (first, second) and first[0] == second[0] == 0
        return "one counts further than the other" if further and same_target else ""
    if len(ones) == len(others) == 2 and truth[0] == truth[1] == {True, False}:
        return "two ways to say yes and no"
    alike = spelt(words[0] - words[1], words[1] - words[0]) if same_target else []
    return ", ".join(f"{one!r} and {other!r}" for one, other in alike[:3])


def rows(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Rows that stand at two clients: equal in all columns that both have. Only where one process sees both."""
    known: dict[tuple[str, tuple[str, ...]], _Rows] = {}
    for one, other in islice(combinations(clients, 2), MOST_PAIRS):
        ours, theirs = one.table.features, other.table.features
        both = [name for name in map(str, ours) if name in theirs]
        columns = tuple(name for name in both if is_number(ours[name]) == is_number(theirs[name]))
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for own in (one, other):
            if (own.client, columns) not in known:
                known[own.client, columns] = _Rows(own, columns)
        first, second = known[one.client, columns], known[other.client, columns]
        same = len(np.intersect1d(first.hashes, second.hashes))
        copied = same >= max(_FEWEST_ROWS, 0.9 * min(len(first.hashes), len(second.hashes)))  # however few values
        if copied or (same and same > _BEYOND_CHANCE * first.alike_by_chance(second)):
            text = f"{counted(same, 'row')} of both are equal in all {len(columns)} common columns"
            yield Note(text, "rows", clients=(one.client, other.client))


class _Rows:
    """Different rows of a client in some columns, as numbers."""

    def __init__(self, own: ClientFacts, columns: tuple[str, ...]) -> None:
        frame = own.table.features[list(columns)]
        frame = frame.iloc[sampled(np.arange(len(frame)), _MOST_ROWS)]
        frame = frame[frame.notna().sum(axis=1) >= _FEWEST_COLUMNS]
        self.plain = pd.DataFrame(
            {name: cells.astype(np.float64) if is_number(cells) else cells.astype(str) for name, cells in frame.items()}
        )
        self.hashes = np.unique(pd.util.hash_pandas_object(self.plain, index=False).to_numpy())

    def alike_by_chance(self, other: _Rows) -> float:
        """How many pairs of rows would be equal if columns had nothing to do with each other. Columns of two values say
        nothing: they often depend on each other.
        """
        expected = float(len(self.hashes)) * len(other.hashes)
        for name in self.plain:
            ours, theirs = (own.plain[name].value_counts(normalize=True, dropna=False) for own in (self, other))
            if max(len(ours), len(theirs)) > 2:
                expected *= float((ours * theirs.reindex(ours.index).fillna(0)).sum())
        return expected
