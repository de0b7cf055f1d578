"""Compares the columns of several clients: their names, scales, units, kinds and spellings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import Any

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, by_name
from fedlit.data.examine.pairs import recodings
from fedlit.data.note import Note
from fedlit.data.reading.options import ANY_UNIT, KINDS, Conversions
from fedlit.data.schema.cells import true_or_false
from fedlit.data.schema.convert import UNWRITTEN, conversion, is_conversion, likely_conversions
from fedlit.data.schema.numbers import same_unit
from fedlit.show.text import shorten

_UNITS = frozenset(
    {
        *("years", "yrs", "months", "weeks", "days"),
        *("mg", "dl", "kg", "g", "cm", "mm", "mmhg", "ml", "l", "percent"),
    }
)
_TWICE = 2
"""Least constant factor between quartiles that two units can explain."""
_FAR = 10
"""Least factor between medians that is reported although it is not constant."""
_EVEN = 1.05
"""Largest ratio of the factors of two quartiles that still counts as constant."""
_IDENTIFIER = "left out (identifier)"
_NOT_USED = ("constant", "empty", "dropped")
_MOST_VALUES = 200
_FEW_VALUES = 5
_MOST_GROUPS = 8  # Clients with equal values form one group; only so many groups are compared.


def names(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find names of the same words, such as age and AGE_YEARS, that no client has side by side."""
    holders = by_name(clients)
    for first, *spelt_otherwise in _same_words(holders):
        first_clients = list(holders[first])
        taken = {*first_clients}
        for second in spelt_otherwise:
            second_clients = list(holders[second])
            if taken & {*second_clients}:
                continue  # A client that has both names means two things.
            taken |= {*second_clients}
            first_column = holders[first][first_clients[0]]
            second_column = holders[second][second_clients[0]]
            text = (
                f"{_described(first, first_column)} at {shorten(first_clients, 4)}, "
                f"{_described(second, second_column)} at {shorten(second_clients, 4)}: if they are "
                "the same, give them one name, in one unit"
            )
            fix: dict[str, Any] | None = None
            either: list[dict[str, Any]] = []
            if first_column.kind == second_column.kind:
                rename = {"rename": {second: first}}
                if _same_size(first_column, second_column):
                    fix = rename
                else:
                    either = [rename]
            yield Note(
                text,
                "name",
                clients=(*first_clients, *second_clients),
                column=first,
                fix=fix,
                alternatives=either,
                at=second_clients,
            )


