"""Labels of positions against those of so many rows, and NumPy; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from fedlit.errors import DataError
from fedlit.tasks import Classification, SequenceLabelling
from fedlit.tasks.metrics import Site, SiteMetrics

LABELS = ("a", "b", "c")
LENGTH = 7
TASK = SequenceLabelling(LABELS, LENGTH)


def drawn(seed: int, rows: int, letters: str = "abc?") -> tuple[Tensor, Tensor]:
    """Logits and labels, some positions without one."""
    rng = np.random.default_rng(seed)
    target = pd.Series(
        ["".join(rng.choice(list(letters), LENGTH)) for _ in range(rows)], name="labels"
    )
    return torch.from_numpy(rng.normal(size=(rows, LENGTH * 3)).astype(np.float32)), TASK.encode(
        target
    )


def by_hand(logits: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Of labelled positions: probabilities (k, 3) and labels (k,)."""
    powers = np.exp(logits.double().numpy()).reshape(len(y), LENGTH, 3)
    return (powers / powers.sum(2, keepdims=True))[y.numpy() != -100], y[y != -100].numpy()


def test_loss_and_scores_equal_those_of_labelled_positions() -> None:
    logits, y = drawn(0, 30)
    probabilities, labels = by_hand(logits, y)
    assert 0 < len(labels) < y.numel()
    expected = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    assert TASK.loss(logits, y).item() == pytest.approx(expected, rel=1e-5)
    predictions = TASK.predict(logits)
    scores: dict[str, Any] = {**TASK.evaluate(predictions, y), **TASK.evaluate_once(predictions, y)}
    whole = Classification(LABELS)
    # whose scores are scikit-learn's: test_metrics.py
    each = torch.from_numpy(probabilities), torch.from_numpy(labels)
    flat = {**whole.evaluate(*each), "log_loss": expected}
    assert {name: float(scores[name]) for name in flat} == pytest.approx(
        {name: float(own) for name, own in flat.items()}, rel=1e-5
    )
    behind = (y == -100).unsqueeze(-1)  # where a network of one's own may predict anything
    padded = predictions.unflatten(-1, (LENGTH, 3)).masked_fill(behind, float("nan")).flatten(-2)
    assert TASK.evaluate(padded, y) == TASK.evaluate(predictions, y)
    assert torch.equal(TASK.confusion(predictions, y), whole.confusion(*each))
    np.testing.assert_allclose(TASK.bounded(logits).numpy(), predictions.numpy())


def test_weights_are_of_labels_and_no_label_has_no_loss() -> None:
    logits, y = drawn(1, 20)
    task = TASK.fit(y)
    assert task.class_rows == tuple(int((y == code).sum()) for code in range(3))
    weight = task.balance()
    probabilities, labels = by_hand(logits, y)
    own = weight.double().numpy()[labels]
    expected = (-np.log(probabilities[np.arange(len(labels)), labels]) * own).sum() / own.sum()
    assert task.loss(logits, y, weight).item() == pytest.approx(expected, rel=1e-5)
    assert TASK.loss(logits, torch.full_like(y, -100)).isnan()


def test_a_label_that_training_lacks_is_wrong_and_in_no_loss() -> None:
    logits, y = drawn(3, 10, "abcd?")
    outside = int((y == -1).sum())
    assert outside > 0
    assert TASK.loss(logits, y).item() == pytest.approx(
        TASK.loss(logits, torch.where(y == -1, -100, y)).item()
    )
    labelled = y != -100
    hits = (TASK.predict(logits).unflatten(1, (LENGTH, 3)).argmax(2) == y) & labelled
    accuracy = TASK.evaluate(TASK.predict(logits), y)["accuracy"].item()
    assert accuracy == pytest.approx((hits.sum() / labelled.sum()).item())


def test_batches_give_the_mean_over_positions() -> None:
    logits, y = drawn(4, 9)
    y[3:, 2:] = -100  # batches with unlike numbers of labelled positions
    metrics = SiteMetrics(Site("north", (0, 1, 2), {}), TASK)
    for part in (slice(0, 3), slice(3, 9)):
        metrics.update(TASK.predict(logits[part]), y[part], TASK.loss(logits[part], y[part]))
    assert metrics.compute()["loss"].item() == pytest.approx(TASK.loss(logits, y).item(), rel=1e-6)
    narrow, own, loss = TASK.narrow((0, 2), TASK.predict(logits), y, torch.tensor(0.0))
    probabilities, labels = by_hand(logits, y)
    kept = probabilities[:, [0, 2]] / probabilities[:, [0, 2]].sum(1, keepdims=True)
    expected = -np.log(kept[labels == 0, 0]).sum() - np.log(kept[labels == 2, 1]).sum()
    assert loss.item() == pytest.approx(expected / (labels != 1).sum(), rel=1e-5)
    assert narrow.shape == (9, LENGTH * 2) and set(own.unique().tolist()) == {-100, -1, 0, 1}
    assert TASK.at((0, 2)).classes == ("a", "c")


def target(*texts: object) -> pd.Series:
    return pd.Series(list(texts), name="labels", dtype=object)


def test_facts_are_labels_and_length_and_clients_agree_on_them() -> None:
    north = SequenceLabelling.facts(target("ab?", "bb?"), {})
    assert north == {
        "task": "sequence_labelling",
        "target": "labels",
        "labels": ["a", "b"],
        "length": 3,
    }
    south = SequenceLabelling.facts(target("ccc"), {})
    assert SequenceLabelling.agree("south", {"north": north, "south": south}).classes == (
        "a",
        "b",
        "c",
    )
    with pytest.raises(
        DataError, match=r"client 'south': expected at least two labels.*found one \('c'\)"
    ):
        SequenceLabelling.agree("south", {"south": south})
    with pytest.raises(
        DataError, match=r"as many positions at all clients, found .*'north': 3, 'west': 2"
    ):
        west = SequenceLabelling.facts(target("ab"), {})
        SequenceLabelling.agree("north", {"north": north, "west": west})


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("ab", "abc"), "row 1: expected a text of 2 labels.*found 'abc'"),
        (("??", "??"), "expected labels in training rows"),
        (("a!", "ab"), "expected labels .*other than '!'"),
        (("ab", 7), "row 1: expected a text of 2 labels.*found 7"),
    ],
)
def test_targets_that_cannot_be_predicted_are_refused(
    texts: tuple[object, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        SequenceLabelling.facts(target(*texts), {})
