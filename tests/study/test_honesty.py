"""What a reader must know before comparing: the ceiling, unequal training, models that tell no rows apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedlit.statistics import Estimate
from fedlit.study.answer import answer_card, answer_kind, answer_lines
from fedlit.study.compare import Comparison
from fedlit.study.lift import Answer
from fedlit.study.method import Method
from fedlit.study.plan import training_notes
from fedlit.study.study import Study
from fedlit.study.words import one_class_notes

NONE = (float("nan"), float("nan"))


@pytest.mark.parametrize(
    ("least", "verdict", "metric", "kind", "why"),
    [
        (0.9951, "unclear", "auroc", "nothing", "Nothing to gain: every model reaches 99.51 or better (is a column"),
        (0.995, "unknown", "auroc", "nothing", "Nothing to gain: every model reaches 99.50 or better (is a column"),
        (0.9949, "unclear", "auroc", "unclear", "No clear difference: 2 seeds can show only large differences"),
        (0.996, "helped", "auroc", "helped", "Federation pays: every model reaches 99.60 or better (is a column"),
        (0.996, "harmed", "auroc", "harmed", "Better alone: every model reaches 99.60 or better (is a column"),
        (None, "unclear", "auroc", "unclear", "No clear difference: 2 seeds can show only large differences"),
        (0.999, "unclear", "rmse", "unclear", "No clear difference"),  # no percentage points from anything
    ],
)
def test_where_every_model_is_at_the_ceiling_nothing_is_to_gain(
    least: float | None, verdict: str, metric: str, kind: str, why: str
) -> None:
    study = Study({"local": Method("quickstart.yaml")}, seeds=[1, 2], choose=metric)
    mine, theirs, lift = (Estimate(2, value, 0.0, NONE, NONE) for value in (0.998, 0.997, 0.001))
    answer = Answer("ward", mine, None, theirs, None, lift, verdict, least=least)
    assert answer_kind(study, answer) == kind
    assert answer_lines(answer_card(study, answer))[0].startswith(why)


def test_the_least_is_that_of_all_models(compared: Comparison) -> None:
    estimates = compared.estimates.set_index(["metric", "client", "method"])["mean"]
    for answer in compared.answers:
        own = estimates["auroc", answer.client].drop(["best_alone", "best_alone_in_hindsight", "best_federated"])
        assert len(own) == 4 and answer.least == pytest.approx(own.min(), abs=1e-15)


def study(**more: Any) -> Study:
    same = {"trainer.max_epochs": 3}
    methods = {
        "local": Method("quickstart.yaml", label="Local", set={**same, "exchange.federated": []}),
        "gl": Method("quickstart.yaml", label="Shared", set={**same, **more}),
    }
    return Study(methods, seeds=[1], checkpoint="best", choose="auroc")


def test_unequal_training_is_said_in_a_line() -> None:
    assert training_notes(study()) == []
    assert training_notes(study(**{"model.optimizer.lr": 0.1})) == []
    (longer,) = training_notes(study(**{"trainer.max_epochs": 9}))
    assert longer.startswith("Methods are not trained alike: trainer.max_epochs is 3 for Local; 9 for Shared.")
    stop = [{"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val/auroc"}}]
    (stopped,) = training_notes(study(**{"trainer.callbacks": stop}))
    assert "trainer.callbacks is not set for Local; " in stopped and "EarlyStopping" in stopped


def test_a_model_of_one_class_is_named(compared: Comparison, tmp_path: Path) -> None:
    records = compared.collected.records
    for record in records.to_dict("records"):  # what the records say is what lies in the files
        folder = compared.folder / "runs" / record["method"] / f"seed_{record['seed']}"
        frame = pd.read_parquet(folder / "predictions.parquet").query("split == 'test'")
        for client, own in frame.groupby("client"):
            assert (client in record["one_class"]) == (own["predicted"].nunique() == 1)
    runs = zip(records["method"], records["seed"], strict=True)
    said = [{"wine": "2"} if run == ("gl", 1) else {} for run in runs]
    collected = replace(compared.collected, records=records.assign(one_class=said))
    assert one_class_notes(compared.study, collected) == [
        "wine: all test rows are predicted to be of one class by Shared <core> ('2' in 1 of 2 runs): where the line is "
        "drawn, no rows are told apart"
    ]
    assert one_class_notes(compared.study, replace(collected, records=records.drop(columns="one_class"))) == []
