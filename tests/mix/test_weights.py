"""Weights against closed forms, expectation and maximisation, and SciPy; and why they are shrunk."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedlit.errors import ConfigError, DataError
from fedlit.mix.losses import FLOOR, Judge, RowLoss, label_loss, log_loss, poisson_loss, row_loss, squared_loss
from fedlit.mix.weights import mixed, mixed_parts, weights_of
from fedlit.tasks import Classification, Counts, MultiLabel, Regression


def classifiers(rows: int, seed: int = 0, noise: tuple[float, ...] = (0.7, 1.0, 1.5, 3.0)) -> tuple[dict, np.ndarray]:
    """Parts of three classes that are wrong independently, the first the least, and the true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows)
    parts = {}
    for place, own in enumerate(noise):
        logits = 2 * np.eye(3)[y] + own * rng.normal(size=(rows, 3))
        parts[f"part {place}"] = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return parts, y


def by_em(parts: dict, y: np.ndarray, shrink: float) -> np.ndarray:
    """The same optimum, by the textbook's expectation and maximisation."""
    likelihood = np.stack([own[np.arange(len(y)), y] for own in parts.values()], 1)
    weights = np.full(len(parts), 1 / len(parts))
    for _ in range(20_000):
        told = weights * likelihood
        told /= told.sum(1, keepdims=True)
        weights = (told.sum(0) + shrink) / (len(y) + shrink * len(parts))
    return weights


