"""Ranking metrics bit for bit as torchmetrics has them, and rows that count several times or not at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.classification import binary_auroc, binary_average_precision

from fedlit.tasks import Classification, Task
from fedlit.tasks.classification import restrict

PROPERTY = settings(derandomize=True, max_examples=60, deadline=None)


def drawn(seed: int, rows: int, classes: int, levels: int | None) -> tuple[Task, Tensor, Tensor]:
    """Probabilities with as many different values as there are levels (any if None), and labels, some unknown."""
    rng = np.random.default_rng(seed)
    y = rng.integers(-1, classes, rows)
    logits = rng.normal(size=(rows, classes)) + 1.5 * (y[:, None] == np.arange(classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    if levels is not None:
        probabilities = np.round(probabilities * levels) / levels
    return (
        Classification(tuple(range(classes))),
        torch.from_numpy(probabilities.astype(np.float32)),
        torch.from_numpy(y),
    )


@PROPERTY
@given(st.integers(0, 9999), st.integers(2, 300), st.sampled_from([2, 3, 6]), st.sampled_from([None, 2, 7, 40]))
def test_ranking_metrics_have_the_bits_of_torchmetrics(seed: int, rows: int, classes: int, levels: int | None) -> None:
    task, probabilities, y = drawn(seed, rows, classes, levels)
    found = task.evaluate(probabilities, y)
    ranked = [c for c in ([1] if classes == 2 else range(classes)) if 0 < (y == c).sum() < rows]
    for name, oracle in (("auroc", binary_auroc), ("auprc", binary_average_precision)):
        each = [oracle(probabilities[:, c], (y == c).long()) for c in ranked]
        assert torch.equal(found[name], torch.stack(each).mean()) if each else found[name].isnan()


def test_rows_whose_classes_have_no_probability_are_scored() -> None:
    """All of it is on a class that the scored rows do not have, as networks that diverge may put it."""
    rows, y = torch.eye(4)[[0, 1, 2, 3]], torch.tensor([0, 1, 2, 0])
    assert Classification((0, 1, 2, 3)).evaluate_once(rows, y)["auroc_ovo"] == 1.0
    assert restrict(rows, [0, 1])[3].tolist() == [0.5, 0.5]


def test_loss_is_the_weighted_cross_entropy_of_one_output_too() -> None:
    logits, y = torch.randn(9, 1), torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 1])
    task = Classification(("no", "yes"), (30, 10))
    both = torch.cat([torch.zeros_like(logits), logits], 1)
    for weight in (None, task.balance()):
        torch.testing.assert_close(task.loss(logits, y, weight), functional.cross_entropy(both, y, weight))


def test_log_loss_is_scikit_learns_over_known_labels() -> None:
    from sklearn.metrics import log_loss

    generator = torch.Generator().manual_seed(8)
    predictions = torch.rand(60, 3, generator=generator, dtype=torch.float64).softmax(1)
    y = torch.randint(-1, 3, (60,), generator=generator)  # −1: no training row has the label
    known = y >= 0
    expected = log_loss(y[known], predictions[known], labels=[0, 1, 2])
    assert Classification((0, 1, 2)).evaluate_once(predictions, y)["log_loss"] == pytest.approx(expected)
