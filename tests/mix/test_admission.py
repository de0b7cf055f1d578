"""Federated parts enter a mixture only where they do not make these rows worse; and what that is worth."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from fedlit.errors import DataError
from fedlit.mix.admission import admitted, gain_interval
from fedlit.mix.losses import Judge, log_loss
from fedlit.mix.weights import mixed_parts, weights_of
from fedlit.tasks import Classification


def scores(rows: int, seed: int, **skill: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parts of two classes by how well they tell them apart; below 0 they tell them wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    parts = {}
    for name, own in skill.items():
        positive = 1 / (1 + np.exp(-(own * (2 * y - 1) + rng.normal(size=rows))))
        parts[name] = np.stack([1 - positive, positive], 1)
    return parts, y


def auroc(y: np.ndarray) -> Judge:
    return Judge(Classification((0, 1)), torch.from_numpy(y), "auroc")


@pytest.mark.parametrize("how", ["equal", "half_own", "fitted"])
def test_it_is_never_worse_than_own_parts_on_its_rows(how: str) -> None:
    for seed in range(5):
        parts, y = scores(200, seed, trees=1.0, linear=0.8, forest=1.0, joint=0.3, wrong=-1.0)
        own = {name: parts[name] for name in ("trees", "linear")}
        found = admitted(parts, own, auroc(y), True, how, log_loss(y, 2))  # type: ignore[arg-type]
        without = weights_of(how, own, own, log_loss(y, 2))  # type: ignore[arg-type]
        assert found.score >= found.own_score == auroc(y)(mixed_parts(own, without))
        assert found.score == auroc(y)(mixed_parts(parts, found.weights)) and "wrong" not in found.weights
        told = {own.part: own for own in found.tried}
        assert (
            told["forest"].admitted and told["forest"].weight == found.weights["forest"] and told["forest"].change > 0
        )
        assert not told["wrong"].admitted and told["wrong"].change < 0 and told["wrong"].weight == 0
        assert all(own.alone == auroc(y)(parts[own.part]) for own in found.tried)
        gained = sum(own.change for own in found.tried if own.admitted and not own.own)
        assert gained == pytest.approx(found.score - found.own_score)


def test_of_a_loss_less_is_better_and_the_order_of_parts_is_nothing() -> None:
    parts, y = scores(100, 0, trees=1.0, forest=1.0, wrong=-1.0)
    loss = log_loss(y, 2)
    found = [admitted({n: parts[n] for n in order}, ["trees"], loss.mean, False) for order in permutations(parts)]
    assert set(found[0].weights) == {"trees", "forest"} and found[0].score < found[0].own_score
    assert all(str(own) == str(found[0]) for own in found)


def test_equals_enter_and_a_least_gain_keeps_them_out() -> None:
    parts, y = scores(100, 0, trees=1.0)
    parts["copy"] = parts["trees"]
    assert admitted(parts, ["trees"], auroc(y), True).weights == {"trees": 0.5, "copy": 0.5}
    assert admitted(parts, ["trees"], auroc(y), True, least_gain=0.001).weights == {"trees": 1.0}


def test_where_nothing_can_be_judged_federated_parts_stay_out() -> None:
    parts, _ = scores(30, 0, trees=1.0, forest=1.0)
    found = admitted(parts, ["trees"], auroc(np.ones(30, int)), True)
    assert found.weights == {"trees": 1.0} and math.isnan(found.score)
    assert "not defined on these 30 rows" in found.note and "forest" in found.note


def test_without_own_parts_the_best_federated_one_is_the_start() -> None:
    parts, y = scores(200, 0, joint=0.3, forest=1.0, wrong=-1.0)
    found = admitted(parts, [], auroc(y), True)
    assert found.tried[0].part == "forest" and math.isnan(found.own_score) and "'forest'" in found.note
    assert "wrong" not in found.weights


def test_the_part_at_fault_is_named() -> None:
    parts, y = scores(30, 0, trees=1.0, forest=1.0)
    parts["forest"][3] = np.nan
    with pytest.raises(DataError, match="part 'forest': expected finite predictions, found 1 of 30"):
        admitted(parts, ["trees"], auroc(y), True)


def test_the_bootstraps_error_is_the_closed_form_of_a_mean() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.1, 1, 500), rng.normal(0, 1, 500)

    def mean(values: np.ndarray):
        return lambda counts: float(np.average(values, weights=counts))

    found = gain_interval(mean(first), mean(second), 500, True, resamples=2000)
    exact = (first - second).std() / math.sqrt(500)
    assert found.error == pytest.approx(exact, rel=0.05) and found.gain == pytest.approx((first - second).mean())
    low, high = found.interval
    assert low == pytest.approx(found.gain - 1.96 * exact, abs=0.2 * exact) and high - found.gain > 0
    turned = gain_interval(mean(second), mean(first), 500, False, resamples=2000)
    assert (turned.gain, turned.error) == (found.gain, found.error)
    assert found == gain_interval(mean(first), mean(second), 500, True, resamples=2000)


def test_a_gain_of_auroc_is_clear_or_noise_and_undefined_draws_are_left_out() -> None:
    parts, y = scores(400, 0, good=1.5, bad=0.2, twin=1.5)
    by = {name: auroc(y).by_counts(own) for name, own in parts.items()}
    assert gain_interval(by["good"], by["bad"], 400, True).clear
    assert not gain_interval(by["good"], by["twin"], 400, True).clear
    parts, _ = scores(6, 0, good=1.5, bad=0.2)
    rare = auroc(np.array([0, 0, 0, 0, 0, 1]))
    few = gain_interval(rare.by_counts(parts["good"]), rare.by_counts(parts["bad"]), 6, True)
    assert 200 < few.resamples < 400  # a draw of six holds the one positive row with probability 0.67
    one = auroc(np.array([1]))
    none = gain_interval(one.by_counts(parts["good"][:1]), one.by_counts(parts["bad"][:1]), 1, True)
    assert none.resamples == 0 and math.isnan(none.gain) and not none.clear
    with pytest.raises(DataError, match="at least one row"):
        gain_interval(by["good"], by["bad"], 0, True)


def test_it_begins_with_the_own_part_that_is_better_than_all_own_parts_together() -> None:
    y = np.array([0.0, 1.0, 2.0, 3.0])
    parts = {"good": y + 0.1, "bad": y + 5.0, "joint": y - 0.1}
    parts = {name: values[:, None] for name, values in parts.items()}
    found = admitted(parts, ["good", "bad"], lambda p: float(np.abs(p[:, 0] - y).mean()), higher_is_better=False)
    assert found.own_score == pytest.approx(0.1) and found.score == pytest.approx(0.0)
    assert found.weights == {"good": 0.5, "joint": 0.5}
    (bad,) = (own for own in found.tried if own.part == "bad")
    assert bad.own and not bad.admitted and bad.change < 0
