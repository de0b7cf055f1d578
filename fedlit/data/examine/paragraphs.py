"""Clients' facts in words and tables: each client, or many together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedlit.data.examine.facts import ClientFacts, ColumnFacts, named, owners
from fedlit.show.shown import Grid
from fedlit.show.text import counted, shorten

__all__ = ["column_table", "common_columns", "each", "flow", "table_of", "together"]

_WORDS = {
    "numeric": ("number", "numbers"),
    "categorical": ("category", "categories"),
    "boolean": ("yes or no", "yes or no"),
    "ordinal": ("ordered", "ordered"),
    "date": ("date", "dates"),
}
_MOST_CLASSES = 6


def _numbers(own: ClientFacts) -> dict[str, float]:
    cells = max(len(own.columns) * len(own.table.features), 1)
    rows = {"rows": sum(own.rows.values()), **own.rows}
    return {**rows, "columns": len(own.columns), "missing %": 100 * own.missing / cells}


def table_of(clients: Sequence[ClientFacts]) -> Grid:
    """A row for each client."""
    rows = [[own.client, *(f"{number:,.4g}" for number in _numbers(own).values()), own.target] for own in clients]
    return Grid(["client", *_numbers(clients[0]), "target"], rows)


def together(clients: Sequence[ClientFacts]) -> Iterable[str | Grid]:
    """What many clients hold: quantiles instead of a row for each."""
    numbers = {own.client: _numbers(own) for own in clients}
    held = {key: [own[key] for own in numbers.values()] for key in _numbers(clients[0])}
    rows = [[key, *(f"{one:,.4g}" for one in (min(own), np.median(own), max(own)))] for key, own in held.items()]
    yield Grid([f"{len(clients):,} clients", "least", "median", "most"], rows)
    fewest = sorted(numbers, key=lambda client: numbers[client]["rows"])[:10]
    yield "Fewest rows: " + ", ".join(f"{client} ({numbers[client]['rows']:,})" for client in fewest)
    targets: dict[tuple[str, str], list[ClientFacts]] = {}
    for own in clients:
        targets.setdefault((own.target, own.task), []).append(own)
    for (target, task), who in targets.items():
        medians = [own.quantiles[3] for own in who if own.quantiles]
        spread = f": medians from {min(medians):.4g} to {max(medians):.4g}" if medians else ""
        if not medians:
            largest = [max(own.classes.values()) / sum(own.classes.values()) for own in who if own.classes]
            spread = f": the largest class is {min(largest):.0%} to {max(largest):.0%} of a client" if largest else ""
        yield f"{named([own.client for own in who])}: target {target} ({task}){spread}"
    left = Counter((name, why) for own in clients for name, why in own.left_out.items())
    if left:
        yield "Left out: " + shorten([f"{name} ({why}, at {times:,})" for (name, why), times in left.most_common()], 12)


def each(own: ClientFacts) -> Iterable[str]:
    """A client's target, columns and gaps."""
    yield f"{own.client}: predicts {_target(own)}"
    kinds = Counter(column.kind for column in own.columns.values())
    parts = [counted(number, *_WORDS[kind]) for kind, number in kinds.most_common()]
    reasons: dict[str, list[str]] = {}
    for name, why in own.left_out.items():
        reasons.setdefault(why, []).append(name)
    left = "; ".join(f"{shorten(names, 6)} ({why})" for why, names in reasons.items())
    yield f"  Columns: {', '.join(parts)}" + (f". Left out: {left}" if left else "")
    if own.missing:
        gaps = sorted((column.missing, name) for name, column in own.columns.items() if column.missing)[::-1]
        shown = shorten([f"{name} {_share(share)}" for share, name in gaps], 5)
        yield f"  Missing: {counted(own.missing, 'cell')} in {counted(len(gaps), 'column')}: {shown}"


def _share(part: float, of: float = 1) -> str:
    """A share in percent; never 0 where there is something, nor 100 where not all is.

    >>> _share(0, 3), _share(1, 3), _share(1, 9_999), _share(9_998, 9_999)
    ('0 %', '33.3 %', '<0.1 %', '>99 %')
    """
    share = part / max(of, 1)
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.3g} %" if share < 0.995 or share == 1 else ">99 %"


def _target(own: ClientFacts) -> str:
    if own.quantiles:
        low, _, first, middle, third, _, high = own.quantiles
        middle_half = f"half of it in {first:.4g} to {third:.4g}, median {middle:.4g}"
        return f"{own.target}, a number ({own.task}): {low:.4g} to {high:.4g}, {middle_half}"
    rows, told = sum(own.rows.values()), list[str]()
    if not own.labels and not own.classes:
        return f"{own.target} ({own.task})"
    for name, held in (own.labels or {own.target: own.classes}).items():
        known = sum(held.values())
        shown = [f"{label} ({counted(count, 'row')}, {_share(count, known)})" for label, count in held.items()]
        shown += (
            [f"not known ({counted(rows - known, 'row')})"] if known < rows and own.task != "sequence_labelling" else []
        )
        told.append(f"{name}: {shorten(shown, _MOST_CLASSES)}")
    positive = f"; positive is {own.positive}" if own.positive is not None else ""
    return f"{'; '.join(told)}{positive}"


def column_table(own: ClientFacts) -> Grid:
    """A row for each column of a client."""
    rows = [
        [name, column.kind, _share(column.missing) if column.missing else "–", f"{column.different:,}", _held(column)]
        for name, column in own.columns.items()
    ]
    return Grid(["column", "holds", "missing", "different", "values"], rows)


def _held(column: ColumnFacts) -> str:
    if column.values is not None:
        return shorten([value if len(value) <= 24 else f"{value[:23]}…" for value in column.values], 4)
    if not column.quantiles:
        return "none"
    low, *_, high = column.quantiles
    if column.kind == "date" and high > 4000:  # days since 1970
        first, last = np.asarray([low, high]).astype("datetime64[D]")
        return f"{first} to {last}"
    return f"from {low:.4g} to {high:.4g}, median {column.quantiles[3]:.4g}"


def flow(value: Any) -> str:
    """Plain data as YAML in one line."""
    import yaml

    plain = json.loads(json.dumps(value, default=str))  # nothing twice the same object: no anchors
    text: str = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.removesuffix("...\n").strip()


def common_columns(clients: Sequence[ClientFacts]) -> str:
    """Which columns several clients have."""
    shared = {name: len(who) for name, who in owners(clients).items() if len(who) > 1}
    if not shared:
        return "No column stands at two clients. They can share a core, and no columns."
    everywhere = [name for name, number in shared.items() if number == len(clients)]
    some = [f"{name} ({number})" for name, number in shared.items() if number < len(clients)]
    alone = [own.client for own in clients if not set(own.columns) & set(shared)]
    text = f"Columns of all {len(clients):,} clients: {shorten(everywhere, 12) or 'none'}."
    text += f" Of several: {shorten(some, 12)}." if some else ""
    return text + (f" With none of another: {named(alone)}." if alone else "")
