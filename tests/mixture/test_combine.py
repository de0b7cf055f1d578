"""A mixture of predictions against closed forms, expectation and maximisation, and the optimum's
own proof."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from fedlit.errors import ConfigError, DataError
from fedlit.mixture.combine import Combined, combine
from fedlit.mixture.results import results_of
from fedlit.mixture.settings import Mixing
from fedlit.mixture.together import choose_together, stackable, stacks
from fedlit.mixture.weigh import HOW, weights_of
from fedlit.outcomes.base import FLOOR
from fedlit.tasks import Classification, Counts, MultiLabel, Regression, SequenceLabelling, Task
from fedlit.tasks.judge import Judge, row_loss
from fedlit.tasks.predictions import Predictions
from fedlit.weights import fitted, mixed

LABELS = MultiLabel(("a", "b"))


def rows_of(task: Task, y: Any, parts: dict[str, np.ndarray]) -> Predictions:
    y = torch.as_tensor(y)
    return Predictions(
        task, np.arange(len(y)), y, {name: np.asarray(own, float) for name, own in parts.items()}
    )


def binary(rows: int, seed: int, **skill: float) -> Predictions:
    """Parts of two classes by how well they tell them apart; below 0 they tell them wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    parts = {}
    for name, own in skill.items():
        yes = 1 / (1 + np.exp(-(own * (2 * y - 1) + rng.normal(size=rows))))
        parts[name] = np.stack([1 - yes, yes], 1)
    return rows_of(Classification((0, 1)), y, parts)


def numbers(seed: int, rows: int, scale: float = 1.0, **errors: float) -> Predictions:
    """A number, and parts whose errors have these standard deviations."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=rows)
    parts = {name: scale * (y + rng.normal(0, own, rows))[:, None] for name, own in errors.items()}
    return rows_of(Regression(), scale * y, parts)


def one(rows: Predictions, own: list[str], **mixing: Any) -> Combined:
    return combine({"a": rows}, own, Mixing(**mixing))["a"]


@pytest.mark.parametrize("shrink", [1.0, 100.0])
def test_fitted_weights_are_those_of_em(shrink: float) -> None:
    rows = binary(300, 0, a=1.4, b=1.0, c=0.7, d=0.3)
    likelihood = np.stack([own[np.arange(300), rows.y] for own in rows.parts.values()], 1)
    expected = np.full(4, 1 / 4)
    for _ in range(20_000):
        told = expected * likelihood
        expected = ((told / told.sum(1, keepdims=True)).sum(0) + shrink) / (300 + shrink * 4)
    found = weights_of("fitted", rows, [], shrink)
    np.testing.assert_allclose(list(found.values()), expected, atol=1e-6)
    assert list(found) == list(rows.parts) and sum(found.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "counts"])
def test_no_weights_are_better_by_more_than_a_millionth_a_row(kind: str) -> None:
    """Of a convex loss, slope · weights less the least slope bounds what is left: the optimum
    carries its own proof."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 9))
        n = int(rng.choice([1, 5, 200]))
        # parts of very different quality, many sure and wrong
        loud = 10.0 ** rng.uniform(-2, 2, (count, 1, 1))
        task: Task = {
            "classes": Classification((0, 1, 2)),
            "labels": LABELS,
            "counts": Counts(),
        }.get(kind, Regression())
        if kind == "classes":
            logits = rng.normal(size=(count, n, 3)) * loud
            powers = np.exp(logits - logits.max(2, keepdims=True))
            parts = powers / powers.sum(2, keepdims=True)
            y: Any = rng.integers(0, 3, n)
        elif kind == "labels":
            parts = 1 / (1 + np.exp(-np.clip(rng.normal(size=(count, n, 2)) * loud, -500, 500)))
            y = rng.integers(0, 2, (n, 2)).astype(np.float32)
        elif kind == "numbers":
            y = rng.normal(size=n)
            parts = y[:, None] + rng.normal(size=(count, n, 1)) * loud
        else:
            y = rng.poisson(2, n).astype(float)
            parts = rng.gamma(1, 2, (count, n, 1)) * (rng.random((count, n, 1)) > 0.1)
        parts[1] = parts[0]
        loss = row_loss(task, torch.as_tensor(y))
        weights = fitted(parts, loss.terms, 0.0)
        assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12)
        assert weights[0] == pytest.approx(weights[1], abs=1e-6)  # equal parts are treated alike
        slope = (parts * loss.terms(np.tensordot(weights, parts, 1))[1]).sum((1, 2))
        assert slope @ weights - slope.min() <= 1e-6 * n * max(1, loss.mean(parts[0]))


