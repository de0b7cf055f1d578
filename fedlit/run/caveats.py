"""Caveats on scores: networks that are no better than the simplest models, and means over different
units.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.encoding import EncodedClient, Rows
from fedlit.show.text import counted
from fedlit.tasks import Task

if TYPE_CHECKING:
    from fedlit.data.module import FederatedData
    from fedlit.train.results import Results

# With more, fitting the simplest models would take longer than scoring.
_MOST_ROWS = 2_000
_MOST_INPUTS = 500
_MOST_CLIENTS = 20
_MARGIN = 0.01
_SIMPLE = "logistic_regression"
_SAME_SIZE = 3.0  # times: standard deviations of targets in one unit


def weak_networks(data: FederatedData, results: Results) -> tuple[str, ...]:
    """Return notes on classifiers that predict only one class, or that are a point or more below a
    logistic regression of the client's training rows if these are few. If there are more than 20
    clients, a note states how many were not examined.

    Args:
        data: the data of the clients in this process.
        results: the results for one split, with the scores of the networks.
    """
    notes = []
    for client in data.clients[:_MOST_CLIENTS]:
        name = client.spec.name
        task = client.spec.task
        scores = results.scores.get(name)
        if scores is None or not task.outcome.one_label:
            continue
        if name not in client.sites:
            continue
        rows = client.sites[name][results.split]
        if not len(rows):
            continue
        present = len(np.unique(rows.y.numpy()[rows.y.numpy() >= 0]))
        if present > 1 and abs(scores.get("balanced_accuracy", np.nan) - 1 / present) < 1e-9:
            notes.append(
                f"{name}: the network tells its classes no better than a guess of one class for "
                "all rows"
            )
        elif (simple := _logistic(client, rows)) is not None:
            score = task.scores[0]
            if score.gain(simple, scores.get(score.name, np.nan)) > _MARGIN:
                notes.append(
                    f"{name}: a logistic regression of its own {len(client.train):,} training rows "
                    f"is better: {score.label} {simple:.4f}, the network {scores[score.name]:.4f}"
                )
    not_compared = sum(
        client.spec.task.outcome.one_label for client in data.clients[_MOST_CLIENTS:]
    )
    if not_compared:
        clients = counted(not_compared, "more client")
        notes.append(f"not compared with the simplest models, to save time: {clients}")
    return tuple(notes)


def _logistic(client: EncodedClient, rows: Rows) -> float | None:
    """Return the main score of a logistic regression; None if there are many rows, or only one
    class to learn.
    """
    x = client.train.x.numpy()
    y = client.train.y.numpy()
    labelled = y >= 0
    if len(x) > _MOST_ROWS or x.shape[1] > _MOST_INPUTS or len(np.unique(y[labelled])) < 2:
        return None
    task = client.spec.task
    if _SIMPLE not in task.go_alone:
        return None
    coded = [
        position for position, name in enumerate(client.spec.features) if name in client.categorical
    ]
    model = task.go_alone[_SIMPLE].make({"C": 1.0, "categories": "one_hot"}, coded)
    model.fit(x[labelled], y[labelled])
    return float(task.evaluate(task.of_model(model, rows.x.numpy()), rows.y)[task.scores[0].name])


def mixed_units(of_clients: Iterable[Task]) -> frozenset[str]:
    """Return the scores in units of the target if clients' targets have different names, or scales
    that differ by more than a factor of three, because a mean over clients would be meaningless.

    Example:
        >>> from fedlit.tasks import Regression
        >>> sorted(mixed_units([Regression(scale=1.0, target="days"), Regression(scale=365.0, target="days")]))
        ['mae', 'rmse']
    """
    tasks = [task for task in of_clients if task.target_unit is not None]
    units = [task.target_unit for task in tasks if task.target_unit is not None]
    if len(units) < 2:
        return frozenset()
    scales = [scale for _, scale in units]
    differ = len({name for name, _ in units}) > 1 or max(scales) > _SAME_SIZE * min(scales)
    if not differ:
        return frozenset()
    scores = chain.from_iterable(task.scores for task in tasks)
    return frozenset(score.name for score in scores if score.in_units)
