"""Compares the cells of clients' targets that have a role, such as a time and an event, whatever their
columns are called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from fedlit.data.examine.facts import ClientFacts, ColumnFacts
from fedlit.data.note import Note
from fedlit.outcomes import Outcome, outcome_type
from fedlit.show.text import shorten

_FEWEST = 20
"""Of fewer rows, a share says little."""
_APART = math.log(2)
"""The difference of two log odds from which shares are compared with their opposites."""
_FAR = 5
"""The factor between medians from which units are asked about."""

_Cells = dict[str, tuple[str, ColumnFacts]]
"""Client → the name and the summary of its column."""


def observed(clients: Sequence[ClientFacts]) -> Iterator[Note]:
    """Find events that are coded in opposite ways, and times in different units."""
    columns = dict[tuple[str, str], _Cells]()
    labels = set[tuple[str, str]]()
    for client in clients:
        outcome = outcome_type(client.task) or Outcome
        for position, role in enumerate(outcome.roles):
            if position < len(client.targets):
                cell = list(client.targets.items())[position]
                columns.setdefault((client.task, role), {})[client.client] = cell
                if position in outcome.label_cells:
                    labels.add((client.task, role))
    for key, cells in columns.items():
        if key in labels:
            yield from _opposites(key[1], cells)
        else:
            yield from _units(key[1], cells)


def _opposites(role: str, cells: _Cells) -> Iterator[Note]:
    """Find clients whose share of 1 fits the others' share of 0. Shares say nothing of a code that a
    client is asked about.
    """
    shares = dict[str, float]()
    for client, (_, facts) in cells.items():
        counts = facts.values or {}
        rows = sum(counts.values())
        if {*counts} == {0, 1} and rows >= _FEWEST and not facts.in_question:
            shares[client] = counts[1] / rows
    opposites = [client for client in shares if _is_opposite(client, shares)]
    if not opposites:
        return
    texts = [f"{100 * shares[client]:.3g} % at {client} ({cells[client][0]})" for client in shares]
    # Of two clients each is opposite to the other; the fix is for one of them.
    last = opposites[-1]
    name = cells[last][0]
    text = (
        f"rows with a 1 are {shorten(texts, 8)}: does it say everywhere that the {role} happened? If "
        "a code is opposite, map it (values)"
    )
    swapped = {"values": {name: {0: 1, 1: 0}}}
    names = tuple(shares)
    yield Note(text, "labels", clients=names, column=name, at=(last,), alternatives=[swapped])


def _is_opposite(client: str, shares: Mapping[str, float]) -> bool:
    peers = [share for peer, share in shares.items() if peer != client]
    if not peers:
        return False
    typical = _log_odds(median(peers))
    odds = _log_odds(shares[client])
    distance = abs(odds - typical)
    return distance > _APART and abs(-odds - typical) < distance / 2


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))


def _units(role: str, cells: _Cells) -> Iterator[Note]:
    """Find clients whose times may be in another unit than those of the others. Columns of one name
    are compared elsewhere.
    """
    quantiles = {client: facts.quantiles for client, (_, facts) in cells.items() if facts.quantiles}
    clients = sorted(quantiles, key=lambda client: quantiles[client][2])
    if not clients:
        return
    base = clients[(len(clients) - 1) // 2]
    for client in clients:
        low, high = sorted((quantiles[base], quantiles[client]), key=lambda each: each[2])
        is_far = high[2] >= _FAR * low[2] > 0 and high[1] > low[3]
        if is_far and cells[client][0] != cells[base][0]:
            text = (
                f"the median {role} is {quantiles[client][2]:,.5g} in {cells[client][0]} at {client}, "
                f"{quantiles[base][2]:,.5g} in {cells[base][0]} at {base}; if the units differ, "
                "convert one (convert)"
            )
            names = (base, client)
            yield Note(text, "scale", clients=names, column=cells[client][0], at=(client,))
