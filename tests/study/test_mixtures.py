"""Mixtures in studies: trained once, mixed anew from what was stored, judged as all other methods are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import TINY

from fedlit.errors import ConfigError
from fedlit.mixture.weigh import Predicted, weights_of
from fedlit.study.compare import Comparison, compare
from fedlit.study.job import DONE
from fedlit.study.method import Method
from fedlit.study.mixtures import PARTS, must_have_parts
from fedlit.study.plan import plan_jobs
from fedlit.study.runs import execute
from fedlit.study.study import BEST_ALONE, Scenario, Study
from fedlit.tasks import Classification

NETWORK = TINY.format(epochs=2)
BEST = """
folds: 2
mixture:
  parts:
    trees: {go_alone: extra_trees, grid: {n_estimators: [5]}}
    linear: {go_alone: logistic_regression, grid: {C: [1.0]}}
    federated: {config: tiny.yaml}
  weights: equal
  admit: false
"""
OWN = ["trees", "linear"]
METHODS: dict[str, dict[str, Any]] = {
    "local": {"config": "tiny.yaml", "set": {"exchange.federated": []}},
    "best": {"config": "best.yaml"},
    "given": {"of": "best", "weights": {"trees": 3, "federated": 1}},
    "fitted": {"of": "best", "weights": "fitted", "shrink": 5.0},
    "own": {"of": "best", "parts": OWN, "weights": "fitted", "alone": True},
}
TRAIN_ROWS = {"breast_cancer": 340, "wine": 106}
KEYS = ["client", "split", "row"]


def study(folder: Path, *names: str, **changed: dict[str, Any]) -> Study:
    methods = {name: METHODS[name] for name in names or METHODS} | changed
    made = {name: Method(**own) for name, own in methods.items()}
    return Study(made, [1], baselines={}, bootstrap=5, explain=False, folder=str(folder), choose="auroc")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixtures")
    (folder / "tiny.yaml").write_text(NETWORK, encoding="utf-8")
    (folder / "best.yaml").write_text(BEST, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def found(place: Path) -> Comparison:
    return compare(study(place), out=place / "compared", jobs=1, quiet=True)


def stored(found: Comparison, method: str, file: str = "predictions.parquet") -> pd.DataFrame:
    return pd.read_parquet(found.folder / "runs" / method / "seed_1" / file)


def record(found: Comparison, method: str) -> dict[str, Any]:
    done: dict[str, Any] = json.loads((found.folder / "runs" / method / "seed_1" / DONE).read_text(encoding="utf-8"))
    return done


def test_a_mixture_made_anew_is_the_weighted_mean_of_what_its_parts_predict(found: Comparison) -> None:
    assert not found.failures
    parts = stored(found, "best", PARTS)
    probabilities = [name for name in parts if name.startswith("probability_")]
    for method, mix in METHODS.items():
        if method == "local":
            continue
        made = stored(found, method).set_index(KEYS)[probabilities].sort_index()
        assert set(made.index.unique("split")) == {"out_of_fold", "validation", "test"}
        weights = record(found, method)["weights"]
        if method == "given":
            assert weights["wine"] == {"trees": 0.75, "federated": 0.25}
        if method == "best":
            assert weights["wine"] == {name: pytest.approx(1 / 3) for name in ("trees", "linear", "federated")}
        assert set(weights["wine"]) <= set(mix.get("parts") or parts["part"])
        for client, own in weights.items():
            total = sum(own.values())
            expected = sum(
                parts[(parts["part"] == name) & (parts["client"] == client)].set_index(KEYS)[probabilities]
                * (weight / total)
                for name, weight in own.items()
            )
            for split in ("out_of_fold", "test"):
                rows = made.loc[[client]].xs(split, level="split", drop_level=False)
                np.testing.assert_allclose(rows, expected.loc[rows.index], atol=1e-6)
            # validation rows are among those that were held out
            rows = made.loc[client, "validation"]
            np.testing.assert_array_equal(rows, made.loc[client, "out_of_fold"].loc[rows.index])


def test_a_local_baseline_beside_a_mixture_is_fitted_to_the_tables_of_its_parts(place: Path) -> None:
    methods = {name: Method(**METHODS[name]) for name in ("best", "own")}
    asked = Study(methods, [1], baselines={"logistic_regression": {"C": [1.0]}}, reference="own", folder=str(place))
    (job,) = [own for own in plan_jobs(asked, [1], place / "beside") if own.method == "logistic_regression"]
    execute(job)
    rows = pd.read_parquet(Path(job.folder) / "predictions.parquet").groupby(["client", "split"]).size()
    assert (Path(job.folder) / DONE).exists() and set(rows.index.unique("client")) == set(TRAIN_ROWS)


def test_weights_are_fitted_to_rows_that_no_part_has_seen(found: Comparison) -> None:
    parts = stored(found, "best", PARTS)
    for method, shrink in (("fitted", 5.0), ("own", 100.0)):
        for client, weights in record(found, method)["weights"].items():
            own = parts[(parts["client"] == client) & (parts["split"] == "out_of_fold")].dropna(axis=1, how="all")
            columns = sorted(name for name in own if name.startswith("probability_"))
            arrays = {name: own.loc[own["part"] == name, columns].to_numpy(float) for name in weights}
            labels = own.loc[own["part"] == "trees", "target"]
            y = torch.tensor([columns.index(f"probability_{label}") for label in labels])
            task = Classification(tuple(columns))
            expected = weights_of("fitted", Predicted(task, np.arange(len(y)), y, arrays), OWN, shrink)
            assert weights == {name: pytest.approx(weight, abs=1e-6) for name, weight in expected.items()}
    assert record(found, "own")["weights"]["wine"] != {"trees": 0.5, "linear": 0.5}


def test_the_mixture_of_own_parts_is_one_of_the_models_alone(found: Comparison) -> None:
    assert found.study.alone == ["local", "own"] and found.study.candidates == ["best", "given", "fitted"]
    values = found.collected.scores.query("metric == 'auroc'").set_index(["method", "client", "split"])["value"]
    # the one that is judged out of fold meets the other on validation rows
    chosen = found.collected.chosen.query("best == @BEST_ALONE").set_index("client")["method"]
    for client in ("wine", "breast_cancer"):
        better = max(("own", "local"), key=lambda name: values[name, client, "validation"])
        assert chosen[client] == better and values[BEST_ALONE, client, "test"] == values[better, client, "test"]
    assert {"own", BEST_ALONE}.isdisjoint(found.lift["method"])


@pytest.mark.full
def test_without_folds_validation_rows_decide(place: Path, tmp_path: Path) -> None:
    best = {"config": "best.yaml", "set": {"folds": 0}}
    own = study(place, "local", best=best, fitted=METHODS["fitted"])
    jobs = {job.method: job for job in plan_jobs(own, [1], tmp_path)}
    for name in ("best", "fitted"):
        execute(jobs[name])
    folders = [Path(jobs[name].folder) for name in ("best", "fitted")]
    for path in (folders[0] / PARTS, folders[1] / "predictions.parquet"):
        assert set(pd.read_parquet(path)["split"]) == {"validation", "test"}
    assert [json.loads((path / DONE).read_text())["train_rows"] for path in folders] == [TRAIN_ROWS] * 2


def test_methods_that_are_mixed_anew_follow_the_one_that_is_trained(place: Path) -> None:
    own = study(place)
    assert set(own.restricted(["own"], None).methods) == {"local", "best", "own"}
    held = {"wide": Scenario(set={"data.batches": 2})}
    wide = Study(own.methods, [1], scenarios=held).of("wide")
    assert wide.methods["best"].set == {"data.batches": 2} and wide.methods["own"] == own.methods["own"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"of": "bets"}, r"methods\.more\.of: .*Did you mean 'best'"),
        ({"of": "own"}, r"methods\.more\.of: .* found 'own'"),
        ({"of": "local"}, r"methods\.more\.of: .* found local"),
        ({"of": "best", "parts": ["tree"]}, r"methods\.more\.parts: .* found 'tree'"),
        ({"of": "best", "parts": OWN, "weights": {"federated": 1}}, r"methods\.more\.weights: .* found 'federated'"),
        ({"of": "best", "alone": True}, r"methods\.more: .* found federated"),
        ({"of": "best", "parts": OWN}, r"methods\.more: expected a federated part, found trees, linear"),
        ({"of": "best", "weights": {"trees": 1, "federated": 0}}, "expected a federated part, found trees"),
        ({"of": "best", "weights": {"trees": -1}}, "weights: .* found {'trees': -1}"),
        ({"of": "best", "weights": "equl"}, "weights: .*Did you mean 'equal'"),
        ({"of": "best", "shrink": -1.0}, "shrink: .* found -1"),
        ({"of": "best", "set": {"folds": 4}}, "set and tune at the method that is trained"),
        ({"of": "best", "config": "tiny.yaml"}, "found both"),
        ({}, "found neither"),
    ],
)
def test_what_cannot_be_mixed_is_refused(place: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        must_have_parts(study(place, "local", "best", "own", more=changed), "more")


def test_a_mixture_that_failed_is_named_and_the_rest_is_reported(place: Path, tmp_path: Path) -> None:
    alone = {"config": "best.yaml", "set": {"parts.federated.exchange.federated": ["cores"]}}
    made = compare(study(place, "local", "own", best=alone), out=tmp_path, jobs=1, quiet=True)
    assert sorted(made.failures) == ["best, seed 1", "own, seed 1"]
    assert made.failures["own, seed 1"] == "RunError: own, seed 1: expected the run of best, found none: it failed"
    assert "own, seed 1" in (tmp_path / "report.html").read_text(encoding="utf-8")
