"""Mixtures in studies: trained once, mixed anew from what was stored, judged as all other methods
are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from study.conftest import METHODS, jobs_of, stored, write_study

from fedlit.jobs.record import DONE
from fedlit.mixture.weigh import weights_of
from fedlit.study.compare import Comparison, compare
from fedlit.study.method import Scenario
from fedlit.study.mixtures import PARTS
from fedlit.study.parse import load_study
from fedlit.study.runs import execute
from fedlit.study.study import StudyFile
from fedlit.tasks import Classification
from fedlit.tasks.predictions import Predictions

OWN = ["trees", "linear"]
TRAIN_ROWS = {"breast_cancer": 340, "wine": 106}
KEYS = ["client", "split", "row"]


def study(folder: Path, *names: str, **changed: dict[str, Any]) -> StudyFile:
    methods = {name: METHODS[name] for name in names} | changed
    return load_study(str(write_study(folder, methods=methods, baselines=[])))


def record(found: Comparison, method: str) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(
        (found.folder / "runs" / method / "seed_1" / DONE).read_text(encoding="utf-8")
    )
    return done


def test_a_new_mixture_is_the_weighted_mean_of_its_parts(
    compared: Comparison,
) -> None:
    parts = stored(compared, "best", PARTS)
    probabilities = [name for name in map(str, parts) if name.startswith("probability_")]
    by_part: Any = parts.set_index(["part", *KEYS])[probabilities].sort_index()
    known = {
        "best": dict.fromkeys(("trees", "linear", "federated"), 1 / 3),
        "given": {"trees": 0.75, "federated": 0.25},
    }
    for method in ("best", "given", "fitted", "own"):
        made = stored(compared, method).set_index(KEYS)[probabilities].sort_index()
        assert set(made.index.unique("split")) == {"out_of_fold", "validation", "test"}
        weights = record(compared, method)["weights"]
        assert method not in known or weights["wine"] == pytest.approx(known[method])
        assert set(weights["wine"]) <= set(METHODS[method].get("parts") or parts["part"])
        for client, own in weights.items():
            for split in ("out_of_fold", "test"):
                rows = made.loc[client, split]
                expected = sum(
                    by_part.loc[name, client, split].loc[rows.index] * weight
                    for name, weight in own.items()
                )
                np.testing.assert_allclose(rows, expected, atol=1e-6)
            # validation rows are among those that were held out
            rows = made.loc[client, "validation"]
            np.testing.assert_array_equal(rows, made.loc[client, "out_of_fold"].loc[rows.index])


def test_a_baseline_beside_a_mixture_has_the_same_tables(
    tmp_path: Path,
) -> None:
    methods = {name: METHODS[name] for name in ("best", "own")}
    path = write_study(tmp_path, methods=methods, reference="own")
    asked = load_study(str(path))
    (job,) = [
        own
        for own in jobs_of(asked, [1], tmp_path / "beside")
        if own.method == "logistic_regression"
    ]
    execute(job)
    rows = (
        pd.read_parquet(Path(job.folder) / "predictions.parquet")
        .groupby(["client", "split"])
        .size()
    )
    assert (Path(job.folder) / DONE).exists() and set(rows.index.unique("client")) == set(
        TRAIN_ROWS
    )


def test_weights_are_fitted_to_rows_that_no_part_has_seen(compared: Comparison) -> None:
    parts = stored(compared, "best", PARTS)
    for method, shrink in (("fitted", 5.0), ("own", 100.0)):
        for client, weights in record(compared, method)["weights"].items():
            own = parts[(parts["client"] == client) & (parts["split"] == "out_of_fold")].dropna(
                axis=1, how="all"
            )
            columns = sorted(name for name in own if name.startswith("probability_"))
            arrays = {
                name: own.loc[own["part"] == name, columns].to_numpy(float) for name in weights
            }
            labels = own.loc[own["part"] == "trees", "target"]
            y = torch.tensor([columns.index(f"probability_{label}") for label in labels])
            task = Classification(tuple(columns))
            expected = weights_of(
                "fitted", Predictions(task, np.arange(len(y)), y, arrays), OWN, shrink
            )
            assert weights == {
                name: pytest.approx(weight, abs=1e-6) for name, weight in expected.items()
            }
    assert record(compared, "own")["weights"]["wine"] != {"trees": 0.5, "linear": 0.5}


def test_methods_mixed_anew_follow_the_trained_one(study_file: Path) -> None:
    own = load_study(str(study_file))
    assert set(own.restricted(["own"], None).methods) == {"local", "best", "own"}
    wide = replace(own, scenarios={"wide": Scenario(set={"data.batches": 2})}).of("wide")
    assert (
        wide.methods["best"].set == {"data.batches": 2}
        and wide.methods["own"] == own.methods["own"]
    )


def test_a_mixture_that_failed_is_named_and_the_rest_is_reported(tmp_path: Path) -> None:
    best = {"config": "mixture.yaml", "set": {"parts.federated.exchange.federated": ["cores"]}}
    asked = study(tmp_path, "local", best=best, own=METHODS["own"])
    made = compare(asked, out=tmp_path / "out", seeds=[1], workers=1, quiet=True)
    assert sorted(made.failures) == ["best, seed 1", "own, seed 1"]
    assert (
        made.failures["own, seed 1"]
        == "RunError: own, seed 1: expected the run of best, found none: it failed"
    )
    assert "own, seed 1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