def test_squared_errors_have_the_closed_form_in_any_unit() -> None:
    rows = numbers(1, 400, a=1.0, b=2.0)
    a, b = (own[:, 0] - rows.y.numpy() for own in rows.parts.values())
    best = float(((b - a) * b).sum() / ((b - a) ** 2).sum())
    assert weights_of("fitted", rows, [], 0)["a"] == pytest.approx(best, abs=1e-5)
    shrunk = weights_of("fitted", rows, [], 100)["a"]
    cents = numbers(1, 400, scale=100.0, a=1.0, b=2.0)
    assert 0.5 < shrunk < best and weights_of("fitted", cents, [], 100)["a"] == pytest.approx(
        shrunk, abs=1e-6
    )
    assert weights_of("fitted", rows, [], math.inf) == {"a": 0.5, "b": 0.5}


def test_the_order_of_parts_changes_no_bit() -> None:
    rows = binary(80, 0, a=1.4, b=1.0, c=0.7, d=0.3)
    ways = [rows.only(order) for order in permutations(rows.parts)]
    for how in HOW:
        found = [weights_of(how, own, ["c"], 5) for own in ways]
        assert all(own == found[0] for own in found)
        assert len({mixed(own.parts, w).tobytes() for own, w in zip(ways, found, strict=True)}) == 1


def test_losses_are_the_tasks_and_straight_below_the_floor() -> None:
    rng = np.random.default_rng(0)
    out = torch.from_numpy(rng.normal(size=(6, 3)))
    y = torch.tensor([0, 2, 1, 1, 0, 2])
    cases: list[tuple[Task, torch.Tensor, torch.Tensor, float]] = [
        (Classification((0, 1, 2)), out, y, 1.0),
        (Classification((0, 1)), out[:, :1], y % 2, 1.0),
        (MultiLabel(("a", "b", "c")), out, torch.tensor([[1.0, 0.0, torch.nan]] * 6), 1.0),
        (Regression(mean=3.0, scale=2.0), out[:, :1], y.float(), 4.0),
    ]
    for task, outputs, target, unit in cases:
        made = task.predict(outputs).numpy()
        expected = pytest.approx(unit * float(task.loss(outputs, target)), rel=1e-5)
        assert (
            row_loss(task, target).mean(made) == expected
            and Judge(task, target, "loss")(made) == expected
        )
    counts = Counts(mean=2.0)
    target = torch.tensor([0.0, 1.0, 4.0, 2.0, 0.0, 1.0])
    rates = counts.predict(out[:, :1])
    deviance = float(counts.evaluate(rates, target)["deviance"])
    assert row_loss(counts, target).mean(rates.numpy()) == pytest.approx(deviance / 2, rel=1e-6)
    loss = row_loss(Classification((0, 1)), torch.tensor([0, -1]))
    at = np.array([[FLOOR, 1], [0.5, 0.5]]), np.array([[0.0, 1], [0.5, 0.5]])
    assert loss(at[1])[0] - loss(at[0])[0] == pytest.approx(1.0) and loss(at[0])[1] == 0
    with pytest.raises(ConfigError, match="sequence_labelling"):
        row_loss(SequenceLabelling(("a",), 1), torch.zeros(2, 1))


# ---------------------------------------------------------------------- who enters


@pytest.mark.parametrize("how", HOW)
def test_a_mixture_is_never_worse_than_own_parts_on_its_rows(how: str) -> None:
    for seed in range(4):
        rows = binary(200, seed, trees=1.0, linear=0.8, forest=1.0, joint=0.3, wrong=-1.0)
        found = one(rows, ["trees", "linear"], weights=how)
        judge = Judge(rows.task, rows.y, "auroc")
        own = rows.only(["trees", "linear"])
        starts = [mixed(own.parts, weights_of(how, own, [*own.parts])), *own.parts.values()]
        assert found.mixture >= found.own == max(map(judge, starts))
        assert (
            found.mixture == judge(mixed(rows.parts, found.weights))
            and "wrong" not in found.weights
        )
        assert found.changes["wrong"] < 0 < found.changes["forest"]
        assert found.scores == {name: judge(made) for name, made in rows.parts.items()}
        entered = sum(found.changes[name] for name in found.weights if name not in own.parts)
        assert entered == pytest.approx(found.mixture - found.own)


