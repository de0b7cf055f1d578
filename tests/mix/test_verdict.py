"""Each verdict, and what decides between two."""

from __future__ import annotations

import math

import pytest

from fedlit.mix.verdict import Common, verdict_of
from fedlit.tasks import SCORES

MUCH = Common([f"column {number}" for number in range(12)], 14, 2, 2, 303)
AGE_AND_SEX = Common(["age", "sex"], 14, 2, 2, 303)
NONE = (math.nan, math.nan)
PARTS = ["the forest", "the network"]


@pytest.mark.parametrize(
    ("lift", "interval", "common", "parts", "said"),
    [
        (
            0.015,
            (0.009, 0.021),
            MUCH,
            PARTS,
            "join, with the forest and the network: +1.50 points of AUROC (95 % interval +0.90 to +2.10)",
        ),
        (
            0.001,
            (0.0005, 0.0015),
            AGE_AND_SEX,
            PARTS[:1],
            "join, with the forest: +0.10 points of AUROC (95 % interval +0.05 to +0.15), which is little",
        ),
        (
            -0.01,
            (-0.02, -0.001),
            AGE_AND_SEX,
            PARTS,
            "do not join: -1.00 points of AUROC (95 % interval -2.00 to -0.10); its own models are better",
        ),
        (
            0.0,
            (-0.004, 0.004),
            AGE_AND_SEX,
            PARTS,
            "nothing to gain: only age and sex are shared (2 of 14 columns); "
            "+0.00 points of AUROC (95 % interval -0.40 to +0.40)",
        ),
        (
            0.0,
            NONE,
            Common(["age"], 14, 2, 2, 303),
            (),
            "nothing to gain: only age is shared (1 of 14 columns); no federated "
            "part was better on its validation rows, it stays with its own models",
        ),
        (0.0, NONE, Common([], 14, 2, 2, 303), PARTS, "nothing to gain: no column is shared; +0.00 points of AUROC"),
        (
            0.0,
            NONE,
            Common(MUCH.columns, 14, 0, 3, 303),
            PARTS,
            "nothing to gain: no class is shared; +0.00 points of AUROC",
        ),
        (
            0.0,
            NONE,
            Common(MUCH.columns, 100, 2, 2, 303),
            PARTS,
            "nothing to gain: only 12 of 100 columns are shared; +0.00 points of AUROC",
        ),
        (
            0.0,
            (-0.002, 0.002),
            MUCH,
            PARTS,
            "level: nothing lost, nothing gained: +0.00 points of AUROC (95 % interval -0.20 to +0.20)",
        ),
        (
            0.0,
            NONE,
            MUCH,
            (),
            "level: no federated part was better on its validation rows, "
            "it stays with its own models: nothing lost, nothing gained",
        ),
        (
            0.034,
            (-0.026, 0.094),
            MUCH,
            PARTS,
            "unclear: +3.40 points of AUROC (95 % interval -2.60 to "
            "+9.40); with 303 rows it cannot be told from no lift",
        ),
        (0.034, NONE, MUCH, PARTS, "not known: +3.40 points of AUROC, and one result has no interval; take more seeds"),
        (math.nan, NONE, MUCH, PARTS, "not known: AUROC is not defined on these rows; give rows of each class"),
    ],
)
def test_what_a_client_is_told(lift: float, interval: tuple, common: Common, parts: list, said: str) -> None:
    found = verdict_of(SCORES["auroc"], lift, interval, 0.9, common, parts)
    assert found.sentence == said and said.startswith(found.kind)


def test_of_other_scores_little_is_a_part_of_what_there_is_alone() -> None:
    rmse = SCORES["rmse"]
    assert verdict_of(rmse, 0.1, (-0.9, 1.0), 500.0, MUCH, PARTS).sentence == (
        "level: nothing lost, nothing gained: +0.1 in RMSE, + for lower and better (95 % interval -0.9 to +1)"
    )
    assert verdict_of(rmse, 0.1, (-0.9, 1.0), 400.0, MUCH, PARTS).kind == "unclear"


def test_a_number_has_no_classes_to_share() -> None:
    assert not Common(MUCH.columns, 14, 0, 0, 303).few
