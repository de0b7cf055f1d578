"""Test scores on resampled rows, which show how much scores would vary on other rows of the same kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlit.seeding import derive_seed
from fedlit.tasks import Task, read_predictions

Numbers = NDArray[np.float64]
Tested = Mapping[str, tuple[Task, Tensor, Tensor]]
"""Client → its task, the predictions of its test rows, their targets."""


def read_tested(predictions: pd.DataFrame) -> Tested:
    """Return the test rows of ``predictions.parquet`` as tensors, ordered by their numbers."""
    test = predictions[predictions["split"] == "test"].sort_values("row", kind="stable")
    return {str(client): read_predictions(own) for client, own in test.groupby("client", observed=True)}


def bootstrap_scores(tested: Tested, resamples: int) -> pd.DataFrame:
    """Return the scores of rows drawn with replacement, by the client's task: all scores except those that take too
    long.

    The draws are a function of the client's name, its number of rows and the resample: two models that are scored on
    the same rows are scored on the same draws, so that their difference can be taken draw by draw.

    Args:
        tested: the rows that :func:`read_tested` returns.
        resamples: the number of draws.

    Returns:
        One row per draw; the columns are (client, metric).
    """
    columns: dict[tuple[str, str], Numbers] = {}
    for client, (task, predictions, y) in tested.items():
        scorer = task.scorer(predictions, y)
        draws = [scorer(counts) for counts in _draws(client, len(y), resamples)]
        for score in task.scores if draws else ():
            if score.name in draws[0] and not score.context:
                columns[client, score.name] = np.array([float(draw[score.name]) for draw in draws])
    return pd.DataFrame(columns, columns=pd.MultiIndex.from_tuples(list(columns), names=["client", "metric"]))


def _draws(client: str, rows: int, resamples: int) -> Iterator[Tensor]:
    for number in range(resamples):
        rng = np.random.default_rng(derive_seed(0, "bootstrap", client, rows, number))
        yield torch.from_numpy(np.bincount(rng.integers(0, rows, rows), minlength=rows))
