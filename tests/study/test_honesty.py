"""What a reader must know before comparing: the ceiling, unequal training, models that tell no rows apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedlit.errors import ConfigError
from fedlit.statistics import ALONE, FEW, JOIN, SAME, TITLES, Estimate, estimate
from fedlit.study.answer import Answer, answer_card, summary
from fedlit.study.compare import Comparison
from fedlit.study.lift import flat, judged
from fedlit.study.method import Method
from fedlit.study.study import Study
from fedlit.study.words import one_class_notes
from fedlit.tasks import SCORES


def lift_of(*values: float) -> Estimate:
    return estimate(values, ratio=0.0)


@pytest.mark.parametrize(
    ("values", "matters", "kind"),
    [
        ((-0.0010, -0.0010), 0.5, FEW),  # two seeds are never enough
        ((0.03, 0.03), 0.5, FEW),
        ((0.028, 0.030, 0.032, 0.031, 0.029), 0.5, JOIN),  # three points on five seeds
        ((-0.028, -0.030, -0.032, -0.031, -0.029), 0.5, ALONE),
        ((0.0010, 0.0011, 0.0009, 0.0010, 0.0012), 0.5, SAME),  # sure, and too small to matter
        ((0.0010, 0.0011, 0.0009, 0.0010, 0.0012), 0.05, JOIN),
        ((0.0, 0.0, 0.0), 0.5, SAME),
        ((0.05, -0.03, 0.02), 0.5, FEW),
    ],
)
def test_a_verdict_needs_three_seeds_and_a_lift_that_matters(
    values: tuple[float, ...], matters: float, kind: str
) -> None:
    study = Study({"local": Method("quickstart.yaml")}, seeds=[1, 2], choose="auroc", matters=matters)
    lift = lift_of(*values)
    assert judged(lift, SCORES["auroc"].least_lift(matters, 0.9)) == kind
    card = answer_card(study, Answer("ward", "auroc", 0.9 + lift.mean, 0.9, flat(lift), kind, (None, None)))
    assert card.kind == kind and card.title == TITLES[kind]
    assert ("needs 3" in card.why) == (len(values) < 3)
    assert summary([card]).startswith("Of 1 client, ") and "(ward)" in summary([card])


def test_the_smallest_lift_that_matters_must_be_one() -> None:
    for wrong in (-0.1, 100.0, float("nan")):
        with pytest.raises(ConfigError, match="matters"):
            Study({"local": Method("quickstart.yaml")}, seeds=[1], matters=wrong)


def study(**more: Any) -> Study:
    same = {"trainer.max_epochs": 3}
    methods = {
        "local": Method("quickstart.yaml", label="Local", set={**same, "exchange.federated": []}),
        "gl": Method("quickstart.yaml", label="Shared", set={**same, **more}),
    }
    return Study(methods, seeds=[1], checkpoint="best", choose="auroc")


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
