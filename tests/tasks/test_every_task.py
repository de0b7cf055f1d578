"""What holds of every task: counts are repeated rows, predictions are read as written, an ensemble
gives its mean."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedlit import TabM
from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.loader import Batch
from fedlit.exchange.answerer import Answerer
from fedlit.exchange.questions import Losses
from fedlit.outcomes import OUTCOMES
from fedlit.spec import ClientSpec
from fedlit.tasks import (
    Classification,
    Counts,
    MultiLabel,
    Regression,
    SequenceLabelling,
    Task,
    task_from,
    task_state,
)
from fedlit.tasks.go_alone import GoAlone
from fedlit.tasks.predictions import Predictions, PredictionTable

PROPERTY = settings(derandomize=True, max_examples=80, deadline=None)
TASKS: dict[str, Task] = {
    "two classes": Classification(("no", "yes"), (3, 4)),
    "five classes": Classification(("a", "b", "c", "d", "e")),
    # sorted otherwise, as text
    "several labels": MultiLabel(("a", "b", "c"), (10, "no", True), (9, "Yes", False)),
    "a number": Regression("huber", 100.0, 20.0, "length"),
    "a count": Counts(3.0, "visits"),
    "a sequence": SequenceLabelling(("a", "b", "c"), 7),
}


def drawn(kind: str, seed: int, rows: int) -> tuple[Tensor, Tensor]:
    """Predictions with ties, and a target, some of it unknown."""
    task = TASKS[kind]
    rng = np.random.default_rng(seed)
    outputs = torch.from_numpy(rng.normal(size=(rows, task.outputs)).round().astype(np.float32))
    if kind == "a sequence":
        return task.predict(outputs), torch.from_numpy(rng.choice([-100, -1, 0, 1, 2], (rows, 7)))
    if kind == "several labels":
        y = rng.integers(0, 2, (rows, 3)).astype(np.float32)
        y[:, 1:][rng.random((rows, 2)) < 0.3] = math.nan
        return task.predict(outputs), torch.from_numpy(y)
    if task.classes:
        return task.predict(outputs), torch.from_numpy(rng.integers(-1, len(task.classes), rows))
    numbers = rng.poisson(3, rows) if kind == "a count" else rng.normal(size=rows)
    return task.predict(outputs), torch.from_numpy(numbers.astype(np.float32))


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    """Whether scores have the same names and bits."""
    pairs = [(first[name], second[name]) for name in first]
    equal = all(torch.equal(a, b) or bool(a.isnan() and b.isnan()) for a, b in pairs)
    return (
        first.keys() == second.keys()
        and equal
        and [a.dtype for a, _ in pairs] == [b.dtype for _, b in pairs]
    )


@PROPERTY
@given(st.sampled_from(list(TASKS)), st.integers(0, 9999), st.integers(1, 60))
def test_counts_are_repeated_rows_bit_for_bit(kind: str, seed: int, rows: int) -> None:
    predictions, y = drawn(kind, seed, rows)
    counts = torch.from_numpy(np.random.default_rng(seed + 1).integers(0, 4, rows))
    scorer = TASKS[kind].scorer(predictions, y)
    assert same(scorer(torch.ones_like(counts)), scorer(None))
    repeated = predictions.repeat_interleave(counts, 0), y.repeat_interleave(counts, 0)
    assert same(scorer(counts), TASKS[kind].evaluate(*repeated))


@pytest.mark.parametrize("kind", TASKS)
def test_what_is_not_finite_and_no_row_have_no_score(kind: str) -> None:
    predictions, y = drawn(kind, 0, 20)
    predictions[y.reshape(20, -1)[:, 0] >= 0] = math.nan
    task = TASKS[kind]
    for found in (task.evaluate(predictions, y), task.evaluate(predictions[:0], y[:0])):
        assert all(value.isnan() or name in ("classes", "labels") for name, value in found.items())


@pytest.mark.parametrize("kind", TASKS)
def test_predictions_are_read_as_they_were_written(kind: str, tmp_path: Path) -> None:
    task = TASKS[kind]
    (predictions, y) = drawn(kind, 3, 25)
    table = PredictionTable()
    # another client's columns come first: the same classes in another order
    other = task.at([*range(len(task.classes))][::-1])
    theirs, their_y = drawn(kind, 4, 2)
    table.add("other", Predictions.of_model(other, np.arange(2), their_y, theirs), "test")
    table.add("a", Predictions.of_model(task, np.arange(25), y, predictions), "test")
    table.write(tmp_path / "table.parquet")
    rows = PredictionTable.read(tmp_path / "table.parquet").read_back()["a"]["test"]
    read, again, target = rows.task, rows.predictions, rows.y
    assert type(read) is type(task) and read.classes == task.classes
    assert (task.confusion(predictions, y) is None) == (
        kind in ("several labels", "a number", "a count")
    )
    if task.classes:
        assert torch.equal(again, predictions) and torch.equal(
            target.nan_to_num(9), y.nan_to_num(9)
        )
    found = read.evaluate(again, target)
    expected = task.evaluate(predictions, y)
    assert {name: float(own) for name, own in found.items()} == pytest.approx(
        {name: float(own) for name, own in expected.items()}, rel=1e-6, nan_ok=True
    )
    assert task_from(task_state(task.fit(y))) == task.fit(y)


@pytest.mark.parametrize("kind", TASKS)
def test_outputs_of_members_become_those_of_their_mean(kind: str) -> None:
    task = TASKS[kind]
    outputs = 3 * torch.randn(50, 8, task.outputs, generator=torch.Generator().manual_seed(8))
    expected = torch.stack([task.predict(outputs[:, member]) for member in range(8)]).mean(0)
    assert torch.allclose(task.predict(task.of_members(outputs)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["none", "balanced"])
@pytest.mark.parametrize("kind", [kind for kind in TASKS if kind != "a sequence"])
def test_members_are_averaged(kind: str, weights: Literal["none", "balanced"]) -> None:
    """Where they are trained by the mean of their losses; elsewhere by the loss of their mean
    prediction."""
    y = drawn(kind, 0, 12)[1]
    y = y.clamp(min=0) if TASKS[kind].classes else y  # known
    task = TASKS[kind].fit(y)
    network = partial(TabM, k=3, width=5, embedding=2, num_bins=4)
    own = ClientSpec("ash", ("a", "b"), task.classes, {}, (), task.class_rows, task=task)
    client = FederatedClient(own, network, weights).eval()
    x = torch.randn(12, 2)
    with torch.no_grad():
        for parameter in client.parameters():  # members that differ
            parameter.normal_()
    outputs = client(x)
    members = [outputs[:, member] for member in range(3)]
    torch.testing.assert_close(
        client.loss(outputs, y), torch.stack([client.loss(own, y) for own in members]).mean()
    )
    made, loss = client.evaluate(Batch(x, y))
    torch.testing.assert_close(made, torch.stack([task.predict(own) for own in members]).mean(0))
    torch.testing.assert_close(loss, task.loss(task.of_members(outputs), y))
    answer: Any = Answerer(client, [], Rows(x, y, np.arange(12)))(Losses([{}]))
    torch.testing.assert_close(answer, client.loss(outputs, y).reshape(1))
    if "classes" in kind:  # labels that nobody knows
        assert client.evaluate(Batch(x, torch.full_like(y, -1)))[1].isnan()


@pytest.mark.parametrize("kind", ["two classes", "several labels", "a number", "a count"])
def test_local_baselines_learn_with_missing_and_constant_labels(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=150), rng.integers(0, 4, 150)]).astype(np.float32)
    signal = x[:, 0] + 0.3 * x[:, 1]
    task, y, score = {
        "two classes": (TASKS[kind], (x[:, 0] > 0).astype(int), "accuracy"),
        "a number": (Regression(), 3 * x[:, 0] + x[:, 1], "r2"),
        "a count": (Counts(3.0), rng.poisson(np.exp(signal)).astype(np.float32), "d2"),
        "several labels": (
            MultiLabel(("a", "no", "b", "yes", "unknown")),
            np.column_stack([x[:, 0] > 0, np.zeros(150), x[:, 1] > 1, np.ones(150), np.full(150, np.nan)]), "auroc",
        ),
    }[kind]  # fmt: skip
    y = np.where((np.arange(5) == 2) & (rng.random((150, 1)) < 0.3), np.nan, y) if y.ndim > 1 else y
    for name, model in task.go_alone.items():
        own = {key: values[-1 if task.classes else 0] for key, values in model.grid.items()}
        own |= {"n_estimators": 9} if "trees" in name else {}
        predicted = task.of_model(model.make(own, [1]).fit(x, y), x)
        found = task.evaluate(predicted, torch.from_numpy(y))
        assert name == "mean" or float(found[score]) > (0.5 if kind == "a count" else 0.9)
        if kind == "several labels":
            assert (
                predicted[0, [1, 3, 4]].tolist() == [0.0, 1.0, 0.5] and float(found["labels"]) == 2
            )


# --------------------------------------------------- a class that a study names as a local baseline

X = np.arange(12.0)[:, None]
KINDS: dict[str, tuple[str | None, np.ndarray]] = {
    Classification.name: ("Classifier", np.arange(12) % 3),
    MultiLabel.name: (
        "Classifier",
        np.column_stack([np.arange(12) % 2, np.arange(12) > 5]).astype(float),
    ),
    Regression.name: ("Regressor", np.arange(12) * 0.5),
    Counts.name: ("Regressor", np.append(np.arange(11.0) ** 2, np.nan)),  # unknown in one row
    SequenceLabelling.name: (None, np.zeros(12)),
}


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("kind", ["Classifier", "Regressor"])
def test_a_class_serves_the_tasks_of_its_kind(kind: str, task: str) -> None:
    models = [
        GoAlone.read("own", {"class_path": f"sklearn.{path}{kind}"}).for_outcome(OUTCOMES[task])
        for path in ("tree.DecisionTree", "neighbors.KNeighbors")
    ]
    expected, y = KINDS[task]
    if kind != expected:
        assert models == [None, None]
        return
    tree, neighbours = models
    assert tree is not None and neighbours is not None
    assert (tree.seedless, neighbours.seedless) == (False, True)  # it draws among equal splits
    fitted = tree.make({}, []).fit(X, y)
    # a tree tells all rows apart; of columns each has one of its own
    found = fitted.predict_proba(X) if task == MultiLabel.name else fitted.predict(X)
    np.testing.assert_array_equal(np.reshape(found, y.shape)[:-1], y[:-1])
