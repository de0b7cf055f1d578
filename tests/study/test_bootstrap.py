"""Scores of weighted rows against scikit-learn and against the rows repeated."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedlit.study.bootstrap import Tested, bootstrap_scores, read_tested
from fedlit.tasks import Classification


def made(classes: int, rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = rng.integers(-1, classes, rows)
    logits = rng.normal(size=(rows, classes)) + 1.5 * (target[:, None] == np.arange(classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return np.round(probabilities, 2), target  # rounded: many equal scores


def predictions(seed: int, noise: float = 0.0) -> pd.DataFrame:
    rng, parts = np.random.default_rng(seed), []
    for client, labels in {"ash": ("no", "yes"), "birch": ("1", "2", "3")}.items():
        probabilities, target = made(len(labels), rows=200, seed=7)
        probabilities = torch.from_numpy(probabilities + noise * rng.random(probabilities.shape))
        frame = Classification(labels).frame(np.arange(200), torch.from_numpy(target), probabilities)
        parts.append(frame.assign(client=client))
    return pd.concat(parts, ignore_index=True)


def read(frame: pd.DataFrame) -> Tested:
    return read_tested(frame.assign(task="classification", split="test"))


def test_two_models_are_scored_on_the_same_draws_whatever_the_order_of_their_rows() -> None:
    first = predictions(0)
    again = bootstrap_scores(read(first.sample(frac=1.0, random_state=3)), 20)
    pd.testing.assert_frame_equal(bootstrap_scores(read(first), 20), again)
    metrics = set(Classification((0, 1)).evaluate(torch.eye(2), torch.tensor([0, 1]))) - {"classes"}
    assert set(again.columns) == {(c, m) for c in ("ash", "birch") for m in metrics}
    # a model that is slightly worse on the same rows: differences vary less than either does
    other = bootstrap_scores(read(predictions(0, noise=0.05)), 100)["birch", "auroc"]
    mine = bootstrap_scores(read(first), 100)["birch", "auroc"]
    assert (mine - other).std() < 0.5 * min(mine.std(), other.std())


def test_the_spread_is_the_standard_error_of_a_share() -> None:
    # accuracy of n rows is a share: its standard error is known
    drawn = bootstrap_scores(read(predictions(0)), 600)["ash", "accuracy"]
    share = drawn.mean()
    assert drawn.std() == pytest.approx(math.sqrt(share * (1 - share) / 200), rel=0.1)
