"""What rules need of clients."""

import pytest

from fedlit import CFL, IFCA, Agglomerative, FedGMCC, Mean, Rule


@pytest.mark.parametrize(
    ("rule", "rows", "states", "answers"),
    [
        (Mean(), False, False, False),
        (Mean("rows"), True, False, False),
        (CFL(), False, True, False),
        (CFL(weights="rows"), True, True, False),
        (Agglomerative(clusters=2), False, True, False),
        (IFCA(), False, True, True),
        (IFCA(weights="rows"), True, True, True),
        (FedGMCC(), False, True, False),
        (FedGMCC(inputs="range"), False, True, True),
    ],
)
def test_what_a_rule_needs(rule: Rule, rows: bool, states: bool, answers: bool) -> None:
    assert ("rows" in rule.needs, "states" in rule.needs, "answers" in rule.needs) == (rows, states, answers)
    assert bool(rule.asks) == answers  # what is asked stands in the plan
