"""Which columns a client's predictions rest on: permutation importance, computed while the model is in memory."""

from __future__ import annotations

from typing import Any, Self

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

    By :func:`sklearn.inspection.permutation_importance`, with :data:`REPEATS` shuffles of at most :data:`MOST_ROWS`
    rows (drawn by the run's seed), for the first :data:`MOST_COLUMNS` columns.

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
        if metric not in {score.name for score in client.spec.task.scores} or not len(rows):
            continue
        columns = inputs_of(run.data.encoders[site], client.spec.features)
        looked = dict(list(columns.items())[:MOST_COLUMNS])
        rng = np.random.default_rng(derive_seed(run.seed, "importance", site))
        used = np.sort(rng.permutation(len(rows))[:MOST_ROWS])
        with run.loop.federation.scope_of_scoring():
            own = _Shuffled(client, site, Rows(rows.x[used], rows.y[used], rows.row[used]), looked, metric)
            before = own.score(own, own.places, None)
            if not np.isfinite(before) or not looked:
                continue
            shuffled = _importance(own, int(rng.integers(2**31)))
        shared = {"score": COMPARED[metric].gain(before, 0.0), "rows": len(used), "of_rows": len(rows)}
        counts = {"columns": len(looked), "of_columns": len(columns)}
        for name, values in zip(looked, shuffled, strict=True):
            own_mean, own_sd = float(values.mean()), float(values.std(ddof=1))
            row = {"client": site, "column": name, "metric": metric, "mean": own_mean, "sd": own_sd}
            found.append({**row, **shared, **counts})
    return pd.DataFrame(found, columns=COLUMNS)


def inputs_of(encoder: TableEncoder, features: tuple[str, ...]) -> dict[str, list[int]]:
    """Column of a client's table → the positions of what became of it among the inputs of its network."""
    place = {name: position for position, name in enumerate(features)}
    made = {name: column.inputs(encoder.categories) for name, column in encoder.columns.items()}
    positions = {name: [place[own] for own in inputs if own in place] for name, inputs in made.items()}
    return {name: own for name, own in positions.items() if own}


def _importance(own: _Shuffled, seed: int) -> np.ndarray:
    """(columns, repeats)."""
    from sklearn.inspection import permutation_importance

    found = permutation_importance(
        own, own.places, None, scoring=own.score, n_repeats=REPEATS, random_state=seed, n_jobs=None
    )
    values: np.ndarray = found.importances
    return values


class _Shuffled:
    """A client as scikit-learn's ``permutation_importance`` takes a model. Its table holds no values: each cell says
    from which row the column's inputs are taken, so that what is shuffled is a column, whatever it became.
    """

    def __init__(
        self, client: FederatedClient, site: str, rows: Rows, columns: dict[str, list[int]], metric: str
    ) -> None:
        spec = client.spec
        self.client, self.inputs, self.gain = client, list(columns.values()), COMPARED[metric].gain
        device = next((own.device for own in client.parameters()), rows.x.device)
        self.x, self.y, self.metric = rows.x.to(device), rows.y.to(device), metric
        self.classes = next(own.classes for own in spec.sites if own.name == site)
        self.places = np.repeat(np.arange(len(rows))[:, None], len(columns), axis=1)
        self.seed = derive_seed(0, "importance", site)

    def fit(self, x: Any, y: Any) -> Self:
        """It is fitted."""
        return self

    def predict(self, places: np.ndarray) -> Tensor:
        """Predictions for rows whose columns are taken from these rows."""
        x = self.x.clone()
        for column in np.flatnonzero((places != self.places).any(axis=0)):
            inputs = self.inputs[column]
            x[:, inputs] = self.x[torch.from_numpy(places[:, column]).to(x.device)][:, inputs]
        was = self.client.training
        self.client.eval()
        try:
            with torch.no_grad(), isolated_rng(self.seed, x.device):  # of dropout at test time the same draws
                predictions: Tensor = self.client.evaluate(Batch(x, self.y))[0].cpu()
        finally:
            self.client.train(was)
        return predictions

    def score(self, model: Any, places: np.ndarray, y: Any) -> float:
        """More is better, whatever the score; NaN where it is not defined."""
        task, predictions = self.client.spec.task, self.predict(places)
        narrowed, known, _ = task.narrow(self.classes, predictions, self.y.cpu(), predictions.new_zeros(()))
        value = float(task.at(self.classes).evaluate(narrowed, known)[self.metric])
        return float(self.gain(value, 0.0))
