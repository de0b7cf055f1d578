"""A scorer over made rows: what it needs, what it says, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedlit.data.encoder import TableEncoder
from fedlit.data.sources import Tables
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError, RunError
from fedlit.score.scorer import Function, Scorer
from fedlit.tasks import Classification, Regression, task_state


def table() -> ClientTable:
    rng = np.random.default_rng(0)
    features = pd.DataFrame(
        {
            "age": rng.integers(20, 80, 40).astype(float),
            "town": rng.choice(["Bonn", "Köln", "Ulm"], 40),
            "smoker": rng.choice([True, False], 40),
            "stage": rng.choice([1, 2, 3], 40),
        }
    )
    target = pd.Series(np.where(features["age"] > 50, "ill", "well"), name="outcome")
    splits = {"train": np.arange(30), "validation": np.arange(30, 34), "test": np.arange(34, 40)}
    return ClientTable("north", features, target, splits, ("town", "smoker", "stage"))  # type: ignore[arg-type]


TABLE = table()
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
    alone = np.concatenate([scorer().predict_proba(rows.iloc[[position]]) for position in range(len(rows))])
    np.testing.assert_array_equal(alone, whole)


def test_columns_in_any_order_and_keys_first() -> None:
    rows = TABLE.features.assign(visit=range(40), id="a", outcome="?")
    made = scorer(keys=["id"])
    told = made.predict(rows[rows.columns[::-1]])
    assert told.columns.tolist() == ["id", "probability_ill", "probability_well", "predicted"]
    assert made.notes == ["columns that the client does not use: outcome, visit"]
    pd.testing.assert_frame_equal(made.predict(rows, keys=["visit", "age"]).iloc[:, :2], rows[["visit", "age"]])
    assert "id" not in made.predict(TABLE.features)  # a key of its own that is not there is no mistake
    with pytest.raises(DataError, match=r"keys: expected columns of the rows, found no 'vist'\. Did you mean 'visit'"):
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
        made.predict_proba(rows.assign(town=rows["town"].astype("category"), stage=rows["stage"].astype("category"))),
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
        (rows.assign(age=1e300), r"'age' is not finite"),
        (pd.concat([rows, rows["age"]], axis=1), r"'age' twice"),
        (rows.to_numpy(), "ndarray"),
    ):
        with pytest.raises(DataError, match=named):
            scorer().predict(wrong)


def test_a_site_has_its_own_classes_alone() -> None:
    task = Classification(("a", "b", "c"))
    state, given = task_state(task), np.array([[0.5, 0.1, 0.4]])
    made = Scorer("north", ENCODER, lambda x: np.tile(given, (len(x), 1)), state, classes=(1, 2))
    told = made.predict(TABLE.features.head(2))
    np.testing.assert_allclose(told[["probability_b", "probability_c"]], [[0.2, 0.8]] * 2, atol=1e-6)
    assert told["predicted"].tolist() == ["c", "c"] and made.classes_.tolist() == ["b", "c"]


def test_a_number_has_no_classes() -> None:
    task = Regression(mean=1e6, scale=2.0, target="price")
    made = Scorer("north", ENCODER, lambda x: task.predict(torch.from_numpy(x[:, :1])).numpy(), task_state(task))
    told = made.predict(TABLE.features)
    assert told.columns.tolist() == ["predicted"] and not hasattr(made, "classes_")
    expected = 1e6 + 2 * made.encode(TABLE.features)[:, 0].astype(np.float64)
    np.testing.assert_allclose(told["predicted"], expected, rtol=1e-12)
    with pytest.raises(ConfigError, match="expected a classifier"):
        made.predict_proba(TABLE.features)


def test_a_function_that_fails_is_no_prediction() -> None:
    functions: list[Function] = [lambda x: x[:, :2] * np.float32(np.nan), lambda x: x[:, :1], lambda x: x @ x]
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
    pd.testing.assert_frame_equal(made.predict(rows), made.predict(rows.rename(columns={"AGE": "age"})))
