"""Local baselines: folds, small clients, means, any class."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from federations import BUNDLED
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from study.conftest import stored
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from fedlit.data.encoding import EncodedClient
from fedlit.data.folds import fold_of
from fedlit.errors import ConfigError
from fedlit.jobs.alone import Fold, fit_alone
from fedlit.jobs.job import FitAlone, Job
from fedlit.run.load import load
from fedlit.study.baselines import fit_baseline, fit_client
from fedlit.study.compare import Comparison
from fedlit.study.method import Method
from fedlit.study.resolve import resolve
from fedlit.study.study import StudyFile
from fedlit.tasks import Classification
from fedlit.tasks.baselines import CLASSIFIERS

CONFIG = str(BUNDLED)
CLIENTS = {"data.source.init_args.clients": ["wine", "breast_cancer"]}
TREES = {"n_estimators": [8], "min_samples_leaf": [30, 1]}
SVM = {
    "class_path": "sklearn.svm.SVC",
    "init_args": {"probability": True},
    "grid": {"C": [0.1, 10]},
    "scale": True,
}
INNER = {"class_path": "sklearn.svm.SVC", "init_args": {"kernel": "poly"}}
CALIBRATED: dict[str, Any] = {
    "class_path": "sklearn.calibration.CalibratedClassifierCV",
    "init_args": {"estimator": INNER, "ensemble": False},
    "grid": {"estimator__C": [0.1, 10]},
    "scale": True,
}


@pytest.fixture(scope="module")
def clients() -> dict[str, EncodedClient]:
    data = load(CONFIG, overrides={**CLIENTS, "seed": 1}).data
    data.setup()
    return {client.spec.name: client for client in data.clients}


def job(out: Path, method: str, grid: dict[str, list[Any]], **more: Any) -> Job:
    folder = str(out / "runs" / method / "seed_1")
    choose = dict.fromkeys(CLIENTS["data.source.init_args.clients"], "auroc")
    work = FitAlone(CONFIG, CLIENTS, {"classification": grid}, **more)
    return Job(method, 1, folder, {}, work, choose)


def probabilities(frame: pd.DataFrame) -> np.ndarray:
    own = frame.loc[:, frame.columns.str.startswith("probability_")]
    return own.loc[:, own.notna().any()].to_numpy()


def auroc(y: Any, given: np.ndarray) -> float:
    return float(roc_auc_score(y, given[:, 1] if given.shape[1] == 2 else given, multi_class="ovr"))


# ------------------------------------------------------------------ folds


@pytest.mark.parametrize("folds", [3, 0], ids=["folds of all rows", "few validation rows"])
def test_who_chooses_has_not_seen_the_row(
    tmp_path: Path, clients: dict[str, EncodedClient], folds: int
) -> None:
    """With folds, test rows get the mean of the folds' models; without, a small client's model is
    fitted again."""
    small = len(clients["wine"].sites["wine"]["validation"]) + 1  # breast_cancer has more
    frames, details = fit_baseline(job(tmp_path, "extra_trees", TREES, folds=folds, small=small))
    splits = frames.table.frame.groupby("client")["split"].unique().map(set).to_dict()
    assert splits["wine"] == {"out_of_fold", "validation", "test"} and (
        "out_of_fold" in splits["breast_cancer"]
    ) == bool(folds)
    wine = clients["wine"]
    own = frames.table.frame[frames.table.frame["client"] == "wine"]
    test = wine.sites["wine"]["test"]
    rows = wine.train.merged(wine.sites["wine"]["validation"] if folds else test)
    kept = (
        torch.ones(len(rows), dtype=torch.bool)
        if folds
        else torch.from_numpy(np.isin(rows.row, wine.train.row))
    )
    x = rows.x[kept]
    y = rows.y[kept]
    dealt = fold_of(rows.y[kept].numpy(), folds or 5, 1 if folds else 0, "wine")
    found = {}
    for leaf in TREES["min_samples_leaf"]:
        unseen = np.zeros((len(y), 3))
        models = []
        for fold in range(folds or 5):
            model = ExtraTreesClassifier(8, min_samples_leaf=leaf, random_state=1)
            models.append(model.fit(x[dealt != fold], y[dealt != fold]))
            unseen[dealt == fold] = model.predict_proba(x[dealt == fold])
        if not folds:
            models = [
                ExtraTreesClassifier(8, min_samples_leaf=leaf, random_state=1).fit(
                    wine.train.x, wine.train.y
                )
            ]
        found[leaf] = (
            auroc(y, unseen),
            unseen,
            np.mean([model.predict_proba(test.x) for model in models], axis=0),
        )
    best = max(found, key=lambda leaf: found[leaf][0])
    assert details["settings"]["wine"]["min_samples_leaf"] == best
    by_split = dict(iter(own.groupby("split")))
    assert by_split["out_of_fold"]["row"].tolist() == rows.row[kept.numpy()].tolist()
    np.testing.assert_allclose(probabilities(by_split["out_of_fold"]), found[best][1], atol=1e-6)
    np.testing.assert_allclose(probabilities(by_split["test"]), found[best][2], atol=1e-6)
    if folds:  # of folds, all models but one have seen a validation row
        placed = by_split["out_of_fold"].set_index("row").loc[by_split["validation"]["row"]]
        np.testing.assert_array_equal(probabilities(placed), probabilities(by_split["validation"]))


# ------------------------------------------------------------------ models


def test_a_model_is_fitted_once_unless_the_seed_matters(tmp_path: Path) -> None:
    tree = {"n_estimators": [5]}
    linear = {"C": [1.0]}
    first = fit_baseline(job(tmp_path, "extra_trees", tree))
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "baselines").iterdir()}
    again = fit_baseline(job(tmp_path, "extra_trees", tree))
    assert first[0].scores.equals(again[0].scores) and len(stamps) == 2
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "baselines").iterdir()} == stamps
    fit_baseline(job(tmp_path, "extra_trees", {"n_estimators": [6]}))
    fit_baseline(job(tmp_path, "logistic_regression", linear))
    assert len(list((tmp_path / "baselines").iterdir())) == 6
    fit_baseline(replace(job(tmp_path, "logistic_regression", linear), seed=2))  # other rows
    assert len(list((tmp_path / "baselines").iterdir())) == 8


class Counting(DummyClassifier):  # type: ignore[misc]
    """Notes how many threads it may use."""

    def fit(self, x: Any, y: Any, sample_weight: Any = None) -> "Counting":
        self.threads = {pool["num_threads"] for pool in threadpool_info()}
        super().fit(x, y)
        return self


def test_models_of_few_rows_use_one_thread(clients: dict[str, EncodedClient]) -> None:
    client = clients["wine"]
    task = client.spec.task
    folds = [Fold(task, lambda settings: Counting(), client.train, client.train)]
    with threadpool_limits(2):
        fitted, _ = fit_alone(folds, {}, task.scores[0])
        around = {pool["num_threads"] for pool in threadpool_info()}
    assert fitted.models[0].threads == {1} and around == {2}


def test_categories_are_known_for_what_they_are() -> None:
    rng = np.random.default_rng(0)
    code = rng.integers(0, 6, 600)
    x = np.column_stack([rng.normal(size=600), code]).astype(np.float32)
    y = np.isin(code, [0, 2, 5]).astype(int)  # no order in the codes
    codes: Any = (
        CLASSIFIERS["logistic_regression"]
        .make({"C": 1.0, "categories": "codes"}, [1], 0, 1, ())
        .fit(x, y)
    )
    one_hot: Any = (
        CLASSIFIERS["logistic_regression"]
        .make({"C": 1.0, "categories": "one_hot"}, [1], 0, 1, ())
        .fit(x, y)
    )
    assert one_hot.score(x, y) == 1.0 and codes.score(x, y) < 0.8
    boosting: Any = CLASSIFIERS["gradient_boosting"].make({"max_iter": 5}, [1], 0, 1, ()).fit(x, y)
    assert boosting.is_categorical_.tolist() == [False, True]
    # a category unseen
    assert np.isfinite(boosting.predict_proba(np.array([[0.0, -1.0]], np.float32))).all()


# ------------------------------------------------------------------ any class


def test_a_class_by_its_path_is_what_scikit_learn_gives(
    tmp_path: Path, clients: dict[str, EncodedClient]
) -> None:
    own = job(tmp_path, "my_svm", CALIBRATED["grid"], model=CALIBRATED)
    frames, details = fit_baseline(own)
    predictions = frames.table.frame
    for name, client in clients.items():
        chosen = details["settings"][name]["estimator__C"]
        model = CalibratedClassifierCV(SVC(C=chosen, kernel="poly"), ensemble=False)
        model = make_pipeline(StandardScaler(), model)
        expected = model.fit(client.train.x.numpy(), client.train.y).predict_proba(
            client.sites[name]["test"].x.numpy()
        )
        test = predictions[(predictions["client"] == name) & (predictions["split"] == "test")]
        np.testing.assert_allclose(probabilities(test), expected, atol=1e-6)


# ------------------------------------------------------------------ studies


def test_a_mean_is_that_of_the_stored_predictions(compared: Comparison) -> None:
    keys = ["client", "split", "row"]
    names = ("trees_and_linear", "extra_trees", "logistic_regression")
    mean, *frames = (stored(compared, own).set_index(keys) for own in names)
    assert set(mean.index.get_level_values("split")) >= {"validation", "test"}
    columns = [column for column in map(str, mean) if column.startswith("probability_")]
    by_hand = sum(frame.loc[mean.index, columns] for frame in frames) / 2
    np.testing.assert_allclose(mean[columns].to_numpy(), by_hand.to_numpy(), atol=1e-6)
    wine = mean.sort_index().loc["wine", "test"].dropna(axis=1)
    expected = auroc(
        wine["target"], wine[[c for c in wine if c.startswith("probability_")]].to_numpy()
    )
    assert compared.collected.values("auroc")["trees_and_linear", "wine"][1] == pytest.approx(
        expected, abs=1e-6
    )


METHODS = {"local": Method("a"), "gl": Method("b")}
NEITHER: list[tuple[dict[str, Any], str]] = [
    ({"metrics": ["rmse"]}, "metrics"),
    ({"choose": "log_loss"}, "choose"),
    ({"methods": METHODS | {"ridge": Method("b")}}, "methods"),
    ({"baselines": {"ridge": None}}, "baselines"),
    ({"baselines": {"trees_and_linear": None, "logistic_regression": None}}, "trees_and_linear"),
    ({"baselines": {"extra_trees": {}, "trees_and_linear": {"a": [1]}}}, "trees_and_linear"),
    ({"baselines": {"logistic_regression": {"C": 1.0}}}, r"logistic_regression\.C"),
    *(({"baselines": {"my_svm": {**SVM, **change}}}, f"baselines.my_svm.*{word}") for change, word in (
        ({"class_path": "sklearn.svm.SVX"}, "Did you mean 'sklearn.svm.SV"), ({"init_args": {}}, "predict_proba"),
        ({"class_path": "sklearn.swm.SVC"}, "sklearn.swm"), ({"init_args": {"probabilty": True}}, "probabilty"),
        ({"class_path": "sklearn.svm.SVR", "init_args": {}}, "regressor"), ({"grid": {"C": 1}}, "grid.C"),
        ({"class_path": "sklearn.cluster.KMeans", "grid": {}, "init_args": {}}, "KMeans"),
        ({"scala": True}, "Did you mean 'scale'"))),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "key"), NEITHER)
def test_a_score_of_nobodys_task_is_refused_before_runs(changed: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        file = StudyFile(**{"methods": METHODS, "seeds": [1], **changed})
        resolve(file, None, {"wine": Classification})


def test_clients_fitted_by_themselves_give_the_result_of_one_job(tmp_path: Path) -> None:
    """What one client's process has left is taken, with its time, and not computed again."""
    together = job(tmp_path / "together", "extra_trees", TREES)
    apart = replace(together, folder=str(tmp_path / "apart/runs/extra_trees/seed_1"))
    for client in reversed(list(together.choose)):
        fit_client(apart, client)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("apart/baselines/*/*")}
    results, details = fit_baseline(apart)
    expected, _ = fit_baseline(together)
    pd.testing.assert_frame_equal(results.table.frame, expected.table.frame)
    pd.testing.assert_frame_equal(results.scores, expected.scores)
    assert len(kept) > 1 and details["seconds"] > 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("apart/baselines/*/*")} == kept
