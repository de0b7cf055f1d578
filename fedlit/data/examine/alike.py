"""Categories, labels and rows of several clients beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.examine.facts import ClientFacts, is_number, sampled
from fedlit.data.examine.kinds import named
from fedlit.data.note import Note
from fedlit.data.schema.cells import true_or_false
from fedlit.data.table import ClientTable
from fedlit.show.text import counted

__all__ = ["same_labels", "same_rows", "same_values"]

_MOST_VALUES = 200  # of a column whose values are compared
_MOST_GROUPS = 8  # sets of values of one column that are compared
_MOST_ROWS = 1_000_000
_MOST_PAIRS = 300
_FEWEST_COLUMNS = 3
_BEYOND_CHANCE = 50  # times as many equal rows as chance would make
_FEW = 20  # different rows of a table that are all at another client
_TINY = 1e-6


def same_values(clients: Sequence[ClientFacts]) -> list[Note]:
    """Categories of one column that two clients spell in two ways."""
    sets: dict[str, dict[frozenset[str], list[str]]] = {}
    for own in clients:
        for name, column in own.columns.items():
            if column.kind == "categorical" and column.values and column.different <= _MOST_VALUES:
                sets.setdefault(name, {}).setdefault(frozenset(column.values), []).append(own.client)
    found = []
    for name, groups in sets.items():
        for (ours, mine), (theirs, yours) in combinations(list(groups.items())[:_MOST_GROUPS], 2):
            if alike := _spelt(ours - theirs, theirs - ours):
                shown = ", ".join(f"{one!r} and {other!r}" for one, other in alike[:4])
                what = f"at {named(mine)} and at {named(yours)}: {shown}{', …' if len(alike) > 4 else ''}"
                advice = "If they are the same, write them alike in the files: now they are two categories."
                found.append(Note(what, "values", clients=(*mine, *yours), column=name, advice=advice))
                break
    return found


def _spelt(ones: frozenset[str], others: frozenset[str]) -> list[tuple[str, str]]:
    """Values of two clients that look like one, of those that only one of them has.

    Example:
        >>> _spelt(frozenset({"M", "F"}), frozenset({"male", "female"}))
        [('F', 'female'), ('M', 'male')]
        >>> _spelt(frozenset({"Bern"}), frozenset({"Basel", "berne"})), _spelt(frozenset({"A"}), frozenset({"B"}))
        ([('Bern', 'berne')], [])
    """
    made = [(one, other) for one in sorted(ones) for other in sorted(others) if _near(one, other)]
    few = min((ones, others), key=len)
    begun = [(one, other) for one in sorted(ones) for other in sorted(others) if _begins(one, other)]
    if few and len(begun) == len(few) == len({one for one, _ in begun}) == len({other for _, other in begun}):
        return begun
    truth = [{true_or_false(own) for own in side} for side in (ones, others)]
    if len(ones) == len(others) == 2 and truth[0] == truth[1] == {True, False}:
        return [(one, other) for one in sorted(ones) for other in others if true_or_false(one) is true_or_false(other)]
    return made


def _near(one: str, other: str) -> bool:
    first, second = (re.sub(r"[\W_]+", "", own.casefold()) for own in (one, other))
    if not first or not second or re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    if first == second or (len(first) >= 4 and second.rstrip("e") == first.rstrip("e")):
        return True
    return min(len(first), len(second)) >= 5 and SequenceMatcher(None, first, second, autojunk=False).ratio() >= 0.85


def _begins(one: str, other: str) -> bool:
    short, long = sorted((one.casefold().rstrip("."), other.casefold()), key=len)
    return short.isalpha() and long[:1].isalpha() and len(long) >= 3 and long.startswith(short) and len(short) <= 4


# ---------------------------------------------------------------------- labels


def same_labels(clients: Sequence[ClientFacts]) -> list[Note]:
    """Labels of clients that look alike and are not the same."""
    groups: dict[tuple[Any, ...], list[ClientFacts]] = {}
    for own in clients:
        if own.classes:
            groups.setdefault(tuple(sorted(own.classes, key=str)), []).append(own)
    found = []
    for (ours, mine), (theirs, yours) in combinations(list(groups.items())[:_MOST_GROUPS], 2):
        same = {own.target for own in mine} & {own.target for own in yours}
        if (how := _labels(ours, theirs, bool(same))) is None:
            continue
        ones, others = ([own.client for own in who if not same or own.target in same] for who in (mine, yours))
        what = f"{_shown(ours)} at {named(ones)}, {_shown(theirs)} at {named(others)}: {how}"
        advice = "Write them alike in the files if classes are to be shared (data.align: classes or both)."
        column = next(iter(same), mine[0].target)
        found.append(Note(what, "labels", clients=(*ones, *others), column=column, advice=advice))
    return found


def _shown(labels: Iterable[Any]) -> str:
    own = list(map(str, labels))
    return "/".join(own) if len(own) <= 5 else f"{own[0]} … {own[-1]} ({len(own)})"


def _labels(ones: tuple[Any, ...], others: tuple[Any, ...], same_target: bool) -> str | None:
    """Return what is odd about two sets of labels, or None."""
    first, second = ({str(own) for own in side} for side in (ones, others))
    low = [{own.casefold().strip() for own in side} for side in (first, second)]
    if first == second:
        return "the same words, and numbers at one of them"
    if low[0] == low[1]:
        return "the same but for spelling"
    numbers = [
        all(isinstance(own, int | float) and not isinstance(own, bool) for own in side) for side in (ones, others)
    ]
    if all(numbers) and len(ones) == len(others):
        shifts = {float(b) - float(a) for a, b in zip(sorted(ones), sorted(others), strict=True)}
        if len(shifts) == 1:
            return f"the same, counted from {min(ones):g} and from {min(others):g}?"
    truth = [{true_or_false(own) for own in side} for side in (ones, others)]
    if len(ones) == len(others) == 2 and truth[0] == truth[1] == {True, False}:
        return "two ways to say yes and no"
    if not same_target:
        return None
    if all(numbers) and min(first, second, key=len) == {"0", "1"} and min(map(float, (*ones, *others))) == 0:
        return "one counts further than the other"
    if any(not isinstance(own, str) for side in (ones, others) for own in side):
        return None
    if alike := _spelt(frozenset(first - second), frozenset(second - first)):
        return ", ".join(f"{one!r} and {other!r}" for one, other in alike[:3])
    return None


# ---------------------------------------------------------------------- rows


def same_rows(tables: Sequence[ClientTable]) -> list[Note]:
    """Rows that stand at two clients: equal in all columns that both have. Only where one process sees both."""
    known: dict[tuple[str, tuple[str, ...]], _Rows] = {}
    found = []
    for one, other in list(combinations(tables, 2))[:_MOST_PAIRS]:
        theirs = set(map(str, other.features))
        numbers = [{name for name, kind in own.features.dtypes.items() if kind.kind in "iuf"} for own in (one, other)]
        columns = tuple(
            name for name in one.features if name in theirs and (name in numbers[0]) == (name in numbers[1])
        )
        if len(columns) < _FEWEST_COLUMNS:
            continue
        for own in (one, other):
            if (own.name, columns) not in known:
                known[own.name, columns] = _Rows(own, columns)
        first, second = known[one.name, columns], known[other.name, columns]
        both = len(np.intersect1d(first.hashes, second.hashes))
        least = min(len(first.hashes), len(second.hashes))
        copied = both >= max(_FEW, 0.9 * least)  # nearly all rows of a table, however few values they have
        if copied or (both and both > _BEYOND_CHANCE * first.alike_by_chance(second)):
            what = (
                f"{counted(both, 'row stands', 'rows stand')} at {one.name} and at {other.name}, equal in all "
                f"{len(columns)} common columns"
            )
            advice = "Are they the same people? Then scores flatter, and one site could be left out of those rows."
            found.append(Note(what, "rows", clients=(one.name, other.name), advice=advice))
    return found


class _Rows:
    """Different rows of a client in some columns, as numbers."""

    def __init__(self, table: ClientTable, columns: tuple[str, ...]) -> None:
        frame = table.features[list(columns)]
        if len(frame) > _MOST_ROWS:
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
        pairs = float(len(self.hashes)) * len(other.hashes)
        for name in self.plain:
            ours, theirs = (own.plain[name].value_counts(normalize=True, dropna=False) for own in (self, other))
            if max(len(ours), len(theirs)) > 2:
                pairs *= float((ours * theirs.reindex(ours.index).fillna(0)).sum())
            if pairs < _TINY:
                break
        return pairs
