"""What rules need of clients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedlit.exchange.rules import CFL, IFCA, Agglomerative, FedGMCC, Mean, Round, Rule, Update

# ------------------------------------------------------------------ needs


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


def test_a_rule_that_says_nothing_needs_counts_and_single_states() -> None:
    class Own(Rule):
        def __call__(self, round: Round) -> Any:
            return {}

    assert Own().needs == {"rows", "steps", "states"}


def test_rows_that_are_not_needed_do_not_matter_and_others_do() -> None:
    def received(rule: Rule, rows: dict[str, int]) -> float:
        updates = {name: Update({"w": torch.tensor([v])}, rows[name]) for name, v in (("a", 1.0), ("b", -3.0))}
        return rule(Round(0, 0, updates, dict.fromkeys("ab", ("w",))))["a"]["w"].item()

    unknown, known = {"a": 0, "b": 0}, {"a": 300, "b": 100}
    assert received(Mean(), unknown) == received(Mean(), known) == -1
    assert received(Mean("rows"), known) == 0
    with pytest.raises(ValueError, match="expected positive weights"):
        received(Mean("rows"), unknown)
