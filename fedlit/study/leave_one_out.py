"""What the others gain or lose by a client: their federation with it, against the same one without it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedlit.statistics import FEW, Estimate, estimate
from fedlit.study.collect import Collected, Left
from fedlit.study.lift import MEAN, Scores, flat, judged
from fedlit.study.study import BEST_FEDERATED, Study
from fedlit.tasks import COMPARED

__all__ = ["FILE", "OTHERS", "Joining", "cost_of_leaving_out", "joining_line", "joinings", "leave_one_out"]

FILE = "leave_one_out.csv"
OTHERS = "(others)"  # no client can have this name
_WITHOUT = "~"  # behind a method's name: trained without the client; no method has it
_NOT_KNOWN = "not known (runs are missing, or nobody has this score)"
_COLUMNS = ["metric", "method", "joins", "client", *flat(estimate([])), "verdict"]


@dataclass(frozen=True)
class Joining:
    """What it does that one client is there, for the best federated method.

    Attributes:
        client: the one that joins.
        metric: that it chooses by.
        itself: its lift over the best that it can do alone; NaN where that is not known, as the next.
        others: mean over the others of score with it minus score without it.
        verdict: of ``itself``.
        verdict_of_others: of ``others``.
    """

    client: str
    metric: str
    itself: float
    others: float
    verdict: str
    verdict_of_others: str


def leave_one_out(study: Study, scores: Scores) -> pd.DataFrame:
    """One row per metric, federated method, client that joins and client that feels it: how much better the second is
    for the first being there, seed by seed, with the same intervals and verdicts as lifts.

    Args:
        study: completed by its clients' tasks.
        scores: of its runs.

    Returns:
        Columns ``metric``, ``method``, ``joins`` (the client that is there or not), ``client`` (who is scored: the
        client itself, whose row is its lift over going alone; another; or ``(others)``, the mean over all others that
        have the metric), ``n``, ``mean``, ``sd``, ``low``, ``high``, … as in ``lift.csv``, in the score's unit (of a
        score in percent 0.01 is a percentage point), ``verdict``. Empty where nothing was asked.
    """
    rows: list[dict[str, Any]] = []
    if study.leave_one_out:
        for metric in study.all_metrics:
            for client in scores.collected.clients_of(metric):
                for method, felt, own, least in _felt(study, scores, metric, client):
                    if own.n:
                        row = {"metric": metric, "method": method, "joins": client, "client": felt}
                        rows.append({**row, **flat(own), "verdict": judged(own, least)})
    return pd.DataFrame(rows, columns=_COLUMNS)


def joinings(study: Study, found: pd.DataFrame) -> list[Joining]:
    """What it does that each client joins.

    Args:
        study: completed by its clients' tasks.
        found: as :func:`leave_one_out` gives it.
    """
    if found.empty:
        return []
    own = found[found["method"] == BEST_FEDERATED]
    rows = {(row["metric"], row["joins"], row["client"]): row for row in own.to_dict("records")}
    joins = []
    for client in own["joins"].unique():
        metric = study.choice_of(client)
        itself, others = (rows.get((metric, client, felt)) for felt in (client, OTHERS))
        joins.append(
            Joining(
                client,
                metric,
                itself=math.nan if itself is None else float(itself["mean"]),
                others=math.nan if others is None else float(others["mean"]),
                verdict=FEW if itself is None else str(itself["verdict"]),
                verdict_of_others=FEW if others is None else str(others["verdict"]),
            )
        )
    return joins


def _felt(study: Study, scores: Scores, metric: str, client: str) -> Iterator[tuple[str, str, Estimate, float]]:
    """(method, who, how much better off, the least that matters): the client itself, then the mean over the others,
    then each of them.
    """
    collected = scores.collected
    others = [name for name in collected.clients_of(metric) if name != client]
    two, known = len(collected.clients) == 2, client in collected.without
    beside = Scores(_beside(collected, collected.without.get(client), others))
    for method in (BEST_FEDERATED, *study.candidates):
        alone = study.best_alone if method == BEST_FEDERATED else study.reference_of(method)
        least = scores.least(alone, client, metric, study.matters)
        yield method, client, scores.lift(method, alone, client, metric)[0], least
        for name in (MEAN, *others) if others and (two or known) else ():
            # of two clients, the one that is left goes alone
            without = alone if two else f"{method}{_WITHOUT}"
            least = beside.least(without, name, metric, study.matters)
            yield method, OTHERS if name == MEAN else name, beside.lift(method, without, name, metric)[0], least


def _beside(collected: Collected, left: Left | None, others: list[str]) -> Collected:
    """The others' results, and beside them, as methods of their own, those without the client."""
    results, bootstrap = collected.results[collected.results["client"].isin(others)], dict(collected.bootstrap)
    if left is not None:
        lacking = left.results[left.results["client"].isin(others)]
        results = pd.concat([results, lacking.assign(method=lacking["method"] + _WITHOUT)], ignore_index=True)
        bootstrap |= {(f"{method}{_WITHOUT}", seed): own for (method, seed), own in left.bootstrap.items()}
    ratio = {name: collected.ratio[name] for name in others}
    return replace(collected, results=results, bootstrap=bootstrap, ratio=ratio)


def cost_of_leaving_out(clients: int, runs: int) -> str:
    """What ``leave_one_out`` will train, before it does."""
    if clients == 2:
        return (
            "leave_one_out: there are two clients, and without one of them the other goes alone. No federation is "
            "trained for it: what the other gains is its lift over going alone"
        )
    return f"leave_one_out: {runs} further runs, each federation without one of its {clients} clients in turn"


def joining_line(joining: Joining) -> str:
    """Whether a client should join, for itself and for the others.

    Example:
        >>> joining_line(Joining("west", "auroc", 0.012, -0.001, "join", "no difference"))
        'Should west join? For west itself: +1.20 percentage points (join). For the others: -0.10 (no difference)'
    """
    score, name = COMPARED[joining.metric], joining.client
    unit = "percentage points" if score.percent else f"in {score.label}"
    parts = [
        f"{score.text(own, signed=True)}{more} ({verdict})" if math.isfinite(own) else _NOT_KNOWN
        for own, more, verdict in (
            (joining.itself, f" {unit}", joining.verdict),
            (joining.others, "", joining.verdict_of_others),
        )
    ]
    return f"Should {name} join? For {name} itself: {parts[0]}. For the others: {parts[1]}"
