"""What is known of a run, at a glance: for ``repr(run)`` and for notebooks."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from fedlit.client.client import main_score
from fedlit.data.table import SPLITS
from fedlit.show.shown import Grid
from fedlit.show.text import Verbatim, shorten

if TYPE_CHECKING:
    from fedlit.train.federation import Federation
    from fedlit.train.loop import FederatedLoop
    from fedlit.train.results import Results

__all__ = ["card"]


def card(name: str, loop: FederatedLoop, folder: str) -> Grid:
    """Summarise what a run holds in memory. Reads no table and no file, so it is quick and cannot fail.

    Args:
        name: the run's.
        loop: its clients, what they exchange, their last scores.
        folder: where it writes.
    """
    federation = loop.federation
    rows = [["clients", _clients(loop)]]
    if federation:
        counts = {split: sum(client.spec.rows.get(split, 0) for client in federation.values()) for split in SPLITS}
        rows.append(["rows", ", ".join(f"{count:,} {split}" for split, count in counts.items())])
    rows += [["shared", _shared(federation)], ["trained", _trained(federation)]]
    rows += [[split, _scores(federation, results)] for split, results in federation.results.items()]
    return Grid(["run", f"{name}, seed {loop.seed}"], [*rows, ["folder", Verbatim(folder)]])


def _clients(loop: FederatedLoop) -> str:
    names, kind = list(loop.federation), _kind(loop)
    if not names:
        return f"{kind}; tables are not read yet, describe() and fit() read them"
    return f"{len(names)} of {kind}: {shorten(names)}"


def _kind(loop: FederatedLoop) -> str:
    """The class of the clients; several where a configuration overrides it."""
    kinds = {type(client).__name__ for client in loop.federation.values()}
    if kinds:
        return ", ".join(sorted(kinds))
    factory = loop.arguments["client"]
    while isinstance(factory, partial):  # a configuration's class stands among the arguments of one
        factory = next((own for own in (factory.func, *factory.args) if isinstance(own, type | partial)), None)
    return str(getattr(factory, "__name__", "clients"))


def _shared(federation: Federation) -> str:
    exchange = federation.exchange
    if exchange is None or not exchange.on:
        return "nothing: each client by itself"
    every: Any = exchange.every
    when = every if isinstance(every, str) else ", ".join(f"{number} {unit}" for unit, number in every.items())
    return f"{', '.join(exchange.federated) or 'answers to questions'}; every {when}, by {type(exchange.rule).__name__}"


def _trained(federation: Federation) -> str:
    steps = max([federation.step, *(own.step for own in federation.results.values())])
    return f"{steps:,} aligned steps" if steps else "no"


def _scores(federation: Federation, results: Results) -> str:
    main = main_score(federation.scores_of).name
    values = {label: results.summary[label].get(main) for label in ("mean", "worst")}
    known = [f"{label} {value:.4f}" for label, value in values.items() if value is not None and math.isfinite(value)]
    return f"{main}: {', '.join(known) or 'undefined'}"