def by_scipy(parts: dict, mean_loss) -> np.ndarray:
    stack = np.stack(list(parts.values()))
    found = minimize(
        lambda w: mean_loss(np.tensordot(w, stack, 1)),
        np.full(len(stack), 1 / len(stack)),
        method="SLSQP",
        bounds=[(0, 1)] * len(stack),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x


@pytest.mark.parametrize("shrink", [1.0, 20.0, 100.0])
def test_fitted_weights_are_those_of_expectation_and_maximisation(shrink: float) -> None:
    parts, y = classifiers(300)
    found = weights_of("fitted", parts, [], log_loss(y, 3), shrink)
    np.testing.assert_allclose(list(found.values()), by_em(parts, y, shrink), atol=1e-6)
    assert list(found) == list(parts) and sum(found.values()) == pytest.approx(1, abs=1e-12)


def test_without_shrinkage_they_are_scipys_optimum() -> None:
    parts, y = classifiers(300)
    found = np.array(list(weights_of("fitted", parts, [], log_loss(y, 3), 0).values()))
    np.testing.assert_allclose(found, by_scipy(parts, log_loss(y, 3).mean), atol=1e-4)
    mean = log_loss(y, 3).mean
    stack = np.stack(list(parts.values()))
    assert mean(np.tensordot(found, stack, 1)) <= mean(np.tensordot(by_scipy(parts, mean), stack, 1)) + 1e-8


def test_squared_errors_have_the_weights_of_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(size=400)
    first, second = (y + rng.normal(0, sd, 400) for sd in (1.0, 2.0))
    a, b = first - y, second - y
    best = float(((b - a) * b).sum() / ((b - a) ** 2).sum())
    parts = {"a": first[:, None], "b": second[:, None]}
    assert weights_of("fitted", parts, [], squared_loss(y), 0)["a"] == pytest.approx(best, abs=1e-6)
    shrunk = weights_of("fitted", parts, [], squared_loss(y), 100)["a"]
    assert 0.5 < shrunk < best
    in_cents = {name: 100 * own for name, own in parts.items()}  # the unit of the target changes nothing
    assert weights_of("fitted", in_cents, [], squared_loss(100 * y), 100)["a"] == pytest.approx(shrunk, abs=1e-9)


def test_a_part_that_only_harms_gets_nothing_and_perfect_ones_are_no_error() -> None:
    y = np.arange(10.0)
    parts = {"far": y[:, None] + 5, "right": y[:, None], "as far": y[:, None] + 7}
    found = weights_of("fitted", parts, [], squared_loss(y), 0)
    assert found["right"] == pytest.approx(1, abs=1e-4) and min(found.values()) >= 0
    same = {name: y[:, None] for name in "ab"}
    assert weights_of("fitted", same, [], squared_loss(y), 1) == pytest.approx({"a": 0.5, "b": 0.5})


@pytest.mark.parametrize("shrink", [1e7, np.inf])
def test_without_end_shrinkage_gives_equal_weights(shrink: float) -> None:
    parts, y = classifiers(100)
    found = weights_of("fitted", parts, [], log_loss(y, 3), shrink)
    np.testing.assert_allclose(list(found.values()), 0.25, atol=1e-4)


def test_the_order_of_parts_changes_no_bit() -> None:
    parts, y = classifiers(80)
    all_ways = [{name: parts[name] for name in order} for order in permutations(parts)]
    for how in ("equal", "half_own", "fitted"):
        found = [weights_of(how, own, ["part 2"], log_loss(y, 3), 5) for own in all_ways]  # type: ignore[arg-type]
        assert all(own == found[0] for own in found)
        assert len({mixed_parts(own, w).tobytes() for own, w in zip(all_ways, found, strict=True)}) == 1


def test_free_weights_on_few_rows_do_harm_and_shrunken_ones_do_not() -> None:
    """Eight parts of one quality, 40 rows to fit to: all weights should be equal. Loss on 20,000 other rows."""
    noise = (1.5,) * 8
    free, shrunk = [], []
    for seed in range(10):
        parts, y = classifiers(20_040, seed, noise)
        few = {name: own[:40] for name, own in parts.items()}
        many, loss = {name: own[40:] for name, own in parts.items()}, log_loss(y[40:], 3)
        equal = loss.mean(mixed_parts(many, dict.fromkeys(parts, 1 / 8)))
        for shrink, into in ((0, free), (100, shrunk)):
            into.append(
                loss.mean(mixed_parts(many, weights_of("fitted", few, [], log_loss(y[:40], 3), shrink))) - equal
            )
    assert min(free) > 0 and np.mean(free) > 20 * abs(np.mean(shrunk))
    assert np.abs(shrunk).max() < 1e-3


def test_half_own_and_equal() -> None:
    parts = dict.fromkeys("abcd", np.full((2, 2), 0.5))
    assert weights_of("half_own", parts, ["a", "gone"]) == pytest.approx(
        {"a": 1 / 2, "b": 1 / 6, "c": 1 / 6, "d": 1 / 6}
    )
    for own in ([], list("abcd")):
        assert weights_of("half_own", parts, own) == dict.fromkeys("abcd", 0.25)
    assert weights_of("equal", parts, ["a"]) == dict.fromkeys("abcd", 0.25)


SMOOTH = {
    "classes": (log_loss(np.array([0, 2, -1, 1]), 3), 3),
    "two classes in one column": (log_loss(np.array([0, 1, -1, 1]), 1), 1),
    "labels": (label_loss(np.array([[0, 1], [np.nan, 0], [np.nan, np.nan], [1, 1]])), 2),
    "numbers": (squared_loss(np.array([0.0, 1.0, -2.0, 5.0])), 1),
    "counts": (poisson_loss(np.array([0.0, 1.0, 2.0, 5.0])), 1),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_slopes_are_those_of_differences(name: str) -> None:
    loss, width = SMOOTH[name]
    for low, high in ((0.1, 0.9), (FLOOR / 10, FLOOR / 2)):  # below the floor a straight line
        at, step = np.random.default_rng(0).uniform(low, high, (4, width)), low * 1e-3
        terms = [loss.terms(at + move * step) for move in (-1, 0, 1)]
        np.testing.assert_allclose(terms[1][1], (terms[2][0] - terms[0][0]) / (2 * step), rtol=1e-3, atol=1e-4)


def test_losses_are_those_of_the_tasks() -> None:
    """The mean over known rows is what a task minimises, by torch; of regression in the user's unit."""
    rng = np.random.default_rng(0)
    outputs = torch.from_numpy(rng.normal(size=(6, 3)))
    y = torch.tensor([0, 2, 1, 1, 0, 2])
    cases = [
        (Classification((0, 1, 2)), outputs, y, 1.0),
        (Classification((0, 1)), outputs[:, :1], y % 2, 1.0),
        (MultiLabel(("a", "b", "c")), outputs, torch.tensor([[1.0, 0.0, torch.nan]] * 6), 1.0),
        (Regression(mean=3.0, scale=2.0), outputs[:, :1], y.float(), 4.0),
    ]
    for task, out, target, unit in cases:
        loss = row_loss(task, target)
        assert loss.mean(task.predict(out).numpy()) == pytest.approx(unit * float(task.loss(out, target)), rel=1e-5)
        assert Judge(task, target, "loss")(task.predict(out).numpy()) == pytest.approx(
            loss.mean(task.predict(out).numpy())
        )
    counts = Counts(mean=2.0)
    target = torch.tensor([0.0, 1.0, 4.0, 2.0, 0.0, 1.0])
    rates = counts.predict(outputs[:, :1])
    deviance = float(counts.evaluate(rates, target)["deviance"])
    assert row_loss(counts, target).mean(rates.numpy()) == pytest.approx(deviance / 2, rel=1e-6)


def test_a_judge_scores_as_the_task_does_whatever_the_counts() -> None:
    parts, y = classifiers(50)
    task, target, predictions = Classification((0, 1, 2)), torch.from_numpy(y), parts["part 1"]
    counts = np.random.default_rng(0).integers(0, 3, 50)
    for metric in ("auroc", "balanced_accuracy", "loss"):
        judge = Judge(task, target, metric)
        repeated = Judge(task, torch.from_numpy(np.repeat(y, counts)), metric)(np.repeat(predictions, counts, axis=0))
        assert judge.by_counts(predictions)(counts) == pytest.approx(repeated, rel=1e-6)
    with pytest.raises(ConfigError, match=r"expected a score of classification .*found 'rmse'"):
        Judge(task, target, "rmse")(predictions)
    with pytest.raises(ConfigError, match="test rows only"):
        Judge(task, target, "auroc_ovo")(predictions)


def test_degenerate_rows() -> None:
    one = {"a": np.array([[0.9, 0.1]]), "b": np.array([[0.2, 0.8]])}
    assert weights_of("fitted", one, [], log_loss(np.array([0]), 2), 0)["a"] == pytest.approx(1, abs=1e-6)
    impossible = {"a": np.array([[1.0, 0.0]] * 3), "b": np.array([[1.0, 0.0]] * 3)}
    found = weights_of("fitted", impossible, [], log_loss(np.array([1, 1, 1]), 2), 0)
    assert found == pytest.approx({"a": 0.5, "b": 0.5})
    alone = {"a": one["a"]}
    assert weights_of("fitted", alone, ["a"], log_loss(np.array([0]), 2)) == {"a": 1.0}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"joint": np.array([[0.5, np.nan], [0.5, 0.5]])}, "part 'joint': expected finite predictions, found 1 of 2"),
        ({"joint": np.full((3, 2), 0.5)}, r"part 'joint': expected .*\(2, 2\), as of 'base', found \(3, 2\)"),
        ({"joint": np.empty((0, 2))}, "part 'joint': expected predictions"),
        ({"joint": np.zeros(2)}, "part 'joint': expected predictions"),
    ],
)
def test_the_part_at_fault_is_named(broken: dict, said: str) -> None:
    parts = {"base": np.full((2, 2), 0.5), **broken}
    for call in (
        lambda: weights_of("fitted", parts, [], log_loss(np.array([0, 1]), 2)),
        lambda: mixed_parts(parts, {"base": 1.0, "joint": 1.0}),
    ):
        with pytest.raises(DataError, match=said):
            call()


def test_what_cannot_be_weighted_is_refused() -> None:
    parts, loss = {"a": np.full((2, 2), 0.5)}, log_loss(np.array([0, 1]), 2)
    for arguments, said in (
        (("best", parts, []), "expected one of equal, half_own, fitted"),
        (("fitted", parts, []), "expected a loss"),
        (("fitted", parts, [], loss, -1), "at least 0, found -1"),
        (("fitted", parts, [], log_loss(np.array([0, 1, 1]), 2)), "expected predictions of 3 rows"),
        (("fitted", parts, [], log_loss(np.array([-1, -1]), 2)), "found none"),
        (("equal", {}, []), "at least one part"),
    ):
        with pytest.raises(ConfigError, match=said):
            weights_of(*arguments)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="found 2"):
        log_loss(np.array([2]), 2)
    for weights in ([0], [-1], [np.nan], [1, 1]):
        with pytest.raises(DataError, match="expected 1 numbers"):
            mixed([parts["a"]], weights)
    with pytest.raises(DataError, match="'b'"):
        mixed_parts(parts, {"b": 1.0})
    assert isinstance(loss, RowLoss)
