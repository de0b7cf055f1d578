"""FedAvgM against its recursion."""

from __future__ import annotations

import pytest
import torch

from fedlit.errors import ConfigError
from fedlit.exchange.rule import Round, Update
from fedlit.exchange.rules import FedAvgM


def a_round(number: int, **values: float) -> Round:
    updates = {
        name: Update({"w": torch.tensor([value])}, rows=1 + place, parameters=("w",))
        for place, (name, value) in enumerate(sorted(values.items()))
    }
    return Round(number, 0, updates, dict.fromkeys(updates, ("w",)))


def test_it_is_the_recursion_of_the_paper() -> None:
    rule, w, v, rng = FedAvgM(0.6), 1.0, 0.0, torch.Generator().manual_seed(0)
    assert rule.begin(a_round(-1, a=w, b=w)) == {}
    for number in range(5):
        sent = torch.randn(2, generator=rng).tolist()
        received = rule(a_round(number, a=sent[0], b=sent[1]))
        v = 0.6 * v + (sum(sent) / 2 - w)
        w += v
        assert {name: float(own["w"]) for name, own in received.items()} == pytest.approx({"a": w, "b": w}, abs=1e-6)


def test_without_momentum_it_is_the_mean_by_rows_too() -> None:
    rule = FedAvgM(0.0, "rows")
    rule.begin(a_round(-1, a=0.0, b=0.0))
    assert float(rule(a_round(0, a=3.0, b=6.0))["a"]["w"]) == pytest.approx((3 + 2 * 6) / 3)


def test_a_restored_rule_goes_on_as_it_would_have() -> None:
    first, second = FedAvgM(0.9), FedAvgM(0.9)
    first.begin(a_round(-1, a=0.0))
    first(a_round(0, a=1.0))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(a_round(1, a=2.0))["a"]["w"], second(a_round(1, a=2.0))["a"]["w"])


def test_a_momentum_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"momentum: expected a number in \[0, 1\), found 1"):
        FedAvgM(1.0)


def test_what_is_no_parameter_is_averaged_and_gets_no_velocity() -> None:
    rule = FedAvgM(0.9)
    for number, sent in enumerate((4.0, 1.0, 0.1, 0.01)):  # a falling variance, which momentum would carry below 0
        updates = {name: Update({"w": torch.ones(1), "v": torch.tensor([sent])}, parameters=("w",)) for name in "ab"}
        received = rule(Round(number, 0, updates, dict.fromkeys(updates, ("w", "v"))))
        assert float(received["a"]["v"]) == pytest.approx(sent)
