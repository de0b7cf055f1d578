"""Many clients on one page: least, median and most instead of a paragraph for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fedlit.data.examine.facts import ClientFacts
from fedlit.data.examine.kinds import named
from fedlit.data.note import Note, alike
from fedlit.data.table import SPLITS
from fedlit.show.shown import Grid
from fedlit.show.text import counted, shorten

__all__ = ["MANY", "summary"]

MANY = 12
"""Clients up to which each has a paragraph of its own."""


def summary(clients: Sequence[ClientFacts]) -> Iterable[str | Grid]:
    """What many clients hold, in parts of a page."""
    numbers: dict[str, list[float]] = {"rows": [sum(own.rows.values()) for own in clients]}
    numbers |= {split: [own.rows[split] for own in clients] for split in SPLITS}
    numbers["columns"] = [len(own.columns) for own in clients]
    numbers["missing, %"] = [100 * own.missing / max(own.cells, 1) for own in clients]
    rows = [
        [name, *(f"{value:,.4g}" for value in (min(own), np.median(own), max(own)))] for name, own in numbers.items()
    ]
    yield Grid([f"{len(clients):,} clients", "least", "median", "most"], rows)
    fewest = sorted(clients, key=lambda own: sum(own.rows.values()))[:5]
    yield "Fewest rows: " + ", ".join(f"{own.client} ({sum(own.rows.values()):,})" for own in fewest)
    yield ""
    by_target: dict[tuple[str, str], list[ClientFacts]] = {}
    for own in clients:
        by_target.setdefault((own.target, own.task), []).append(own)
    for (target, task), who in by_target.items():
        who_says = named([own.client for own in who])
        yield f"{who_says}: {'predict' if len(who) > 1 else 'predicts'} {target} ({task}){_spread(who)}"
    left = Counter((name, why) for own in clients for name, why in own.left_out.items())
    if left:
        yield "Left out: " + shorten([f"{name} ({why}, at {times:,})" for (name, why), times in left.most_common()], 12)
    for text, names in alike((own.client, note) for own in clients for note in own.notes if not _is_left_out(note)):
        told = f"{counted(len(names), 'client')}: {named(names)}" if len(names) > 1 else names[0]
        yield f"- {text} ({told})" if told else f"- {text}"


def _spread(clients: Sequence[ClientFacts]) -> str:
    """How a target differs between clients."""
    if all(own.quantiles for own in clients):
        medians = [own.quantiles[3] for own in clients]
        return f": medians from {min(medians):.4g} to {max(medians):.4g}"
    labels = Counter(label for own in clients for label in own.classes)
    if len(labels) == 2 and all(own.positive is not None for own in clients):
        shares = [own.classes.get(own.positive, 0) / max(sum(own.classes.values()), 1) for own in clients]
        return f": {clients[0].positive} in {min(shares):.0%} to {max(shares):.0%} of a client's rows"
    return f": {counted(len(labels), 'class', 'classes')}" if labels else ""


def _is_left_out(note: str) -> bool:
    return isinstance(note, Note) and note.kind == "left out"
