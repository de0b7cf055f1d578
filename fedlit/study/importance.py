"""Which columns a client's predictions rest on: permutation importance, computed while the model is in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.run.run import Run
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED

__all__ = ["COLUMNS", "MOST_COLUMNS", "MOST_ROWS", "REPEATS", "column_importance", "inputs_of"]

MOST_ROWS, MOST_COLUMNS, REPEATS = 500, 40, 3
COLUMNS = ["client", "column", "metric", "mean", "sd", "score", "rows", "of_rows", "columns", "of_columns"]


def column_importance(run: Run, choose: str | dict[str, str]) -> pd.DataFrame:
    """How much worse a client's score is on its validation rows when the values of one column are shuffled among rows,
    so that the column says nothing any more. All inputs that the column became are shuffled together.

    This is permutation importance (Breiman 2001), with :data:`REPEATS` shuffles of at most :data:`MOST_ROWS` rows
    (drawn by the run's seed), for the first :data:`MOST_COLUMNS` columns.

    Args:
        run: trained; the models are those that it scored last.
        choose: the metric, or client → its own.

    Returns:
        One row per client and column: ``metric``, ``mean`` and ``sd`` over shuffles of how much worse it is (positive:
        the column helps), ``score`` without shuffling, ``rows`` used ``of_rows``, ``columns`` looked at ``of_columns``.
        No row of a client whose score is not defined.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the steps are short: a second thread would cost more than it gives
    try:
        return _of_all(run, choose)
    finally:
        torch.set_num_threads(threads)


def _of_all(run: Run, choose: str | dict[str, str]) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    for owner, site, rows in run.data.sites("validation"):
        client, metric = run.loop.federation[owner], choice_of(choose, site)
        columns = inputs_of(run.data.encoders[site], client.spec.features)
        looked = dict(list(columns.items())[:MOST_COLUMNS])
        if metric not in {score.name for score in client.spec.task.scores} or not len(rows) or not looked:
            continue
        rng = np.random.default_rng(derive_seed(run.seed, "importance", site))
        used = np.sort(rng.permutation(len(rows))[:MOST_ROWS])
        own = Rows(rows.x[used], rows.y[used], rows.row[used])
        with run.loop.federation.scope_of_scoring():
            before = _score(client, site, own.x, own.y, metric)
            if not np.isfinite(before):
                continue
            for name, inputs in looked.items():
                worse = [
                    COMPARED[metric].gain(before, _score(client, site, _shuffled(own.x, inputs, rng), own.y, metric))
                    for _ in range(REPEATS)
                ]
                found.append(
                    {
                        "client": site, "column": name, "metric": metric, "mean": np.mean(worse),
                        "sd": np.std(worse, ddof=1), "score": before, "rows": len(used), "of_rows": len(rows),
                        "columns": len(looked), "of_columns": len(columns),
                    }
                )  # fmt: skip
    return pd.DataFrame(found, columns=COLUMNS)


def _shuffled(x: Tensor, inputs: list[int], rng: np.random.Generator) -> Tensor:
    """With the values of one column dealt to other rows, in all inputs that it became."""
    x, places = x.clone(), torch.from_numpy(rng.permutation(len(x)))
    x[:, inputs] = x[places][:, inputs]
    return x


def _score(client: FederatedClient, site: str, x: Tensor, y: Tensor, metric: str) -> float:
    """A client's score on rows; NaN where it is not defined."""
    device = next((own.device for own in client.parameters()), x.device)
    classes = next(own.classes for own in client.spec.sites if own.name == site)
    task, was = client.spec.task, client.training
    client.eval()
    try:
        with torch.no_grad(), isolated_rng(derive_seed(0, "importance", site), device):  # the same draws each time
            predictions = client.evaluate(Batch(x.to(device), y.to(device)))[0].cpu()
    finally:
        client.train(was)
    narrowed, known, _ = task.narrow(classes, predictions, y, predictions.new_zeros(()))
    return float(task.at(classes).evaluate(narrowed, known)[metric])


def inputs_of(encoder: TableEncoder, features: tuple[str, ...]) -> dict[str, list[int]]:
    """Column of a client's table → the positions of what became of it among the inputs of its network."""
    place = {name: position for position, name in enumerate(features)}
    made = {name: column.inputs(encoder.categories) for name, column in encoder.columns.items()}
    positions = {name: [place[own] for own in inputs if own in place] for name, inputs in made.items()}
    return {name: own for name, own in positions.items() if own}