def test_of_a_loss_less_is_better_and_equals_enter() -> None:
    found = one(numbers(0, 100, trees=1.0, forest=1.0, wrong=9.0), ["trees"], by="rmse")
    assert (
        set(found.weights) == {"trees", "forest"}
        and found.mixture < found.own
        and found.changes["wrong"] < 0
    )
    rows = binary(100, 0, trees=1.0)
    twice = rows_of(rows.task, rows.y, {"trees": rows.parts["trees"], "copy": rows.parts["trees"]})
    assert one(twice, ["trees"]).weights == {"trees": 0.5, "copy": 0.5}


def test_where_it_begins_and_what_cannot_be_judged_stays_out() -> None:
    alone = one(binary(200, 0, joint=0.3, forest=1.0, wrong=-1.0), [])
    assert math.isnan(alone.own) and "'forest'" in alone.notes[0] and "wrong" not in alone.weights
    y = torch.arange(4.0)
    parts = {
        name: y.numpy()[:, None] + off
        for name, off in (("good", 0.1), ("bad", 5.0), ("joint", -0.1))
    }
    found = one(rows_of(Regression(), y, parts), ["good", "bad"], by="mae")
    assert (
        found.weights == {"good": 0.5, "joint": 0.5}
        and found.own == pytest.approx(0.1)
        and found.changes["bad"] < 0
    )
    blind = rows_of(
        Classification((0, 1)), np.ones(30, int), dict(binary(30, 0, trees=1.0, forest=1.0).parts)
    )
    found = one(blind, ["trees"])
    assert found.weights == {"trees": 1.0} and "not defined on these 30 rows" in found.notes[0]
    assert found.to_dict()["mixture"] is None


def test_given_weights_enter_untried_and_a_better_part_is_named() -> None:
    rows = binary(200, 0, trees=1.5, wrong=-1.0)
    found = one(rows, ["trees"], weights={"trees": 1, "wrong": 3, "elsewhere": 4})
    assert found.weights == {"trees": 0.25, "wrong": 0.75} and found.notes[-1].startswith(
        "trees alone is better"
    )
    assert one(rows, ["trees"], by="rmse").notes[0].startswith("judged by auroc")
    assert one(rows, ["trees"], admit=False).weights == {"trees": 0.5, "wrong": 0.5}
    many = dict.fromkeys("abcd", np.full((2, 2), 0.5))
    half = one(
        rows_of(Classification((0, 1)), [0, 1], many), ["a"], weights="half_own", admit=False
    ).weights
    assert half == pytest.approx({"a": 1 / 2, "b": 1 / 6, "c": 1 / 6, "d": 1 / 6})


# ---------------------------------------------------------------------- together


