"""Models of yes and no on the time to an event: they fit person-periods, and count persons."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from federations import make_run, trained
from sklearn.linear_model import LogisticRegression

from fedlit import Forest, GrowForest, MixedEffects, MixedModel, PooledLogistic
from fedlit.client.client import FederatedClient
from fedlit.data.encoding import Rows
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.methods.penalised import choose
from fedlit.run.run import Run
from fedlit.score.arrays import from_arrays
from fedlit.score.as_arrays import as_arrays
from fedlit.spec import ClientSpec
from fedlit.tasks.baselines import CURVES
from fedlit.tasks.fitting import FitPeriods
from fedlit.tasks.survival import Survival

EDGES = (10.0, 20.0, 40.0)
TASK = {
    "name": "survival",
    "time": "days",
    "event": "died",
    "intervals": list(EDGES),
    "horizons": [20],
}
PLAIN = {"scaling": "none"}


def people(ward: int, rows: int = 70) -> pd.DataFrame:
    draw = np.random.default_rng(ward)
    age = draw.normal(size=rows)
    death = draw.exponential(20 * np.exp(-age + 0.4 * ward))
    end = draw.uniform(5, 60, rows)
    return pd.DataFrame(
        {"age": age, "days": np.minimum(death, end), "died": (death <= end).astype(int)}
    )


def periods_of(frame: pd.DataFrame, *, indicators: bool) -> pd.DataFrame:
    """Return one row for each person and period, written as loops over the definition."""
    cases: list[dict[str, float]] = []
    for person, (age, days, died) in enumerate(frame.to_numpy(np.float64).tolist()):
        for number, (start, end) in enumerate(zip((0.0, *EDGES), EDGES, strict=False)):
            happens = died == 1 and start < days <= end
            if not happens and days < (start + end) / 2:
                break
            inputs: dict[str, float] = {"period": number}
            if indicators:
                inputs = {
                    f"period {first:.5g} to {last:.5g}": float((first, last) == (start, end))
                    for first, last in pairwise(EDGES)
                }
            cases.append({"person": person, "age": age, **inputs, "died": int(happens)})
            if happens:
                break
    return pd.DataFrame(cases)


class Wards(Source):
    """Wards with one row for each person, which do not name their columns alike."""

    name = "wards"

    def tables(self, seed: int) -> list[ClientTable]:
        return [self.table(ward, seed) for ward in range(4)]

    def table(self, ward: int, seed: int) -> ClientTable:
        frame = people(ward)
        cells = list(zip(frame["days"], frame["died"], strict=True))
        names = (f"days{ward}", f"died{ward}")
        task = {**TASK, "time": names[0], "event": names[1]}
        splits = random_split(len(frame), seed, 0.2, 0.1)
        target = pd.Series(cells, name=names)
        return ClientTable(f"ward{ward}", frame[["age"]], target, splits, task=task)


class Stacked(Wards):
    """The same wards with one row for each person and period, and a label of two classes."""

    def __init__(self, *, indicators: bool) -> None:
        self.indicators = indicators

    def table(self, ward: int, seed: int) -> ClientTable:
        cases = periods_of(people(ward), indicators=self.indicators)
        person = cases.pop("person").to_numpy()
        splits: Any = {
            split: np.flatnonzero(np.isin(person, rows))
            for split, rows in super().table(ward, seed).splits.items()
        }
        label = cases.pop("died")
        return ClientTable(f"ward{ward}", cases, label, splits)


def clients_of(run: Run) -> list[FederatedClient]:
    return list(run.loop.federation.values())


def test_a_frailty_is_the_mixed_model_of_person_periods(tmp_path: Path) -> None:
    fits = []
    for source in (Wards(), Stacked(indicators=True)):
        exchange = {"federated": ["effects"], "rule": MixedEffects()}
        run = trained(
            tmp_path / type(source).__name__, source=source, data=PLAIN,
            loop={"client": MixedModel}, exchange=exchange, epochs=1,
        )  # fmt: skip
        fits.append([next(iter(client.state.values())) for client in clients_of(run)])
    for survival, stacked in zip(*fits, strict=True):
        for name in ("effects", "own", "sigma2", "covariance"):
            torch.testing.assert_close(survival[name], stacked[name], rtol=1e-6, atol=1e-7)
    assert len({float(fit["own"][0]) for fit in fits[0]}) == 4


def test_a_forest_grows_the_trees_of_person_periods(tmp_path: Path) -> None:
    trees = []
    for source in (Wards(), Stacked(indicators=False)):
        run = trained(
            tmp_path / type(source).__name__, source=source, align="both", data=PLAIN, epochs=1,
            loop={"client": Forest}, exchange={"rule": GrowForest(4, minimum=1)},
        )  # fmt: skip
        trees.append(clients_of(run)[0].state["trees"])
    survival, stacked = trees
    assert len(survival["feature"]) > 50
    for name in survival:
        assert torch.equal(survival[name], stacked[name]), name


def test_logistic_regression_is_that_of_person_periods() -> None:
    frame = people(1, 400)
    cases = periods_of(frame, indicators=True)
    inputs = cases.drop(columns=["person", "died"])
    oracle = sm.Logit(cases["died"], sm.add_constant(inputs)).fit(disp=0, tol=1e-10)
    task = Survival(edges=EDGES, horizons=(20.0,), hazard=0.2)
    spec = ClientSpec("ward", ("age",), (), {"train": 400}, (), task=task)
    client = PooledLogistic(spec, ridge=1e-9)
    cells = pd.Series(list(zip(frame["days"], frame["died"], strict=True)), name=("days", "died"))
    x = torch.tensor(frame[["age"]].to_numpy(), dtype=torch.float32)
    client.on_rows(Rows(x, task.encode(cells), np.arange(400)))
    client.on_receive({})
    fitted = [*client.intercept.tolist(), *client.coefficients[0].tolist()]
    np.testing.assert_allclose(fitted, oracle.params, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        curves = task.predict(client(x))
    eta = oracle.params["const"] + oracle.params["age"] * frame["age"].to_numpy()
    each = [eta, *(eta + oracle.params[name] for name in inputs.columns[1:])]
    survival = np.cumprod([1 / (1 + np.exp(logit)) for logit in each], 0).T
    np.testing.assert_allclose(curves, survival, rtol=1e-3)


def start_of(persons: int, periods: int, minimum: int) -> dict[str, torch.Tensor]:
    """Return what a site tells first of persons who live through all periods."""
    edges = tuple(float(end) for end in range(1, periods + 1))
    task = Survival(edges=edges, horizons=(1.0,))
    spec = ClientSpec("ward", ("age",), (), {"train": persons}, (), task=task, facts_from=minimum)
    y = torch.tensor([[float(periods), 0.0, -math.inf]] * persons)
    x = torch.zeros(persons, 1)
    x[0] = 1000.0
    limits = {"trees": 1, "thresholds": 2, "minimum": minimum, "levels": 9, "summed": False}
    question = {"seed": 0, "max_features": 1.0, **limits}
    tensors = {name: torch.tensor(value) for name, value in question.items()}
    rows = Rows(x, y, np.arange(persons))
    return dict(Forest(spec).answer("forest/start", tensors, rows))


def test_a_person_of_forty_periods_is_not_told() -> None:
    assert not start_of(persons=4, periods=40, minimum=5)["totals"].any()
    told = start_of(persons=6, periods=40, minimum=5)
    assert told["totals"].tolist() == [[240, 0]]
    assert float(told["high"][0]) <= 1000 / 5  # a mean over five persons, not one's 40 periods
    assert start_of(persons=1, periods=40, minimum=1)["totals"].tolist() == [[40, 0]]


def test_folds_of_a_cross_validation_keep_a_person_together() -> None:
    draw = torch.Generator().manual_seed(0)
    count, cases = 40, 8
    persons = torch.arange(count).repeat_interleave(cases)
    x = torch.randn(count, 30, generator=draw, dtype=torch.float64)[persons]
    y = torch.randint(0, 2, (count,), generator=draw).double()[persons]  # nothing to learn
    zero = torch.zeros(1, 30, dtype=torch.float64)
    apart = choose(x, [y], "logistic", zero)
    together = choose(x, [y], "logistic", zero, persons=persons)
    assert together.ridge > apart.ridge
    assert together.loss > 0.65 and apart.loss < 0.3
    each = choose(x, [y], "logistic", zero, persons=torch.arange(len(x)))
    assert each == apart


@pytest.mark.parametrize("client", [MixedModel, Forest, PooledLogistic])
def test_weights_by_rows_are_of_persons(tmp_path: Path, client: Any) -> None:
    run = make_run(tmp_path, source=Wards(), loop={"client": client}, data=PLAIN)
    run.data.setup()
    for spec in run.data.specs:
        assert client(spec).spec.rows["train"] == 50


def test_a_classifier_alone_fits_its_own_person_periods() -> None:
    frame = people(2, 300)
    x = frame[["age"]].to_numpy(np.float32)
    y = np.column_stack([frame["days"], frame["died"], np.full(300, -np.inf)]).astype(np.float32)
    ends = np.linspace(4, 40, 10)
    model = FitPeriods(LogisticRegression(C=1e9), ends.tolist(), indicators=True).fit(x, y)
    cases = [
        (row, period, bool(event) and start < time <= end)
        for row, (time, event, _) in enumerate(y.tolist())
        for period, (start, end) in enumerate(pairwise([0.0, *ends]))
        if time > end
        or (event and start < time <= end)
        or (not event and (start + end) / 2 <= time)
    ]
    row, period, happens = map(np.array, zip(*cases, strict=True))
    design = np.column_stack([x[row], *(period == number for number in range(1, 10))])
    oracle = LogisticRegression(C=1e9, tol=1e-8, max_iter=1000).fit(design, happens)
    every = np.column_stack([np.repeat(x, 10, 0), np.tile(np.eye(10)[:, 1:], (300, 1))])
    hazard = oracle.predict_proba(every)[:, 1].reshape(300, 10)
    survival = np.cumprod(1 - hazard, 1)
    np.testing.assert_allclose(model.survival_at(x, ends), survival, atol=2e-3)
    later = model.survival_at(x, np.array([0.0, ends[-1], 9e9]))
    assert (later[:, 0] == 1).all() and (later[:, 1] == later[:, 2]).all()


@pytest.mark.parametrize("name", ["extra_trees", "logistic_regression"])
def test_its_arrays_predict_the_same_curves(name: str) -> None:
    frame = people(3, 200)
    x = frame[["age"]].to_numpy(np.float32)
    y = np.column_stack([frame["days"], frame["died"], np.full(200, -np.inf)]).astype(np.float32)
    model: Any = CURVES[name].make({}, [], periods=EDGES).fit(x, y)
    kept: Any = from_arrays(*as_arrays(model), 1)
    times = np.linspace(0, 50, 9)
    np.testing.assert_allclose(kept.survival_at(x, times), model.survival_at(x, times), atol=1e-6)


def test_without_an_event_nobody_is_predicted_to_have_one() -> None:
    y = np.array([[5.0, 0.0, -np.inf], [0.0, 0.0, -np.inf]], np.float32)
    for rows in (y, y[1:]):
        x = np.zeros((len(rows), 1))
        model = FitPeriods(LogisticRegression(), [1.0, 5.0], indicators=True).fit(x, rows)
        assert (model.survival_at(x, np.array([1.0, 9.0])) == 1).all()
