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
    from fedlit.run.run import Run
    from fedlit.train.results import Results

__all__ = ["card"]


def card(run: Run) -> Grid:
    """What the run holds in memory already: it reads no table and no file, so it is quick and cannot fail."""
    federation = run.loop.federation
    rows = [["clients", _clients(run)]]
    if federation:
        counts = {
            split: sum(client.spec.rows.get(split, 0) for client in federation.values()) for split in SPLITS
        }  # fmt: skip
        rows.append(["rows", ", ".join(f"{count:,} {split}" for split, count in counts.items())])
    rows += [["shared", _shared(run)], ["trained", _trained(run)]]
    for split, results in federation.results.items():
        rows.append([split, _scores(run, results)])
    folder = str(run.folder) if run.folder is not None else f"{run.root / run.name} (none of this run's own yet)"
    rows.append(["folder", Verbatim(folder)])
    return Grid(["run", f"{run.name}, seed {run.seed}"], rows)


def _clients(run: Run) -> str:
    names, kind = list(run.loop.federation), _kind(run)
    if not names:
        return f"{kind}; tables are not read yet, describe() and fit() read them"
    return f"{len(names)} of {kind}: {shorten(names)}"


def _kind(run: Run) -> str:
    """The class of the clients; several where a configuration overrides it."""
    kinds = {type(client).__name__ for client in run.loop.federation.values()}
    if kinds:
        return ", ".join(sorted(kinds))
    factory = run.loop.arguments["client"]
    while isinstance(factory, partial):  # a configuration's class stands among the arguments of one
        factory = next((own for own in (factory.func, *factory.args) if isinstance(own, type | partial)), None)
    return str(getattr(factory, "__name__", "clients"))


def _shared(run: Run) -> str:
    exchange = run.exchange
    if not exchange.federated:
        return "nothing: each client by itself"
    every: Any = exchange.every
    when = every if isinstance(every, str) else ", ".join(f"{number} {unit}" for unit, number in every.items())
    return f"{', '.join(exchange.federated)}; every {when}, by {type(exchange.rule).__name__}"


def _trained(run: Run) -> str:
    results = run.loop.federation.results.values()
    steps = max([run.loop.federation.step, *(own.step for own in results)])
    return f"{steps:,} aligned steps" if steps else "no"


def _scores(run: Run, results: Results) -> str:
    main = main_score(run.loop.federation).name
    values = {label: results.summary[label].get(main) for label in ("mean", "worst")}
    known = [f"{label} {value:.4f}" for label, value in values.items() if value is not None and math.isfinite(value)]
    return f"{main}: {', '.join(known) or 'undefined'}"
