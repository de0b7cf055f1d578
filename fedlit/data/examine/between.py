"""Columns of several clients beside each other: names, sizes of numbers, kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedlit.data.examine.facts import ClientFacts, ColumnFacts
from fedlit.data.examine.kinds import named
from fedlit.data.examine.names import pairs
from fedlit.data.note import Note
from fedlit.show.text import shorten

__all__ = ["between", "common_columns"]

_UNITS = (
    (365.25, "days and years"), (30.44, "days and months"), (12, "months and years"), (7, "days and weeks"),
    (24, "hours and days"), (60, "minutes and hours"), (1000, "a factor of 1,000, as of mg and g"),
    (100, "a factor of 100, as of cm and m, or percent and shares"), (10, "a factor of 10, as of mm and cm"),
    (2.54, "cm and inches"), (2.2046, "pounds and kg"), (18.016, "mg/dl and mmol/l of glucose"),
    (38.67, "mg/dl and mmol/l of cholesterol"), (88.42, "µmol/l and mg/dl of creatinine"),
)  # fmt: skip
_FAR = 5.0  # times: from here on the size itself is odd
_NEAR, _NEAR_AND_FAR = 0.05, 0.4  # of a logarithm: quartiles' ratios that are one of units
_NOT_USED = ("constant", "empty", "dropped")
_NUMBERS = ("numeric", "ordinal")


def between(clients: Sequence[ClientFacts]) -> list[Note]:
    """Find what is odd between the columns of clients."""
    if len(clients) < 2:
        return []
    return [*_names(clients), *_scales(clients), *_kinds(clients)]


def common_columns(clients: Sequence[ClientFacts]) -> dict[str, list[ClientFacts]]:
    """Return the columns that several clients have, with the clients."""
    owners: dict[str, list[ClientFacts]] = {}
    for own in clients:
        for name in own.columns:
            owners.setdefault(name, []).append(own)
    return {name: who for name, who in owners.items() if len(who) > 1}


# ---------------------------------------------------------------------- names


def _names(clients: Sequence[ClientFacts]) -> list[Note]:
    """Names that may mean the same, each pair once, whoever has them."""
    owners: dict[str, list[ClientFacts]] = {}
    for own in clients:
        for name in own.columns:
            owners.setdefault(name, []).append(own)
    alone = {own.client: [name for name in own.columns if len(owners[name]) < len(clients)] for own in clients}
    seen: dict[tuple[str, str], bool] = {}
    for place, one in enumerate(clients):
        for other in clients[place + 1 :]:
            ours = [name for name in alone[one.client] if name not in other.columns]
            theirs = [name for name in alone[other.client] if name not in one.columns]
            for first, second, same in pairs(ours, theirs):
                seen.setdefault((min(first, second), max(first, second)), same)
    found = [
        made
        for (first, second), same in seen.items()
        if not {own.client for own in owners[first]} & {own.client for own in owners[second]}
        and (made := _name(first, second, owners[first], owners[second], same)) is not None
    ]
    renamed: set[tuple[str, str]] = set()
    kept = list[Note]()
    for finding in found:  # two names of one client must not become one
        wanted = {(client, finding.column) for client in finding.at if finding.fix}
        if not wanted & renamed:
            kept.append(finding)
            renamed |= wanted
    return kept


def _name(first: str, second: str, ones: list[ClientFacts], others: list[ClientFacts], same: bool) -> Note | None:
    if (len(ones), first.islower(), -len(first)) < (len(others), second.islower(), -len(second)):
        first, second, ones, others = second, first, others, ones
    mine, theirs = ones[0].columns[first], others[0].columns[second]
    who = tuple(own.client for own in others)
    what = f"{first!r} at {named([own.client for own in ones])}, {second!r} at {named(who)}"
    clients = (*(own.client for own in ones), *who)
    if _fit(mine, theirs):
        return Note(
            what + ", with values alike" * (not same),
            "name", clients=clients, column=first, fix={"rename": {second: first}} if same else None, at=who,
            advice="If it is the same thing, give it one name.",
        )  # fmt: skip
    if not same:
        return None
    if (times := _times(mine, theirs)) is not None:
        what += f", but of another size: {_sizes(first, mine, second, theirs)}{times}"
        return Note(what, "name", clients=clients, column=first, advice="Convert one, then give it one name.")
    if _group(mine) != _group(theirs):
        what += f", but {mine.kind} here and {theirs.kind} there"
    advice = "If it is the same thing, give it one name (rename)."
    return Note(what, "name", clients=clients, column=first, advice=advice)


def _group(column: ColumnFacts) -> str:
    return "number" if column.kind in _NUMBERS else column.kind


def _fit(one: ColumnFacts, other: ColumnFacts) -> bool:
    """Return whether two columns could hold the same thing."""
    if _group(one) != _group(other):
        return False
    if one.values is not None and other.values is not None:
        first, second = ({value.casefold() for value in own.values or ()} for own in (one, other))
        return len(first & second) >= 0.5 * min(len(first), len(second))
    if not one.quantiles or not other.quantiles:
        return False
    low, high = max(one.quantiles[1], other.quantiles[1]), min(one.quantiles[3], other.quantiles[3])
    widths = [own.quantiles[3] - own.quantiles[1] for own in (one, other)]
    return high >= low and (high - low >= 0.2 * min(widths))


# ---------------------------------------------------------------------- sizes


def _times(one: ColumnFacts, other: ColumnFacts) -> str | None:
    """Describe how far the numbers of two columns are apart; None where that is not odd."""
    if not (one.kind in _NUMBERS and other.kind in _NUMBERS and one.quantiles and other.quantiles):
        return None
    first, second = (np.asarray(own.quantiles[1:4]) for own in (one, other))
    if (first <= 0).any() or (second <= 0).any():
        return None
    if first[1] > second[1]:
        first, second = second, first
    if first[2] >= second[0]:  # quartiles overlap
        return None
    ratio = float(second[1] / first[1])
    logs = np.log(second / first)
    for unit, words in sorted(_UNITS, key=lambda own: abs(np.log(ratio / own[0]))):
        if (np.abs(logs - np.log(unit)) < (_NEAR if unit < _FAR else _NEAR_AND_FAR)).all():
            return f" ({ratio:,.3g} times: {words}?)"
    return f" ({ratio:,.3g} times)" if ratio >= _FAR and (logs > np.log(_FAR / 2)).all() else None


def _sizes(first: str, one: ColumnFacts, second: str, other: ColumnFacts) -> str:
    return f"median {one.quantiles[2]:,.5g} and {other.quantiles[2]:,.5g}"


def _scales(clients: Sequence[ClientFacts]) -> list[Note]:
    """Numbers of one name that clients have in different sizes, targets among them."""
    held: dict[tuple[str, bool], dict[str, ColumnFacts]] = {}
    for own in clients:
        for name, column in own.columns.items():
            if column.kind in _NUMBERS and column.quantiles:
                held.setdefault((name, False), {})[own.client] = column
        if own.quantiles:
            column = ColumnFacts("numeric", 0.0, 0, own.quantiles[1:-1])
            held.setdefault((own.target, True), {})[own.client] = column
    found = []
    for (name, target), columns in held.items():
        base = sorted(columns, key=lambda client: columns[client].quantiles[2])[(len(columns) - 1) // 2]
        apart = {client: times for client in columns if (times := _times(columns[base], columns[client])) is not None}
        if apart:
            told = [f"{columns[client].quantiles[2]:,.5g} at {client}{times}" for client, times in apart.items()]
            what = f"median {columns[base].quantiles[2]:,.5g} at {base}, {shorten(told)}"
            advice = (
                "If the units differ, convert one; scores in units of the target are compared in one unit only."
                if target
                else "If the units differ, convert one; clients that share this column would be misled."
            )
            found.append(Note(what, "scale", clients=(base, *apart), column=name, advice=advice))
    return found


# ---------------------------------------------------------------------- kinds


def _kinds(clients: Sequence[ClientFacts]) -> list[Note]:
    found = []
    names = dict.fromkeys(name for own in clients for name in own.columns)
    for name in names:
        kinds: dict[str, list[ClientFacts]] = {}
        for own in clients:
            if name in own.columns:
                kinds.setdefault(_group(own.columns[name]), []).append(own)
            elif name in own.left_out and own.left_out[name] not in _NOT_USED:
                kinds.setdefault(f"left out ({own.left_out[name]})", []).append(own)
        if len(kinds) > 1:
            found.append(_kind(name, kinds))
    return found


def _kind(name: str, kinds: dict[str, list[ClientFacts]]) -> Note:
    words = {"number": "numbers", "categorical": "categories", "boolean": "yes or no", "date": "dates"}
    what = "; ".join(f"{words.get(kind, kind)} at {named([own.client for own in who])}" for kind, who in kinds.items())
    numbers = kinds.get("number", [])
    only_two_values = all(
        {own.columns[name].low, own.columns[name].high} <= {0, 1} and own.columns[name].different <= 2
        for own in numbers
    )
    few_values = all(own.columns[name].different <= 20 for own in numbers)
    meant = None
    if set(kinds) == {"number", "boolean"} and only_two_values:
        meant = "boolean"
    elif set(kinds) == {"number", "categorical"} and few_values:
        meant = "categorical"
    return Note(
        what, "kind", clients=[own.client for who in kinds.values() for own in who], column=name,
        fix={"types": {name: meant}} if meant else None, at=[own.client for own in numbers],
        advice="Columns are common by name and kind: correct the files, or say types.",
    )  # fmt: skip
