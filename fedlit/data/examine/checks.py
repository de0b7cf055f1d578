"""The checks of clients' tables, alone and together. Each check is a small function that makes notes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, is_number, owners
from fedlit.data.examine.leaks import leaks
from fedlit.data.note import Note
from fedlit.data.schema.cells import true_or_false
from fedlit.data.table import row_hashes
from fedlit.show.text import counted, shorten

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
_MOST_VALUES = 200
_MOST_GROUPS = 8  # clients of equal values are compared as one
MOST_PAIRS = 300
_FEWEST_COLUMNS, _BEYOND_CHANCE = 3, 5
_NO_MEANING = """
    years year yrs yr y days day d months month mo weeks mg dl mgdl kg g cm mm mmhg hg l ml mmol umol iu u percent pct
    in at of the value val
"""
_SAME = {"gender": "sex"}
_MEANINGS = (
    "m male man männlich", "f female woman w weiblich", "l left", "r right", "pos positive +", "neg negative -",
)  # fmt: skip
_MEANS = {word: place for place, words in enumerate(_MEANINGS) for word in words.split()}


def noted(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Yield the notes of reading, schema, labels and splitting."""
    for own in clients:
        for note in own.table.notes:
            if not isinstance(note, Note):
                note = Note(note.removeprefix(f"{own.client}: "), head=own.client)
            who = () if note == note.text else (own.client,)  # without a name before it, it is of all
            yield Note(note.text, note.kind, clients=who, column=note.column, fix=note.fix)


