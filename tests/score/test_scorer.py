"""A scorer over made rows: what it needs, says and refuses; models as arrays, which predict what
scikit-learn's do."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from made_tables import clinic
from sklearn.base import is_regressor
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score

from fedlit.data.encoder import TableEncoder
from fedlit.data.sources import Tables
from fedlit.errors import ConfigError, DataError, RunError
from fedlit.outcomes.labels import OneLabel
from fedlit.score.arrays import ArrayFunction, from_arrays
from fedlit.score.as_arrays import as_arrays
from fedlit.score.estimator import estimator_of
from fedlit.score.mixed_scorer import united
from fedlit.score.scorer import Function, Scorer
from fedlit.tasks import Classification, MultiLabel, Regression, task_state
from fedlit.tasks.baselines import CLASSIFIERS, COUNTERS, LABELLERS, REGRESSORS
from fedlit.tasks.go_alone import GoAlone

TABLE = clinic()
ENCODER = TableEncoder("north").fit(TABLE)


def of_age(x: np.ndarray) -> np.ndarray:
    """Probabilities by the standardised age alone."""
    positive = 1 / (1 + np.exp(-x[:, 0]))
    return np.stack([positive, 1 - positive], 1)


def scorer(**options: object) -> Scorer:
    return Scorer("north", ENCODER, of_age, task_state(ENCODER.task), **options)  # type: ignore[arg-type]


def test_results_are_the_tasks_own() -> None:
    rows = TABLE.features.iloc[34:].sample(frac=1, random_state=1).set_axis(list("fabcde"))
    made = scorer()
    told = made.predict(rows)
    age = ENCODER.columns["age"].moments
    assert age is not None
    expected = 1 / (1 + np.exp(-(rows["age"] - age.mean) / np.sqrt(age.variance)))
    assert told.columns.tolist() == ["probability_ill", "probability_well", "predicted"]
    assert told.index.tolist() == list("fabcde")
    np.testing.assert_allclose(told["probability_ill"], expected, atol=1e-6)
    assert (told["predicted"] == np.where(expected > 0.5, "ill", "well")).all()
    np.testing.assert_array_equal(made.predict_proba(rows), told.iloc[:, :2].to_numpy())
    assert made.classes_.tolist() == ["ill", "well"] and made.n_features_in_ == 4
    assert made.feature_names_in_.tolist() == ["age", "town", "smoker", "stage"]
    assert made.notes == []
    assert repr(made) == "Scorer of north: 4 columns → outcome (ill, well)"


def test_a_row_is_scored_alike_in_any_company() -> None:
    rows = TABLE.features
    whole = scorer().predict_proba(rows)
    np.testing.assert_array_equal(scorer(batch=7).predict_proba(rows), whole)
    alone = np.concatenate(
        [scorer().predict_proba(rows.iloc[[position]]) for position in range(len(rows))]
    )
    np.testing.assert_array_equal(alone, whole)


def test_columns_in_any_order_and_keys_first() -> None:
    rows = TABLE.features.assign(visit=range(40), id="a", outcome="?")
    made = scorer(keys=["id"])
    told = made.predict(rows[rows.columns[::-1]])
    assert told.columns.tolist() == ["id", "probability_ill", "probability_well", "predicted"]
    assert made.notes == ["columns that the client does not use: outcome, visit"]
    pd.testing.assert_frame_equal(
        made.predict(rows, keys=["visit", "age"]).iloc[:, :2], rows[["visit", "age"]]
    )
    # a key of its own that is not there is no mistake
    assert "id" not in made.predict(TABLE.features)
    with pytest.raises(DataError, match=r"keys: .*visit.*, found 'vist'\. Did you mean 'visit'"):
        made.predict(rows, keys=["vist"])
    with pytest.raises(DataError, match="names that results do not have, found 'predicted'"):
        made.predict(rows.assign(predicted=1), keys=["predicted"])


def test_text_is_read_as_what_was_trained_on() -> None:
    rows = TABLE.features
    raw = rows.astype(str).replace({"smoker": {"True": "TRUE "}})
    made = scorer()
    np.testing.assert_array_equal(made.predict_proba(raw), made.predict_proba(rows))
    made.predict(raw)
    assert made.notes == []
    told = made.predict(rows.assign(age=["4o", *rows["age"].astype(str)[1:]]))
    assert any("'4o' (1)" in note for note in made.notes) and len(told) == 40
    np.testing.assert_array_equal(
        made.predict_proba(
            rows.assign(
                town=rows["town"].astype("category"), stage=rows["stage"].astype("category")
            )
        ),
        made.predict_proba(rows),
    )


def test_what_is_missing_or_new_is_counted() -> None:
    rows = TABLE.features.head(6).astype({"town": object})
    rows.loc[[0, 3], "age"] = np.nan
    rows.loc[[1, 2, 4], "town"] = ["Rom", None, "Rom"]
    rows.loc[5, "stage"] = 9
    made = scorer()
    made.predict(rows)
    assert made.notes == [
        "cells without a value: age 2, town 1",
        "town: 2 cells are of categories that training did not have, such as 'Rom'",
        "stage: 1 cells are of categories that training did not have, such as '9'",
    ]
    blank = rows.astype(str).assign(age=["", " ", "33", "44", "55", "66"])
    assert np.isfinite(made.predict_proba(blank)).all()


def test_what_cannot_be_scored_is_named() -> None:
    rows: Any = TABLE.features
    for wrong, named in (
        (rows.rename(columns={"age": "Age"}), r"'age', .*Did you mean 'Age'"),
        (rows[["town"]], r"'age'.* smoker, stage"),
        (rows.assign(age=["40", *["4o"] * 39]), r"'age'.* 39 .*'4o'"),
        (rows.assign(smoker="perhaps"), r"'smoker'.* 40 .*'perhaps'"),
        (rows.assign(age=True), r"'age': expected numbers, found 40"),
        (rows.assign(age=pd.Timestamp("2020-01-01")), r"'age': expected numbers"),
        (rows.assign(age=1e300), r"finite float32 .* others in age"),
        (pd.concat([rows, rows["age"]], axis=1), r"'age' twice"),
        (rows.to_numpy(), "ndarray"),
    ):
        with pytest.raises(DataError, match=named):
            scorer().predict(wrong)


def test_a_site_has_its_own_classes_alone() -> None:
    task = Classification(("a", "b", "c"))
    state = task_state(task)
    given = np.array([[0.5, 0.1, 0.4]])
    made = Scorer("north", ENCODER, lambda x: np.tile(given, (len(x), 1)), state, classes=(1, 2))
    told = made.predict(TABLE.features.head(2))
    np.testing.assert_allclose(
        told[["probability_b", "probability_c"]], [[0.2, 0.8]] * 2, atol=1e-6
    )
    assert told["predicted"].tolist() == ["c", "c"] and made.classes_.tolist() == ["b", "c"]


def test_a_number_has_no_classes() -> None:
    task = Regression(mean=1e6, scale=2.0, target="price")
    made = Scorer(
        "north",
        ENCODER,
        lambda x: task.predict(torch.from_numpy(x[:, :1])).numpy(),
        task_state(task),
    )
    told = made.predict(TABLE.features)
    assert told.columns.tolist() == ["predicted"] and not hasattr(made, "classes_")
    expected = 1e6 + 2 * made.encode(TABLE.features)[:, 0].astype(np.float64)
    np.testing.assert_allclose(told["predicted"], expected, rtol=1e-12)
    with pytest.raises(ConfigError, match="expected a classifier"):
        made.predict_proba(TABLE.features)


def test_a_number_is_a_regressor_and_several_labels_are_refused() -> None:
    task = Regression(mean=1e6, scale=2.0, target="price")
    made = Scorer(
        "north",
        ENCODER,
        lambda x: task.predict(torch.from_numpy(x[:, :1])).numpy(),
        task_state(task),
    )
    estimator = estimator_of(made)
    y = TABLE.features["age"] / 10 + 1e6
    predicted = made.predict(TABLE.features)["predicted"]
    assert is_regressor(estimator) and estimator.score(TABLE.features, y) == r2_score(y, predicted)
    found = permutation_importance(estimator, TABLE.features, y, n_repeats=2, random_state=0)
    assert found.importances_mean.argmax() == 0 and not found.importances_mean[1:].any()
    state = task_state(MultiLabel(("a", "b"), ("no", "no"), ("yes", "yes"), (0, 0)))
    with pytest.raises(ConfigError, match="'multi_label'"):
        estimator_of(Scorer("north", ENCODER, of_age, state))


def test_a_function_that_fails_is_no_prediction() -> None:
    functions: list[Function] = [
        lambda x: x[:, :2] * np.float32(np.nan),
        lambda x: x[:, :1],
        lambda x: x @ x,
    ]
    for function in functions:
        with pytest.raises(RunError, match="client 'north': "):
            Scorer("north", ENCODER, function, task_state(ENCODER.task)).predict(TABLE.features)


def test_a_renamed_column_may_have_the_name_of_its_file(tmp_path: Path) -> None:
    raw = TABLE.features.assign(outcome=TABLE.target).rename(columns={"age": "AGE"})
    raw.to_csv(tmp_path / "north.csv", index=False)
    files = {"north": {"path": str(tmp_path / "north.csv"), "rename": {"AGE": "age"}}}
    (read,) = Tables(files, "outcome").tables(seed=0)
    encoder = TableEncoder("north").fit(read)
    made = Scorer("north", encoder, of_age, task_state(encoder.task))
    rows = raw.drop(columns="outcome")
    pd.testing.assert_frame_equal(
        made.predict(rows), made.predict(rows.rename(columns={"AGE": "age"}))
    )


# ------------------------------------------------------------------ models as arrays

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(300, 4)), RNG.integers(-1, 5, 300)]).astype(np.float32)
CLASSES = (X[:, 0] + (X[:, 4] == 2) + 0.3 * RNG.normal(size=300) > 0.5).astype(int) + (X[:, 1] > 1)
LABELS = np.column_stack(
    [np.where(X[:, 0] > 0, 1.0, 0.0), np.where(X[:, 1] > 3, 1.0, np.nan), np.zeros(300)]
)


def copied(model: Any) -> Any:
    state, arrays = as_arrays(model)
    return from_arrays(state, arrays, X.shape[1])


@pytest.mark.parametrize(
    "settings", [{"n_estimators": 20}, {"n_estimators": 5, "min_samples_leaf": 3}]
)
def test_trees_are_equal_to_the_bit(settings: dict[str, Any]) -> None:
    model: Any = CLASSIFIERS["extra_trees"].make(settings, [4], seed=1).fit(X, CLASSES)
    new = RNG.normal(size=(2000, 5)).astype(np.float32)
    np.testing.assert_array_equal(copied(model).predict_proba(new), model.predict_proba(new))
    number = REGRESSORS["extra_trees"].make(settings, [4], seed=1).fit(X, X[:, 0] * X[:, 1])
    np.testing.assert_array_equal(copied(number).predict(new), number.predict(new))
    # rows that lie exactly on thresholds, and next to them
    tree = model.estimators_[0].tree_
    edges = np.tile(tree.threshold[tree.children_left >= 0].astype(np.float32)[:, None], (1, 5))
    for rows in (
        edges,
        np.nextafter(edges, np.float32(np.inf)),
        np.nextafter(edges, np.float32(-np.inf)),
    ):
        np.testing.assert_array_equal(copied(model).predict_proba(rows), model.predict_proba(rows))


@pytest.mark.parametrize("categories", ["codes", "one_hot"])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (CLASSIFIERS["logistic_regression"], CLASSES),
        (CLASSIFIERS["logistic_regression"], CLASSES > 0),
        (REGRESSORS["ridge"], X[:, 0] * 3 + X[:, 1]),
        (COUNTERS["poisson_regression"], np.round(np.exp(X[:, 0]))),
    ],
)
def test_linear_models_are_equal(model: GoAlone, y: np.ndarray, categories: str) -> None:
    fitted = model.make({"categories": categories}, [4]).fit(X, y)
    # a category that training did not have
    new = np.vstack([X[:50], [[0, 0, 0, 0, 99]]]).astype(np.float32)
    way = "predict_proba" if y.dtype.kind in "ib" else "predict"
    np.testing.assert_allclose(
        getattr(copied(fitted), way)(new), getattr(fitted, way)(new), rtol=1e-12, atol=1e-7
    )


@pytest.mark.parametrize("name", ["extra_trees", "logistic_regression"])
def test_a_model_for_each_label(name: str) -> None:
    settings = {"n_estimators": 5} if name == "extra_trees" else {}
    fitted = LABELLERS[name].make(settings, [4]).fit(X, LABELS)
    np.testing.assert_allclose(
        copied(fitted).predict_proba(X), fitted.predict_proba(X), rtol=1e-12, atol=2e-7
    )


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="HistGradientBoosting"):
        as_arrays(CLASSIFIERS["gradient_boosting"].make({"max_iter": 2}, []).fit(X, CLASSES))


def test_a_class_that_a_fold_has_not_seen_has_no_probability() -> None:
    outcome = OneLabel(("a", "b", "c"))
    y = np.where(CLASSES > 0, 2, 0)
    for name in ("extra_trees", "logistic_regression"):
        fitted = (
            CLASSIFIERS[name]
            .make({"n_estimators": 5} if name == "extra_trees" else {}, [4])
            .fit(X, y)
        )
        found = ArrayFunction(*as_arrays(fitted), outcome, X.shape[1])(X)
        np.testing.assert_allclose(found[:, [0, 2]], fitted.predict_proba(X), atol=1e-6)
        assert not found[:, 1].any()


def test_a_mixture_has_the_classes_of_all_its_parts() -> None:
    def united_classes(task: str, *parts: str) -> list[str]:
        states = [{"name": task, "classes": [*part]} for part in parts]
        return list(united(states)["classes"])

    assert united_classes("classification", "ab", "cb") == ["a", "b", "c"]
    assert united_classes("multi_label", "a", "ba") == ["b", "a"]
    with pytest.raises(RunError, match="same labels"):
        united_classes("multi_label", "ab", "bc")
