"""What a reader must know before comparing: the ceiling, unequal training, models that tell no rows apart."""

from __future__ import annotations

import pytest

from fedlit.statistics import ALONE, FEW, JOIN, SAME, TITLES, Estimate, estimate
from fedlit.study.answer import Answer, summary
from fedlit.study.lift import flat, judged
from fedlit.study.method import Method
from fedlit.study.study import Study
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
    answer = Answer(study, "ward", "auroc", 0.9 + lift.mean, 0.9, {**flat(lift), "verdict": kind}, (None, None))
    assert answer.title == TITLES[kind] and ("needs 3" in answer.why) == (len(values) < 3)
    assert summary([answer]).startswith("Of 1 client, ") and "(ward)" in summary([answer])
