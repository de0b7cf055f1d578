"""Counts against scikit-learn and closed forms, and what is refused as a count."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import encode
from sklearn.metrics import d2_tweedie_score, mean_absolute_error, mean_poisson_deviance, root_mean_squared_error

from fedlit.data.agree import Terms, negotiate
from fedlit.data.table import ClientTable
from fedlit.errors import DataError
from fedlit.tasks import Counts
from fedlit.tasks.go_alone import COUNTERS

PROPERTY = settings(derandomize=True, max_examples=40, deadline=None)


@PROPERTY
@given(st.integers(0, 9999), st.integers(2, 60), st.sampled_from([0.3, 4.0, 200.0]))
def test_scores_equal_scikit_learn(seed: int, rows: int, mean: float) -> None:
    rng, task = np.random.default_rng(seed), Counts(mean)
    y = task.encode(pd.Series(rng.poisson(mean, rows)))
    predictions = task.predict(torch.from_numpy(rng.normal(size=(rows, 1)).astype(np.float32)))
    often = torch.from_numpy(rng.integers(0, 3, rows))
    often[0] = 2
    scorer = task.scorer(predictions, y)
    rated = (y.double().numpy(), predictions[:, 0].numpy())
    expected = {
        "deviance": mean_poisson_deviance(*rated, sample_weight=often),
        "rmse": root_mean_squared_error(*rated, sample_weight=often),
        "mae": mean_absolute_error(*rated, sample_weight=often),
    }
    if len(np.unique(rated[0][often > 0])) > 1:
        expected["d2"] = d2_tweedie_score(*rated, sample_weight=often, power=1)
    assert {name: float(scorer(often)[name]) for name in expected} == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_an_untrained_network_predicts_the_mean_and_its_gradient_is_rate_less_count() -> None:
    task = Counts.agree("a", {"a": Counts.facts(pd.Series([0, 1, 5, 2], name="visits"), {})})
    assert task == Counts(2.0, "visits")
    outputs = torch.zeros(4, 1, requires_grad=True)
    y = task.encode(pd.Series([0, 1, 5, 2]))
    assert task.predict(outputs)[:, 0].tolist() == pytest.approx([2.0] * 4)
    loss = task.loss(outputs, y)
    exact = torch.distributions.Poisson(torch.tensor(2.0)).log_prob(y)
    assert loss.item() == pytest.approx(-exact.mean().item(), abs=0.02)  # of log y!, Stirling's formula
    loss.backward()
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad[:, 0], (2.0 - y) / 4)


def test_what_is_not_defined_is_nan_and_what_is_impossible_infinite() -> None:
    same = Counts().evaluate(torch.tensor([[2.0], [2.0]]), torch.tensor([2.0, 2.0]))
    assert same["d2"].isnan() and float(same["deviance"]) == 0.0
    never = Counts().evaluate(torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 1.0]))
    assert float(never["deviance"]) == 0.0 and float(never["d2"]) == 1.0
    assert float(Counts().evaluate(torch.tensor([[0.0]]), torch.tensor([1.0]))["deviance"]) == math.inf


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0, 3, -1, -2], "found 2 others of 4, such as -1 in row 2"),
        ([0.0, 1.5], "found 1 others of 2, such as 1.5 in row 1"),
        ([0.0, 1e9], "such as 1e+09 in row 1"),
        ([0.0, math.inf], "such as inf in row 1"),
        (["1", "many"], "expected numbers for task: counts, found 1 others of 2, such as 'many'"),
    ],
)
def test_what_is_no_count_is_refused(values: list[Any], found: str) -> None:
    for ask in (lambda target: Counts.facts(target, {}), Counts(2.0).encode):
        with pytest.raises(DataError, match=re.escape(found)):
            ask(pd.Series(values, name="visits"))


def counted(name: str, values: np.ndarray, **task: str) -> ClientTable:
    x = pd.DataFrame({"a": np.arange(60.0), "b": np.arange(60.0)[::-1]})
    splits = {"train": np.arange(40), "validation": np.arange(40, 50), "test": np.arange(50, 60)}
    return ClientTable(name, x, pd.Series(values, name="visits"), splits, task={"name": "counts", **task})  # type: ignore[arg-type]


def test_the_mean_is_the_clients_own_or_of_all() -> None:
    few, many = np.arange(60) % 3, np.arange(60) % 7
    own = [client.spec.task for client in encode([counted("few", few), counted("many", many)])]
    assert own == [Counts(few[:40].mean(), "visits"), Counts(many[:40].mean(), "visits")]
    tables = [counted("few", few, targets="pooled"), counted("many", many, targets="pooled")]
    together = [client.spec.task for client in encode(tables)]
    assert together == [Counts(pytest.approx(np.concatenate([few[:40], many[:40]]).mean()), "visits")] * 2
    (told,) = negotiate(tables, Terms()).told([])
    assert (told["what"], told["numbers"]) == ("count and mean", {"few": 2, "many": 2})


def test_zeros_alone_have_no_rate_but_a_pooled_one() -> None:
    zeros, some = np.zeros(60, int), np.arange(60) % 3
    with pytest.raises(DataError, match=r"client 'none', target 'visits': expected a count above 0 .*targets: pooled"):
        encode([counted("none", zeros), counted("some", some)])
    tables = [counted("none", zeros, targets="pooled"), counted("some", some, targets="pooled")]
    task = encode(tables)[0].spec.task
    for model in COUNTERS.values():
        fitted = model.make({}, []).fit(np.arange(40.0)[:, None], np.zeros(40))
        rates = task.of_model(fitted, np.arange(3.0)[:, None])
        assert bool((rates > 0).all()) and bool((rates < 0.01).all())
