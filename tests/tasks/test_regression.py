"""Regression against scikit-learn and closed forms, and from a configuration's key to a task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import encode
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from fedlit.data.agree import Terms, negotiate
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.data.target import TaskSettings, own_task
from fedlit.errors import ConfigError, DataError
from fedlit.tasks import Classification, Regression, read_predictions

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)
HUBER = Regression("huber", 100.0, 20.0, "length")


def drawn(seed: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    value = pd.Series(rng.normal(100, 20, rows))
    return torch.tensor(value + rng.normal(0, 9, rows), dtype=torch.float32)[:, None], HUBER.encode(value)


@PROPERTY
@given(st.integers(0, 9999), st.integers(2, 60))
def test_scores_equal_scikit_learn(seed: int, rows: int) -> None:
    predictions, y = drawn(seed, rows)
    counts = torch.from_numpy(np.random.default_rng(seed).integers(0, 3, rows))
    counts[0] = 2
    scorer = HUBER.scorer(predictions, y)
    true, found = y.double().numpy() * 20 + 100, predictions[:, 0].numpy()
    expected = {
        "rmse": root_mean_squared_error(true, found, sample_weight=counts),
        "mae": mean_absolute_error(true, found, sample_weight=counts),
    }
    if int((counts > 0).sum()) > 1:
        expected["r2"] = r2_score(true, found, sample_weight=counts)
    assert {name: float(scorer(counts)[name]) for name in expected} == pytest.approx(expected, rel=1e-9)


def test_what_is_not_defined_is_nan() -> None:
    same = HUBER.evaluate(torch.tensor([[90.0], [110.0]]), torch.zeros(2))
    assert (float(same["rmse"]), float(same["mae"])) == (10.0, 10.0) and same["r2"].isnan()


def test_the_squared_errors_gradient_is_twice_the_mean_error() -> None:
    outputs, y = torch.tensor([[0.5], [-1.0], [4.0]], requires_grad=True), torch.tensor([0.0, 1.0, 1.0])
    Regression().loss(outputs, y).backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad[:, 0], 2 * torch.tensor([0.5, -2.0, 3.0]) / 3)


def test_hubers_loss_is_half_the_square_near_and_linear_beyond() -> None:
    outputs = torch.tensor([[0.5], [-3.0]])
    assert HUBER.loss(outputs, torch.zeros(2)).item() == pytest.approx((0.5 * 0.25 + (3 - 0.5)) / 2)


def test_predictions_are_in_the_users_units_and_read_as_written() -> None:
    value = pd.Series([346.0, 25.0, 0.0, 152.0], name="length")
    task = Regression.agree("a", {"a": Regression.facts(value, {})})
    assert (task.mean, task.scale) == pytest.approx((value.mean(), value.std(ddof=0)))
    y = task.encode(value)
    predicted = task.predict(torch.tensor([[0.0], [1.0], [-1.0], [0.25]]))
    assert predicted[:2, 0].tolist() == pytest.approx([task.mean, task.mean + task.scale])
    frame = task.frame(np.arange(4), y, predicted)
    assert frame["target"].tolist() == value.tolist()  # not 151.99998
    read, again, target = read_predictions(
        frame.astype({"target": "string", "predicted": "string"}).assign(task="regression")
    )
    assert isinstance(read, Regression)
    for name, score in read.evaluate(again, target).items():
        assert float(score) == pytest.approx(float(task.evaluate(predicted, y)[name]), rel=1e-6)


def test_a_small_spread_beside_a_large_mean_is_kept() -> None:
    x = np.random.default_rng(0).normal(size=50)
    value, near = pd.Series(2_459_000 + 10 * x, name="date"), pd.Series(10 * x, name="date")
    far, by_zero = (Regression.agree("a", {"a": Regression.facts(own, {})}) for own in (value, near))
    outputs = torch.linspace(-1, 1, 50)[:, None]
    y = far.encode(value)
    frame = far.frame(np.arange(50), y, far.predict(outputs))
    assert np.abs(frame["target"] - value).max() < 1e-5 * far.scale
    again = read_predictions(frame.astype({"target": "string", "predicted": "string"}).assign(task="regression"))
    expected = by_zero.evaluate(by_zero.predict(outputs), by_zero.encode(near))
    for read in (far.evaluate(far.predict(outputs), y), again[0].evaluate(again[1], again[2])):
        assert {name: float(own) for name, own in read.items()} == pytest.approx(
            {name: float(own) for name, own in expected.items()}, rel=1e-5
        )


# ------------------------------------------------------------------ from a key to a task


def numbers(name: str, shift: float = 0.0, task: TaskSettings | None = "regression") -> ClientTable:
    rng = np.random.default_rng(len(name))
    x = rng.normal(size=(60, 2))
    target = pd.Series(shift + 10 * x[:, 0], name="length")
    splits = {"train": np.arange(40), "validation": np.arange(40, 50), "test": np.arange(50, 60)}
    return ClientTable(name, pd.DataFrame(x, columns=["a", "b"]), target, splits, task=task)  # type: ignore[arg-type]


def test_targets_are_standardised_by_the_clients_own_rows_or_by_all() -> None:
    tables = [numbers("one"), numbers("other", 50)]
    own = {client.spec.name: client.spec.task for client in encode(tables)}
    assert own["one"] != own["other"] and all(isinstance(task, Regression) for task in own.values())
    assert negotiate(tables, Terms()).told([]) == []
    tables = [
        numbers(table.name, 50 * (table.name == "other"), {"name": "regression", "targets": "pooled"})
        for table in tables
    ]
    clients = encode(tables)
    assert clients[0].spec.task == clients[1].spec.task
    rows = np.concatenate([table.target.iloc[:40] for table in tables])
    task = clients[0].spec.task
    assert isinstance(task, Regression) and (task.mean, task.scale) == pytest.approx((rows.mean(), rows.std()))
    assert clients[0].train.y.dtype == torch.float32
    (told,) = negotiate(tables, Terms()).told([])
    assert told == {
        "what": "count, mean and variance",
        "key": "task.targets: pooled",
        "columns": ["length"],
        "numbers": {"one": 3, "other": 3},
    }


def test_a_fingerprint_knows_the_targets_unit() -> None:
    first, second = numbers("one"), numbers("one")
    second.target.mul(2, fill_value=0).pipe(lambda doubled: second.target.update(doubled))
    (one,), (other,) = encode([first]), encode([second])
    assert torch.equal(one.train.y, other.train.y) and one.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "regresion",
            "expected one of classification, regression, .*, found 'regresion'.*[Dd]id you mean",
        ),
        ({"name": "regression", "loss": "cubic"}, "regression takes loss: squared or huber.*found loss: cubic"),
        ({"name": "classification", "loss": "huber"}, "classification takes nothing else"),
        ({"nord": "regression"}, "expected one of the clients .*found 'nord'"),
    ],
)
def test_a_task_that_cannot_be_meant(task: TaskSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Tables({"north": "a.csv", "south": "b.csv"}, "y", task=task)


def test_tables_have_tasks_by_client(tmp_path: Path) -> None:
    for name in ("north", "south"):
        rows = pd.DataFrame(
            {"x": [k * 7 % 60 for k in range(60)], "y": [k % 2 if name == "north" else k / 7 for k in range(60)]}
        )
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south")}
    source = Tables(files, "y", task={"s*": {"name": "regression", "loss": "huber"}})
    north, south = encode(source.tables(seed=0))
    assert isinstance(north.spec.task, Classification) and isinstance(south.spec.task, Regression)
    (alone,) = source.some(["south"], 0)
    assert south.spec.task.kind == "huber" and alone.task == {"name": "regression", "loss": "huber"}
    with pytest.raises(DataError, match=r"'south', target 'y': expected class labels.*task: regression"):
        Tables(files, "y").tables(seed=0)
    assert own_task(None, "north") is None
