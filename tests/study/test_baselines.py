"""Go-alone models: their rows, their settings, their scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from federations import Made
from made_tables import encode
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score

from fedlit.run.load import load
from fedlit.study.baselines import fit_baseline
from fedlit.study.job import Job
from fedlit.tasks import Classification

MODELS = Classification.go_alone

CONFIG = "quickstart.yaml"
CLIENTS = '--data.source.init_args.clients=["wine", "breast_cancer"]'


def job(out: Path, method: str, grid: dict, seed: int = 1) -> Job:
    folder = str(out / "runs" / method / f"seed_{seed}")
    return Job(method, seed, folder, "d", CONFIG, [CLIENTS], "auroc", "last", 0, False, {"classification": grid})


def test_settings_are_chosen_on_validation_and_scored_on_the_same_rows(tmp_path: Path) -> None:
    grid = {"n_estimators": [20], "min_samples_leaf": [40, 1, 10]}
    predictions, scores, details = fit_baseline(job(tmp_path, "extra_trees", grid))
    data = load(CONFIG, CLIENTS, "--seed=1").data
    data.setup()
    for client in data.clients:
        name = client.spec.name
        validation, test = client.sites[name]["validation"], client.sites[name]["test"]
        on_validation, on_test = {}, {}
        for leaf in grid["min_samples_leaf"]:
            model = ExtraTreesClassifier(20, min_samples_leaf=leaf, random_state=1).fit(client.train.x, client.train.y)
            two = len(client.spec.classes) == 2
            for rows, found in ((validation, on_validation), (test, on_test)):
                probabilities = model.predict_proba(rows.x)
                found[leaf] = roc_auc_score(rows.y, probabilities[:, 1] if two else probabilities, multi_class="ovr")
        best = max(on_validation, key=on_validation.__getitem__)
        assert details["settings"][name]["min_samples_leaf"] == best
        own = scores[(scores["client"] == name) & (scores["metric"] == "auroc")].set_index("split")["value"]
        assert own["test"] == pytest.approx(on_test[best], abs=1e-6)
        assert own["validation"] == pytest.approx(on_validation[best], abs=1e-6)
        rows = predictions[(predictions["client"] == name) & (predictions["split"] == "test")]["row"]
        np.testing.assert_array_equal(rows, test.row)


def test_a_model_is_fitted_once_and_the_seed_counts_where_it_matters(tmp_path: Path) -> None:
    tree, linear = {"n_estimators": [5]}, {"C": [1.0]}
    first = fit_baseline(job(tmp_path, "extra_trees", tree))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "baselines").iterdir()}
    again = fit_baseline(job(tmp_path, "extra_trees", tree))
    assert first[1].equals(again[1]) and len(stamps) == 2
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "baselines").iterdir()} == stamps
    fit_baseline(job(tmp_path, "extra_trees", {"n_estimators": [6]}))
    fit_baseline(job(tmp_path, "logistic_regression", linear))
    assert len(list((tmp_path / "baselines").iterdir())) == 6
    fit_baseline(job(tmp_path, "logistic_regression", linear, seed=2))  # other rows
    assert len(list((tmp_path / "baselines").iterdir())) == 8


def test_categories_are_known_for_what_they_are() -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 6, 600)
    x = np.column_stack([rng.normal(size=600), code]).astype(np.float32)
    y = np.isin(code, [0, 2, 5]).astype(int)  # no order in the codes
    codes = MODELS["logistic_regression"].make({"C": 1.0, "categories": "codes"}, [1], 0, 1, ()).fit(x, y)
    one_hot = MODELS["logistic_regression"].make({"C": 1.0, "categories": "one_hot"}, [1], 0, 1, ()).fit(x, y)
    assert one_hot.score(x, y) == 1.0 and codes.score(x, y) < 0.8
    unseen = np.array([[0.0, -1.0]], np.float32)
    assert np.isfinite(one_hot.predict_proba(unseen)).all()
    boosting = MODELS["gradient_boosting"].make({"max_iter": 5}, [1], 0, 1, ()).fit(x, y)
    assert boosting.is_categorical_.tolist() == [False, True]
    assert np.isfinite(boosting.predict_proba(unseen)).all()
    none = MODELS["logistic_regression"].make({"C": 1.0, "categories": "one_hot"}, [], 0, 1, ()).fit(x, y)
    assert none.n_features_in_ == 2


def test_encoded_clients_name_their_categories() -> None:
    assert all(client.categorical == () for client in encode(Made().tables(0)))
    assert [len(client.train) for client in encode(Made().tables(0))] and torch.get_num_threads() >= 1


@pytest.mark.parametrize("name", list(MODELS))
def test_default_settings_are_accepted_by_scikit_learn(name: str) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.integers(0, 3, 60)
    small = {"extra_trees": {"n_estimators": 3}, "gradient_boosting": {"max_iter": 3}}.get(name, {})
    for key, values in MODELS[name].grid.items():
        for value in values:
            model = MODELS[name].make({key: value, **small}, [2], 0, 1, ())
            assert model.fit(x, y).predict_proba(x).shape == (60, 3)