def _same_words(holders: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Group names that consist of the same words but for units; the name that most clients have
    comes first.
    """
    groups: dict[str, list[str]] = {}
    for name in sorted(holders, key=lambda column: -len(holders[column])):
        parts = [part for part in re.split(r"[\W_]+", name.casefold()) if part not in _UNITS]
        groups.setdefault("".join(parts) or name, []).append(name)
    return list(groups.values())


def _same_size(one: ColumnFacts, other: ColumnFacts) -> bool:
    """Return whether two columns hold categories, or numbers that need not be of two units."""
    if not (one.quantiles and other.quantiles):
        return one.kind == other.kind
    return not _times(one.quantiles[1:4], other.quantiles[1:4])


def _described(name: str, column: ColumnFacts) -> str:
    content = f"median {column.quantiles[2]:,.5g}" if column.quantiles else column.kind
    return f"{name!r} ({content})"


def scales(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find numbers of one name that differ in size between clients, including targets."""
    for name, columns in by_name(clients).items():
        yield from _scales(name, columns)
    ending = "; scores in units of the target can only be compared in one unit"
    for name, columns in by_name(clients, targets=True).items():
        yield from _scales(name, columns, ending)


def _scales(name: str, columns: Mapping[str, ColumnFacts], ending: str = "") -> Iterator[Note]:
    quartiles = {
        client: column.quantiles[1:4]
        for client, column in columns.items()
        if column.kind == "numeric" and column.quantiles
    }
    clients = sorted(quartiles, key=lambda client: quartiles[client][1])
    if not clients:
        return
    known_units = {same_unit(columns[client].unit) for client in clients} - {""}
    if len(known_units) > 1:
        return  # The check of units reports these.
    middle = (len(clients) - 1) // 2
    base = clients[middle]
    times = {client: _times(quartiles[base], quartiles[client]) for client in clients}
    for side in (clients[:middle], clients[middle:]):
        differing = [client for client in side if times[client]]
        if not differing:
            continue
        medians = [
            f"{quartiles[client][1]:,.5g} at {client} ({times[client]:,.3g} times)"
            for client in differing
        ]
        text = (
            f"median {quartiles[base][1]:,.5g} at {base}, {shorten(medians)}; if the units differ, "
            f"convert one{ending}"
        )
        typical = quartiles[differing[len(differing) // 2]]
        conversions = likely_conversions(typical, quartiles[base])
        if conversions:
            text += f" ({' or '.join(conversions)}?)"
        either = [_converting(name, {ANY_UNIT: UNWRITTEN[pair]}) for pair in conversions]
        yield Note(
            text,
            "scale",
            clients=(base, *differing),
            column=name,
            alternatives=either,
            at=differing,
        )


def _converting(name: str, conversions: Conversions) -> dict[str, Any]:
    """Return the setting that converts a column's numbers."""
    changes = dict[str, Any]()
    for unit, (factor, offset) in conversions.items():
        times = float(f"{factor:.12g}")
        plus = float(f"{offset:.12g}")
        changes[unit] = [times, plus] if plus else times
    return {"convert": {name: changes}}


def _times(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how many times the quartiles (3,) of two clients differ, or 0 if the difference is
    nothing unusual. A unit gives a constant factor.
    """
    small, large = sorted((one, other), key=lambda quartiles: quartiles[1])
    if small[0] <= 0 or small[2] >= large[0]:  # quartiles overlap
        return 0.0
    ratios = [big / few for big, few in zip(large, small, strict=True)]
    low = min(ratios)
    constant = low >= _TWICE and max(ratios) <= _EVEN * low
    unusual = (constant and is_conversion(large, small)) or (ratios[1] >= _FAR and low > _FAR / 2)
    return ratios[1] if unusual else 0.0


def units(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find numbers of one name that clients write with different units or currencies."""
    for name, columns in [*by_name(clients).items(), *by_name(clients, targets=True).items()]:
        holders = dict[str, list[str]]()
        for client, column in columns.items():
            if column.kind == "numeric" and column.unit:
                holders.setdefault(same_unit(column.unit), []).append(client)
        if len(holders) < 2:
            continue
        (first, first_clients), *further = holders.items()
        for second, second_clients in further:
            text = (
                f"{first!r} at {shorten(first_clients, 4)}, {second!r} at "
                f"{shorten(second_clients, 4)}; convert one, or give them two names"
            )
            either = [{"rename": {name: f"{name} ({second})"}}]
            change = conversion(second, first)
            if change is not None:
                either = [_converting(name, {second: change}), *either]
            yield Note(
                text,
                "unit",
                clients=(*first_clients, *second_clients),
                column=name,
                alternatives=either,
                at=second_clients,
            )


def kinds(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find columns of one name whose values differ in kind."""
    for name, columns in by_name(clients).items():
        holders = _holders_by_kind(name, clients, columns)
        if len(holders) < 2:
            continue
        text = "; ".join(f"{kind} at {shorten(who, 4)}" for kind, who in holders.items())
        everyone = [*chain(*holders.values())]
        fix, either, at = _one_kind(name, holders, columns)
        yield Note(
            f"{text}; columns are common by name and kind",
            "kind",
            clients=everyone,
            column=name,
            fix=fix,
            alternatives=either,
            at=at or everyone,
        )


def _holders_by_kind(
    name: str, clients: Sequence[ClientFacts], columns: Mapping[str, ColumnFacts]
) -> dict[str, list[str]]:
    """Map each kind that a column has, or the reason why it is left out, to clients."""
    holders: dict[str, list[str]] = {}
    for facts in clients:
        if facts.client in columns:
            holders.setdefault(columns[facts.client].kind, []).append(facts.client)
        elif facts.left_out.get(name, "dropped") not in _NOT_USED:
            holders.setdefault(f"left out ({facts.left_out[name]})", []).append(facts.client)
    return holders


def _one_kind(
    name: str, holders: Mapping[str, Sequence[str]], columns: Mapping[str, ColumnFacts]
) -> tuple[dict[str, Any] | None, list[dict[str, Any]], Sequence[str]]:
    """Return what gives a column one kind: the fix, or the alternatives, and the clients to whom
    these settings apply (none for all).
    """
    numeric = holders.get("numeric", ())
    numbers = {*chain(*(columns[client].quantiles for client in numeric))}
    if {*holders} == {"numeric", "boolean"} and numbers <= {0, 1}:
        return {"types": {name: "boolean"}}, [], numeric
    if {*holders} == {"numeric", "categorical"} and _are_two(numbers):
        labels = {*chain(*(columns[client].values or () for client in holders["categorical"]))}
        if len(labels) == 2:
            written = [f"{min(numbers):g}", f"{max(numbers):g}"]
            recoding = _recoding(name, sorted(labels, key=str), written)
            if recoding:
                return None, recoding, numeric
    used = [kind for kind in holders if kind in KINDS]
    if _IDENTIFIER in holders and used:
        return None, [{"types": {name: kind}} for kind in ("identifier", *used)], ()
    if {*holders} <= {*KINDS}:
        rare = min(holders, key=lambda kind: len(holders[kind]))
        return None, [{"rename": {name: f"{name} ({rare})"}}, {"drop": [name]}], holders[rare]
    return None, [], ()


def _are_two(quantiles: Collection[float]) -> bool:
    """Return whether quantiles can be those of two numbers, between which a median may lie."""
    if len({*quantiles}) < 2:
        return False
    middle = (min(quantiles) + max(quantiles)) / 2
    return {*quantiles} <= {min(quantiles), middle, max(quantiles)}


def spellings(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find categories of one column, or classes of one target, that clients spell differently."""
    for name, columns in by_name(clients).items():
        yield from _spellings("values", name, columns)
    for name, columns in by_name(clients, targets=True).items():
        yield from _spellings("labels", name, columns)


def _spellings(kind: str, name: str, columns: Mapping[str, ColumnFacts]) -> Iterator[Note]:
    groups: dict[tuple[Any, ...], list[str]] = {}
    for client, column in columns.items():
        values = column.values or ()
        if column.kind == "categorical" and 0 < len(values) <= _MOST_VALUES:
            groups.setdefault(tuple(sorted(values, key=str)), []).append(client)
    compared = list(groups.items())[:_MOST_GROUPS]
    for (first, first_clients), (second, second_clients) in combinations(compared, 2):
        if not _may_correspond(first, second, kind == "labels"):
            continue
        text = (
            f"{shorten([*map(str, first)], _FEW_VALUES)} at {shorten(first_clients, 4)}; "
            f"{shorten([*map(str, second)], _FEW_VALUES)} at {shorten(second_clients, 4)}; "
            "if some mean the same, write them in the same way"
        )
        yield Note(
            text,
            kind,
            clients=(*first_clients, *second_clients),
            column=name,
            alternatives=_recoding(name, first, second),
            at=second_clients,
        )


def _recoding(name: str, ones: Sequence[Any], others: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the settings that write a column's values as those of another client."""
    return [{"values": {name: values}} for values in recodings(ones, others)]


def _are_numbered(texts: Iterable[str]) -> bool:
    return all(text[:1].isdigit() for text in texts)


def _may_correspond(ones: Sequence[Any], others: Sequence[Any], labels: bool) -> bool:
    """Return whether some values of two sets could mean the same although they are written
    differently.
    """
    if all(type(value) is int for value in (*ones, *others)):
        return labels and _are_recoded(ones, others)
    first = _by_spelling(ones)
    second = _by_spelling(others)
    if any(first[text] != second[text] for text in first.keys() & second):
        return True
    only_first = first.keys() - second
    only_second = second.keys() - first
    if {*map(true_or_false, only_first)} == {*map(true_or_false, only_second)} == {True, False}:
        return True
    # alive and dead beside vivant and mort; 1_female and 2_male beside F and M. Features of two
    # towns each are no other spelling.
    are_two = len(first) == len(second) == 2 and not first.keys() & second
    if are_two and (labels or _are_numbered(first) != _are_numbered(second)):
        return True
    if max(len(first), len(second)) > _FEW_VALUES:
        return False
    return any(_abbreviates(*pair) for pair in product(only_first, only_second))


def _are_recoded(ones: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether two sets of classes may be two codes of the same ones: 0 and 1 beside 1 and 2,
    or beside 0 to 4.
    """
    low, high = sorted(map(sorted, (ones, others)))
    shifted = len(low) > 1 and [value + 1 for value in low] == high
    return (low == [0, 1] and high[0] == 0) or shifted


def _by_spelling(values: Sequence[Any]) -> dict[str, Any]:
    """Map each value's text, without case and blanks, to the value."""
    return {"".join(str(value).casefold().split()): value for value in values}


def _abbreviates(one: str, other: str) -> bool:
    """Return whether one of two words is the beginning of the other, as M is of male."""
    if not (one.isalpha() and other.isalpha()):
        return False
    return one.startswith(other) or other.startswith(one)
