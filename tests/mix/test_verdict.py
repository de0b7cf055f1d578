"""Each verdict, and what decides between two."""

from __future__ import annotations

import math

import pytest

from fedlit.mix.verdict import Common, verdict_of
from fedlit.statistics import TITLES
from fedlit.tasks import SCORES

MUCH = Common([f"column {number}" for number in range(12)], 14, 2, 2, 303)
AGE_AND_SEX = Common(["age", "sex"], 14, 2, 2, 303)
NONE = (math.nan, math.nan)
PARTS = ["the forest", "the network"]


@pytest.mark.parametrize(
    ("lift", "interval", "common", "parts", "kind"),
    [
        (0.015, (0.009, 0.021), MUCH, PARTS, "join"),
        (0.001, (0.0005, 0.0015), AGE_AND_SEX, PARTS[:1], "no difference"),
        (-0.01, (-0.02, -0.001), AGE_AND_SEX, PARTS, "stay alone"),
        (-0.001, (-0.002, -0.0001), MUCH, PARTS, "no difference"),
        (0.0, (-0.004, 0.004), AGE_AND_SEX, PARTS, "no difference"),
        (0.0, NONE, MUCH, (), "no difference"),
        (0.034, (-0.026, 0.094), MUCH, PARTS, "not enough data"),
        (0.001, (-0.006, 0.006), MUCH, PARTS, "not enough data"),
        (0.034, NONE, MUCH, PARTS, "not enough data"),
        (math.nan, NONE, MUCH, PARTS, "not enough data"),
    ],
)
def test_what_a_client_is_told(lift: float, interval: tuple, common: Common, parts: list, kind: str) -> None:
    found = verdict_of(SCORES["auroc"], lift, interval, 0.9, common, parts)
    assert found.kind == kind and found.sentence.startswith(TITLES[kind])
    assert ("the forest" in found.sentence) == (kind == "join")


def test_little_in_common_is_said_where_nothing_is_gained() -> None:
    auroc, level = SCORES["auroc"], (-0.004, 0.004)
    assert "age and sex are shared (2 of 14" in verdict_of(auroc, 0.0, level, 0.9, AGE_AND_SEX, PARTS).sentence
    assert "no column" in verdict_of(auroc, 0.0, NONE, 0.9, Common([], 14, 2, 2, 303), PARTS).sentence
    assert "no class" in verdict_of(auroc, 0.0, NONE, 0.9, Common(MUCH.columns, 14, 0, 3, 303), PARTS).sentence
    assert "shared" not in verdict_of(auroc, 0.0, level, 0.9, MUCH, PARTS).sentence


def test_what_matters_can_be_said_and_is_a_part_of_other_scores() -> None:
    rmse, auroc = SCORES["rmse"], SCORES["auroc"]
    assert verdict_of(rmse, 0.1, (-2.4, 2.5), 500.0, MUCH, PARTS).kind == "no difference"
    assert verdict_of(rmse, 0.1, (-2.4, 2.5), 400.0, MUCH, PARTS).kind == "not enough data"
    assert verdict_of(auroc, 0.001, (0.0005, 0.0015), 0.9, MUCH, PARTS, matters=0.1).kind == "join"


def test_a_number_has_no_classes_to_share() -> None:
    assert not Common(MUCH.columns, 14, 0, 0, 303).few