def test_the_stack_is_the_mixed_model_of_the_mean() -> None:
    """Of balanced rows whose design is orthogonal at each client, REML has a closed form: with the
    clients' own least squares b and their covariance S, D = S - σ²/n, and what a client takes is b̄
    + D S⁻¹ (b - b̄)."""
    rng = np.random.default_rng(0)
    count = 12
    n = 8
    mean = np.tile([-1.0, 1.0], n // 2)
    own = np.array([3.0, 1.5]) + rng.multivariate_normal([0, 0], [[2.0, -0.5], [-0.5, 0.6]], count)
    y = own[:, :1] + own[:, 1:] * mean + rng.normal(0, 0.7, (count, n))
    x = np.column_stack([np.ones(n), mean])
    least = y @ x / n
    noise = ((y - least @ x.T) ** 2).sum() / (count * (n - 2)) / n
    spread = np.cov(least.T)
    shrunk = least.mean(0) + (least - least.mean(0)) @ np.linalg.inv(spread) @ (
        spread - noise * np.eye(2)
    )
    clients = {
        f"c{k:02}": rows_of(
            Regression(), y[k], {"a": mean[:, None] + 5 * k, "b": mean[:, None] - 5 * k}
        )
        for k in range(count)
    }
    assert stackable(clients) and not stackable(dict(list(clients.items())[:4]))
    one_row = rows_of(Regression(), y[0][:1], {"a": mean[:1, None], "b": mean[:1, None]})
    assert not stackable({**clients, "z": one_row})  # which leaves none for one half
    found = np.array([own[0] for own in stacks(clients).values()])
    np.testing.assert_allclose(found, shrunk, atol=1e-4)


@pytest.mark.parametrize("kind", ["two", "three", "labels", "counts"])
def test_clients_with_own_offsets_all_choose_the_stack(
    kind: str,
) -> None:
    clients, task = dict[str, Predictions](), {
        "two": Classification((0, 1)), "three": Classification((0, 1, 2)), "labels": LABELS, "counts": Counts()
    }[kind]  # fmt: skip
    for k in range(8):
        rng = np.random.default_rng(k)
        # what parts know; and what they do not
        known = rng.normal(size=(160, {"three": 3, "labels": 2}.get(kind, 1)))
        true = known + rng.normal(0, 1.5, known.shape[1])
        if kind == "counts":
            made = np.exp(known)
            y = rng.poisson(np.exp(true[:, 0])).astype(float)
        elif kind == "three":
            made, p = (np.exp(own) / np.exp(own).sum(1, keepdims=True) for own in (known, true))
            y = (p.cumsum(1) < rng.random((160, 1))).sum(1)
        else:
            made = 1 / (1 + np.exp(-known))
            y = (rng.random(true.shape) < 1 / (1 + np.exp(-true))).astype(np.float32)
            y[::9] = np.nan
            if kind == "two":
                made = np.hstack([1 - made, made])
                y = np.nan_to_num(y[:, 0], nan=-1).astype(int)
        clients[f"c{k}"] = rows_of(task, y, {"mine": made, "ours": made})
    found = combine(clients, ["mine"], Mixing("together", admit=False))
    assert all(own.notes[0].startswith("all chose stack together") for own in found.values())
    for name, rows in clients.items():
        mixture = rows.array(found[name].weights, found[name].stack)
        assert rows.loss.mean(mixture) < rows.loss.mean(rows.parts["mine"])
        assert kind in ("labels", "counts") or np.allclose(mixture.sum(1), 1)
    alone = combine(clients, ["mine", "ours"], Mixing("together", admit=False))
    assert not any(own.stack for own in alone.values())  # it learns from others


def test_small_clients_follow_all_and_a_large_odd_one_leaves() -> None:
    clients = {f"small{place}": numbers(place, 20, mine=1.0, ours=0.3) for place in range(20)}
    clients["odd"] = numbers(99, 20, mine=0.5, ours=0.9)  # better alone, which 20 rows cannot show
    clients["large"] = numbers(100, 4000, mine=0.3, ours=1.0)
    chosen = choose_together(clients, ["mine"])
    assert {own.common for own in chosen.values()} == {"ours"}
    assert all(own.candidate == "ours" for name, own in chosen.items() if name.startswith("small"))
    large = chosen["large"]
    assert (
        large.candidate != "ours"
        and large.weights["mine"] > 0.8
        and large.difference
        and large.difference[1] > 0
    )
    again = combine(
        dict(reversed(list(clients.items()))), ["mine"], Mixing("together", admit=False)
    )
    assert {name: own.weights for name, own in again.items()} == {
        name: own.weights for name, own in chosen.items()
    }


@pytest.mark.parametrize("bare", [False, True], ids=["", "one client has no own network"])
def test_the_common_choice_is_the_closed_form(bare: bool) -> None:
    """The sum over clients of mean losses in units of the spread of equal weights' losses, in
    whatever unit; of what each client has.
    """
    for scale in (1.0, 1000.0):
        clients = {
            f"kg{place}": numbers(place, 200, mine=1.0, net=0.9, ours=0.2) for place in range(2)
        }
        clients["g"] = numbers(7, 30, scale=scale, mine=0.2, net=0.9, ours=1.0)
        if bare:
            clients["bare"] = numbers(8, 90, mine=0.2, ours=2.0)
        total = defaultdict[str, float](float)
        for rows in clients.values():
            mean = rows.loss(mixed(rows.parts, dict.fromkeys(rows.parts, 1.0)))
            own = len(rows.parts) - 1
            for name, weights in {
                "equal": {"mine": 1, "net": 1, "ours": 1}, "half_own": {"mine": 1, "net": 1, "ours": own},
                "ours": {"ours": 1}, "alone": {"mine": 1, "net": 1},
                **({} if bare else {"equal without own network": {"mine": 1, "ours": 1}}),
            }.items():  # fmt: skip
                had = {part: weight for part, weight in weights.items() if part in rows.parts}
                total[name] += float(
                    (rows.loss(mixed(rows.parts, had)).mean() - mean.mean()) / mean.std()
                )
        chosen = choose_together(clients, ["mine", "net"], math.inf, ["net"])
        assert {own.common for own in chosen.values()} == {min(total, key=lambda name: total[name])}
        assert all({*own.weights} <= {*clients[name].parts} for name, own in chosen.items())


COMMON: list[Any] = [
    ({"mean": 9.0, "linear": 0.2, "trees": 9.0}, {"linear": 1.0}),
    ({"mean": 9.0, "linear": 0.5, "trees": 0.5}, {"linear": 0.5, "trees": 0.5}),
]


@pytest.mark.parametrize(("errors", "weights"), COMMON)
def test_without_federated_parts_one_or_two_are_chosen(
    errors: dict[str, float], weights: dict[str, float]
) -> None:
    clients = {f"c{place}": numbers(place, 30, **errors) for place in range(8)}
    assert all(
        dict(own.weights) == weights for own in choose_together(clients, list(errors)).values()
    )


# ---------------------------------------------------------------------- refused


PAIR = np.array([[0.9, 0.1], [0.2, 0.8]])
TWO = {"base": PAIR, "joint": PAIR}


AT_FAULT: list[Any] = [
    (
        {**TWO, "joint": np.array([[0.5, np.nan]] * 2)},
        "fitted",
        DataError,
        "part 'joint': .* found 2 of 2",
    ),
    (
        {**TWO, "joint": np.full((3, 2), 0.5)},
        "equal",
        DataError,
        r"part 'joint': .*\(2, 2\), .* found \(3, 2\)",
    ),
    ({**TWO, "joint": np.empty((0, 2))}, "equal", DataError, "part 'joint'"),
    ({**TWO, "joint": np.zeros(2)}, "half_own", DataError, "part 'joint'"),
    ({}, "equal", DataError, "at least one part"),
    (TWO, {"joined": 1.0}, ConfigError, "found none"),
]


@pytest.mark.parametrize(("parts", "weights", "error", "told"), AT_FAULT)
def test_the_part_at_fault_is_named(
    parts: Any, weights: Any, error: type[Exception], told: str
) -> None:
    rows = Predictions(Classification((0, 1)), np.arange(2), torch.tensor([0, 1]), parts)
    with pytest.raises(error, match=told):
        one(rows, ["base"], weights=weights, admit=False)


def test_degenerate_rows() -> None:
    single = rows_of(Classification((0, 1)), [0], {"a": PAIR[:1], "b": PAIR[1:]})
    assert weights_of("fitted", single, [], 0)["a"] == pytest.approx(1, abs=1e-6)
    sure = np.array([[1.0, 0.0]] * 3)
    impossible = rows_of(Classification((0, 1)), [1, 1, 1], {"a": sure, "b": sure})
    assert weights_of("fitted", impossible, [], 0) == pytest.approx({"a": 0.5, "b": 0.5})
    perfect = rows_of(Regression(), [0.0, 1.0], dict.fromkeys("ab", np.array([[0.0], [1.0]])))
    assert weights_of("fitted", perfect, [], 1) == pytest.approx({"a": 0.5, "b": 0.5})
    for y, told in (([-1, -1], "found none"), ([0, 1, 1], "3 rows")):
        with pytest.raises(DataError, match=told):
            weights_of(
                "fitted",
                Predictions(Classification((0, 1)), np.arange(2), torch.tensor(y), TWO),
                [],
            )


def test_errors_in_other_units_have_no_mean() -> None:
    units = {"north": 1.0, "south": 100.0}
    found = {
        name: replace(numbers(1, 9, own, part=0.1), task=Regression(scale=own))
        for name, own in units.items()
    }
    one = {"weights": {"part": 1.0}, "stack": (), "metric": "rmse", "notes": []}
    results = results_of("test", found, dict.fromkeys(found, one))
    assert results.incomparable == {"rmse", "mae"}
    (line,) = (own for own in str(results).splitlines() if own.startswith("mean"))
    assert "–" in line and any("other units" in own for own in str(results).splitlines())