def untrainable(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find training rows from which nothing can be learnt."""
    for own in clients:
        rows = own.table.target.iloc[own.table.splits["train"]].dropna()
        values = [{*column} - {None} for column in zip(*rows, strict=True)] if own.task == "multi_label" else [{*rows}]
        if not len(rows):
            text = "no training row has a value to predict"
        elif own.task in ("classification", "multi_label") and all(len(held) < 2 for held in values):
            text = f"one value in all {len(rows):,} training rows: a classifier cannot be trained on it"
        elif own.task in ("regression", "counts") and not is_number(rows):
            text = f"values such as {rows.iloc[0]!r}, where task: {own.task} expects numbers"
        elif own.task == "counts" and min(values[0]) < 0:
            text = f"{min(values[0]):g} among what is to be counts: none can be below 0"
        elif own.task == "counts" and values[0] == {0}:
            text = f"0 in all {len(rows):,} training rows: no rate can be learnt from it"
        else:
            continue
        yield Note(text, "untrainable", clients=(own.client,), column=own.target)


def names(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find names of the same words, such as age and AGE_YEARS. No client has both."""
    who = {name: own for name, own in owners(clients).items() if len(own) < len(clients)}
    same: dict[str, list[str]] = {}
    for name in sorted(who, key=lambda own: (-len(who[own]), not own.islower(), len(own))):
        same.setdefault("".join(plain(name)), []).append(name)
    for first, *others in same.values():
        mine, ours = who[first][0].columns[first], {own.client for own in who[first]}
        for second in others:
            yours, at = who[second][0].columns[second], [own.client for own in who[second]]
            if ours & {*at}:
                continue  # two names at one client are two things
            ours |= {*at}
            text = f"{first!r} at {_who(who[first])}, {second!r} at {shorten(at, 4)}"
            fit = _fit(mine, yours)
            if not fit and (times := _times(mine, yours)) is not None:
                text += f", but of different size: median {_median(mine)} and {_median(yours)}{times}"
            elif mine.group != yours.group:
                text += f", but {_WORDS.get(mine.group)} and {_WORDS.get(yours.group)}"
            elif not fit:
                text += ", but with other values"
            fix = {"rename": {second: first}} if fit else None
            everybody = [*(own.client for own in who[first]), *at]
            yield Note(text, "name", clients=everybody, column=first, fix=fix, at=at)


def _who(clients: Sequence[ClientFacts]) -> str:
    return shorten([own.client for own in clients], 4)


def _median(column: ColumnFacts) -> str:
    return f"{column.quantiles[2]:,.5g}"


def _fit(one: ColumnFacts, other: ColumnFacts) -> bool:
    """Return whether two columns could hold the same thing."""
    if one.group != other.group:
        return False
    if one.values is not None and other.values is not None:
        first, second = ({str(value).casefold() for value in own.values or ()} for own in (one, other))
        return len(first & second) >= 0.5 * min(len(first), len(second))
    if not one.quantiles or not other.quantiles:
        return False
    (low, high), (least, most) = (own.quantiles[1:4:2] for own in (one, other))
    both = min(high, most) - max(low, least)
    return both >= 0 and both >= 0.2 * min(high - low, most - least)


def scales(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find numbers of one name that differ in size between clients, including targets."""
    held: dict[tuple[str, bool], dict[str, ColumnFacts]] = {}
    for own in clients:
        for target, columns in ((False, own.columns), (True, own.targets)):
            for name, column in columns.items():
                if column.group == "number" and column.quantiles:
                    held.setdefault((name, target), {})[own.client] = column
    for (name, target), columns in held.items():
        base = sorted(columns, key=lambda client: columns[client].quantiles[2])[(len(columns) - 1) // 2]
        apart = {client: times for client in columns if (times := _times(columns[base], columns[client])) is not None}
        if apart:
            told = shorten([f"{_median(columns[client])} at {client}{times}" for client, times in apart.items()])
            text = f"median {_median(columns[base])} at {base}, {told}"
            more = "; scores in units of the target can only be compared in one unit" * target
            yield Note(text + more, "scale", clients=(base, *apart), column=name)


def _times(one: ColumnFacts, other: ColumnFacts) -> str | None:
    """Describe how far the numbers of two columns are apart; return None if that is not odd."""
    if one.group != "number" or other.group != "number" or not one.quantiles or not other.quantiles:
        return None
    small, large = sorted((own.quantiles[1:4] for own in (one, other)), key=lambda own: own[1])
    if small[0] <= 0 or small[2] >= large[0]:  # quartiles overlap
        return None
    ratio, logs = large[1] / small[1], np.log(np.divide(large, small))
    for unit, words in sorted(_UNITS, key=lambda own: abs(np.log(ratio / own[0]))):
        if (np.abs(logs - np.log(unit)) < (_NEAR if unit < _FAR else _NEAR_AND_FAR)).all():
            return f" ({ratio:,.3g} times: {words}?)"
    return f" ({ratio:,.3g} times)" if ratio >= _FAR and (logs > np.log(_FAR / 2)).all() else None


def kinds(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find columns of one name whose values differ in kind."""
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
        flags = set(found) == {"number", "boolean"} and all({*own.columns[name].quantiles} <= {0, 1} for own in numbers)
        fix = {"types": {name: "boolean"}} if flags else None
        text = "; ".join(f"{_WORDS.get(kind, kind)} at {_who(who)}" for kind, who in found.items())
        everybody, at = [own.client for who in found.values() for own in who], [own.client for own in numbers]
        yield Note(text, "kind", clients=everybody, column=name, fix=fix, at=at)


def spellings(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find categories of one column, or classes of one target, that clients spell differently."""
    held: dict[tuple[str, str], dict[tuple[Any, ...], list[str]]] = {}
    for own in clients:
        for kind, columns in (("values", own.columns), ("labels", own.targets)):
            for name, column in columns.items():
                if column.values and column.kind == "categorical" and column.different <= _MOST_VALUES:
                    values = tuple(sorted(column.values, key=str))
                    held.setdefault((kind, name), {}).setdefault(values, []).append(own.client)
    for (kind, name), groups in held.items():
        for (ours, mine), (theirs, yours) in combinations(list(groups.items())[:_MOST_GROUPS], 2):
            if how := _odd(ours, theirs, kind == "labels"):
                text = f"{_shown(ours)} at {shorten(mine, 4)}, {_shown(theirs)} at {shorten(yours, 4)}: {how}"
                yield Note(text, kind, clients=(*mine, *yours), column=name)


def _shown(held: Sequence[Any]) -> str:
    return "/".join(map(str, held)) if len(held) <= 5 else f"{held[0]} … {held[-1]} ({len(held)})"


def _odd(ones: tuple[Any, ...], others: tuple[Any, ...], labels: bool) -> str:
    """Describe what is odd about two sets of categories or classes, if anything is."""
    first, second = ({str(own) for own in side} for side in (ones, others))
    if first == second:
        return "the same words, and numbers at one of them" if labels else ""
    if {*map(plainly, first)} == {*map(plainly, second)}:
        return "the same except for spelling"
    if labels and all(type(own) is int for own in (*ones, *others)):
        low, high = sorted(map(sorted, (ones, others)))
        if len(low) == len(high) and np.ptp(np.subtract(low, high)) == 0:
            return f"the same, counted from {low[0]} and from {high[0]}?"
        return "one counts further than the other" if low == [0, 1] and high[0] == 0 else ""
    return shorten([f"{one!r} and {other!r}" for one, other in spelt(first - second, second - first)], 4)


def rows(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find rows of two clients that are equal in all columns that both have. This works only if one
    process sees both.
    """
    known: dict[tuple[str, tuple[str, ...]], tuple[np.ndarray, np.ndarray]] = {}
    kinds = [{str(name): dtype.kind in "iuf" for name, dtype in own.table.features.dtypes.items()} for own in clients]
    for (one, ours), (other, theirs) in islice(combinations(zip(clients, kinds, strict=True), 2), MOST_PAIRS):
        columns = tuple(name for name in ours if name in theirs and ours[name] == theirs[name])
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for own in (one, other):
            if (own.client, columns) not in known:
                features = own.table.features[list(columns)]
                held = features.notna().sum(axis=1).to_numpy() >= _FEWEST_COLUMNS
                known[own.client, columns] = np.unique(row_hashes(features)[held], return_counts=True)
        (first, few), (second, many) = known[one.client, columns], known[other.client, columns]
        _, left, right = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        equal = int((few[left] * many[right]).sum())  # pairs of a row here and a row there
        within = sum(int((own * (own - 1)).sum()) for own in (few, many))  # as many as a table has by chance
        chance = (1 + within) / sum(max(int(own.sum()), 2) ** 2 for own in (few, many))
        if equal > _BEYOND_CHANCE * chance * int(few.sum()) * int(many.sum()):
            text = f"{counted(len(left), 'row')} of both clients are equal in all {len(columns)} common columns"
            yield Note(text, "rows", clients=(one.client, other.client))


def people(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find values of an identifier that two clients have. This works only if one process sees both."""
    for one, other in islice(combinations(clients, 2), MOST_PAIRS):
        for name, known in one.table.keys.items():
            if both := len(np.intersect1d(known, other.table.keys.get(name, ()), assume_unique=True)):
                text = f"both clients have {counted(both, 'value')}"
                yield Note(text, "people", clients=(one.client, other.client), column=name)


# ---------------------------------------------------------------------- names and values that may mean the same


def plain(name: str) -> list[str]:
    """Return the words of a name without units and other words that do not change its meaning.

    Example:
        >>> plain("AGE_YEARS"), plain("Age"), plain("day"), plain("sysBP (mmHg)")
        (['age'], ['age'], ['day'], ['sys', 'bp'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [word for word in re.split(r"[\W_]+", parted.casefold()) if word]
    return [_SAME.get(word, word) for word in words if word not in _NO_MEANING.split()] or words


def plainly(value: str) -> str:
    """Return a value without blanks, in lower case."""
    return "".join(value.casefold().split())


def spelt(ones: Collection[str], others: Collection[str]) -> list[tuple[str, str]]:
    """Pair values of two clients that are one word except for case and blanks, or words that are known to mean the
    same, among those that only one of them has.

    Example:
        >>> spelt({"M", "F"}, {"male", "female"}), spelt({"yes", "no"}, {"1", "0"})
        ([('F', 'female'), ('M', 'male')], [('no', '0'), ('yes', '1')])
        >>> spelt({"Bern"}, {"Basel", "bern "}), spelt({"A"}, {"B"})
        ([('Bern', 'bern ')], [])
    """
    every = [(one, other) for one in sorted(ones) for other in sorted(others)]
    if {true_or_false(own) for own in ones} == {true_or_false(own) for own in others} == {True, False}:
        return [(one, other) for one, other in every if true_or_false(one) is true_or_false(other)]
    return [(one, other) for one, other in every if _meaning(one) == _meaning(other)]


def _meaning(value: str) -> str | int:
    return _MEANS.get(plainly(value), plainly(value))


Check = Callable[[Sequence[ClientFacts]], Iterable[Note]]
OF_EACH: tuple[Check, ...] = (untrainable, leaks, rows, people, noted)
OF_SEVERAL: tuple[Check, ...] = (names, scales, kinds, spellings)
"""Checks of tables that need not have the same columns: of one table with a column of clients they say nothing."""
