"""Numbers against scikit-learn and closed forms, what is refused as one, and from a configuration's
key to a task."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import encode
from sklearn.metrics import (
    d2_tweedie_score,
    mean_absolute_error,
    mean_poisson_deviance,
    r2_score,
    root_mean_squared_error,
)

from fedlit.data.agree import negotiate
from fedlit.data.sent import describe_sent
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.targets import task_for
from fedlit.data.terms import Terms
from fedlit.errors import ConfigError, DataError
from fedlit.tasks import Classification, Counts, Regression
from fedlit.tasks.baselines import COUNTERS
from fedlit.tasks.number import Number

HUBER = Regression("huber", 100.0, 20.0, "length")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.integers(0, 9999), st.integers(2, 60), st.sampled_from([0.0, 0.3, 4.0, 200.0]))
def test_scores_equal_scikit_learn(seed: int, rows: int, mean: float) -> None:
    rng = np.random.default_rng(seed)
    task = Counts(mean) if mean else HUBER
    value = pd.Series(rng.poisson(mean, rows) if mean else rng.normal(100, 20, rows))
    y = task.encode(value)
    outputs = torch.from_numpy(rng.normal(size=(rows, 1)).astype(np.float32))
    predictions = task.predict(outputs)
    often = torch.from_numpy(rng.integers(0, 3, rows))
    often[0] = 2
    true = y.double().numpy() if mean else y.double().numpy() * 20 + 100
    scored = {"rmse": root_mean_squared_error, "mae": mean_absolute_error}
    if mean:
        scored["deviance"] = mean_poisson_deviance
    expected = {
        name: own(true, predictions[:, 0], sample_weight=often) for name, own in scored.items()
    }
    if len(np.unique(true[often > 0])) > 1:
        own = d2_tweedie_score if mean else r2_score
        how: dict[str, Any] = {"power": 1} if mean else {}
        expected["d2" if mean else "r2"] = own(true, predictions[:, 0], sample_weight=often, **how)
    found = task.scorer(predictions, y)(often)
    assert {name: float(found[name]) for name in expected} == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


def test_undefined_scores_are_nan_and_impossible_ones_infinite() -> None:
    same = HUBER.evaluate(torch.tensor([[90.0], [110.0]]), torch.zeros(2))
    assert (float(same["rmse"]), float(same["mae"])) == (10.0, 10.0) and same["r2"].isnan()
    same = Counts().evaluate(torch.tensor([[2.0], [2.0]]), torch.tensor([2.0, 2.0]))
    assert same["d2"].isnan() and float(same["deviance"]) == 0.0
    never = Counts().evaluate(torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 1.0]))
    assert float(never["deviance"]) == 0.0 and float(never["d2"]) == 1.0
    assert (
        float(Counts().evaluate(torch.tensor([[0.0]]), torch.tensor([1.0]))["deviance"]) == math.inf
    )


def test_losses_and_their_gradients_are_those_of_closed_forms() -> None:
    outputs = torch.tensor([[0.5], [-1.0], [4.0]], requires_grad=True)
    y = torch.tensor([0.0, 1.0, 1.0])
    Regression().loss(outputs, y).backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad[:, 0], 2 * torch.tensor([0.5, -2.0, 3.0]) / 3)
    loss = HUBER.loss(torch.tensor([[0.5], [-3.0]]), torch.zeros(2)).item()
    # half the square near, linear beyond
    assert loss == pytest.approx((0.5 * 0.25 + (3 - 0.5)) / 2)
    task = Counts.agree("a", {"a": Counts.facts(pd.Series([0, 1, 5, 2], name="visits"), {})})
    assert task == Counts(2.0, "visits")
    outputs = torch.zeros(4, 1, requires_grad=True)
    y = task.encode(pd.Series([0, 1, 5, 2]))
    assert task.predict(outputs)[:, 0].tolist() == pytest.approx([2.0] * 4)  # untrained, the mean
    counted = task.loss(outputs, y)
    exact = torch.distributions.Poisson(torch.tensor(2.0)).log_prob(y)
    # of log y!, Stirling's formula
    assert counted.item() == pytest.approx(-exact.mean().item(), abs=0.02)
    counted.backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad[:, 0], (2.0 - y) / 4)


def test_a_target_is_written_as_it_was_read() -> None:
    value = pd.Series([346.0, 25.0, 0.0, 152.0], name="length")
    task = Regression.agree("a", {"a": Regression.facts(value, {})})
    frame = task.frame(np.arange(4), task.encode(value), task.predict(torch.zeros(4, 1)))
    assert frame["target"].tolist() == value.tolist()  # not 151.99998


def test_a_small_spread_beside_a_large_mean_is_kept() -> None:
    x = np.random.default_rng(0).normal(size=50)
    value = pd.Series(2_459_000 + 10 * x, name="date")
    near = pd.Series(10 * x, name="date")
    far, by_zero = (
        Regression.agree("a", {"a": Regression.facts(own, {})}) for own in (value, near)
    )
    outputs = torch.linspace(-1, 1, 50)[:, None]
    y = far.encode(value)
    frame = far.frame(np.arange(50), y, far.predict(outputs))
    assert np.abs(frame["target"] - value).max() < 1e-5 * far.scale
    again = far.read(frame.astype({"target": "string", "predicted": "string"}))
    expected = {
        name: float(own)
        for name, own in by_zero.evaluate(by_zero.predict(outputs), by_zero.encode(near)).items()
    }
    for read in (far.evaluate(far.predict(outputs), y), again[0].evaluate(again[1], again[2])):
        assert {name: float(own) for name, own in read.items()} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0, 3, -1, -2], "found 2 others of 4: -1 in row 2, -2 in row 3"),
        ([0.0, 1.5], "found 1 others of 2: 1.5 in row 1"),
        ([0.0, 1e9], "1e+09 in row 1"),
        ([0.0, math.inf], "inf in row 1"),
        (["1", "many"], "expected numbers for task: counts, found 1 others of 2: 'many'"),
    ],
)
def test_what_is_no_count_is_refused(values: list[Any], found: str) -> None:
    for ask in (lambda target: Counts.facts(target, {}), Counts(2.0).encode):
        with pytest.raises(DataError, match=re.escape(found)):
            ask(pd.Series(values, name="visits"))


# ------------------------------------------------------------------ from a key to a task


def table(name: str, values: Any, task: str, **more: str) -> ClientTable:
    x = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0)[::-1]})
    splits: Any = {
        "train": np.arange(40),
        "validation": np.arange(40, 50),
        "test": np.arange(50, 60),
    }
    return ClientTable(name, x, pd.Series(values, name="y"), splits, task={"name": task, **more})


FEW = np.arange(60) % 3
MANY = np.arange(60) % 7


@pytest.mark.parametrize(
    ("name", "what", "sent"),
    [("counts", "count and mean", 2), ("regression", "count, mean and variance", 3)],
)
def test_a_target_is_measured_by_the_clients_own_rows_or_by_all(
    name: str, what: str, sent: int
) -> None:
    def measured(task: Any) -> tuple[float, ...]:
        assert isinstance(task, Number)
        return (task.mean, task.scale) if isinstance(task, Regression) else (task.mean,)

    def expected(rows: np.ndarray) -> Any:
        return pytest.approx((rows.mean(), rows.std())[: sent - 1])

    tables = [table("few", FEW, name), table("many", MANY, name)]
    assert [measured(client.spec.task) for client in encode(tables)] == [
        expected(FEW[:40]),
        expected(MANY[:40]),
    ]
    assert describe_sent(negotiate(tables, Terms())[1], Terms()) == []
    tables = [
        table("few", FEW, name, targets="pooled"),
        table("many", MANY, name, targets="pooled"),
    ]
    both = expected(np.concatenate([FEW[:40], MANY[:40]]))
    assert [measured(client.spec.task) for client in encode(tables)] == [both, both]
    (entry,) = describe_sent(negotiate(tables, Terms())[1], Terms())
    numbers = {"few": sent, "many": sent}
    assert entry == {
        "what": what,
        "key": "task.targets: pooled",
        "columns": ["y"],
        "numbers": numbers,
    }


def test_zeros_alone_have_no_rate_but_a_pooled_one() -> None:
    zeros = np.zeros(60, int)
    with pytest.raises(
        DataError, match=r"client 'none', target 'y': expected a count above 0 .*targets: pooled"
    ):
        encode([table("none", zeros, "counts"), table("some", FEW, "counts")])
    tables = [
        table("none", zeros, "counts", targets="pooled"),
        table("some", FEW, "counts", targets="pooled"),
    ]
    task = encode(tables)[0].spec.task
    for model in COUNTERS.values():
        fitted = model.make({}, []).fit(np.arange(40.0)[:, None], np.zeros(40))
        rates = task.of_model(fitted, np.arange(3.0)[:, None])
        assert bool((rates > 0).all()) and bool((rates < 0.01).all())


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "regresion",
            "expected one of classification, regression, .*, found 'regresion'.*[Dd]id you mean",
        ),
        ({"name": 5}, "expected one of classification"),
        (
            {"name": "regression", "loss": "cubic"},
            "regression: expected loss: squared or huber.*found loss: cubic",
        ),
        ({"name": "classification", "loss": "huber"}, "classification: expected no choices"),
        ({"nord": "regression"}, "expected one of the clients .*found 'nord'"),
    ],
)
def test_a_task_that_cannot_be_meant(task: TaskSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Tables({"north": "a.csv", "south": "b.csv"}, "y", task=task)


def test_tables_have_tasks_by_client(tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"{name}.csv") for name in ("north", "south")}
    for name, path in files.items():
        rows = {
            "x": [k * 7 % 60 for k in range(60)],
            "y": [k % 2 if name == "north" else k / 7 for k in range(60)],
        }
        pd.DataFrame(rows).to_csv(path, index=False)
    source = Tables(files, "y", task={"s*": {"name": "regression", "loss": "huber"}})
    north, south = encode(source.tables(seed=0))
    assert isinstance(north.spec.task, Classification) and isinstance(south.spec.task, Regression)
    (alone,) = source.some(["south"], 0)
    assert south.spec.task.kind == "huber" and alone.task == {"name": "regression", "loss": "huber"}
    with pytest.raises(
        DataError, match=r"'south', target 'y': expected class labels.*task: regression"
    ):
        Tables(files, "y").tables(seed=0)
    assert task_for(None, "north") is None
