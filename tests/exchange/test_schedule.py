"""When an exchange is due, and who takes part in it."""

from typing import Any

import pytest

from fedlit.exchange.schedule import cohort, due, wrong_every


def test_a_cohort_is_a_function_of_seed_and_round_whatever_the_order_of_clients() -> None:
    names = [f"c{number}" for number in range(9)]
    drawn = [cohort(0.4, names, seed, round) for seed in (1, 2) for round in range(5)]
    assert drawn == [cohort(0.4, reversed(names), seed, round) for seed in (1, 2) for round in range(5)]
    assert len(set(drawn)) > 5
    assert cohort(1, names, 1, 0) is None


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        ("step", list(range(12))),
        ("epoch", [3, 7, 11]),
        ({"steps": 5}, [4, 9]),  # counted over epochs
        ({"epochs": 2}, [7]),
    ],
)
def test_three_epochs_of_four_steps(every: Any, steps: list[int]) -> None:
    assert [step for step in range(12) if due(every, step, step % 4 == 3, step // 4)] == steps
    assert not wrong_every(every)
