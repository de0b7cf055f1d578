"""Shares of classes: planted ones are found, by the paper's own steps and by exact posteriors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedlit.errors import DataError
from fedlit.mix.shares import reweighted, shares_of

MEANS = np.array([-2.0, 0.0, 2.5])


def posterior(x: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Of Gaussians of variance 1, by Bayes' rule: what a perfect classifier says where classes have these shares."""
    joint = shares * stats.norm.pdf(x[:, None], MEANS[: len(shares)])
    return joint / joint.sum(1, keepdims=True)


def rows(count: int, shares: np.ndarray, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return MEANS[rng.choice(len(shares), count, p=shares)] + rng.normal(size=count)


def by_em(predictions: np.ndarray, training: np.ndarray) -> np.ndarray:
    """Equations 2.9 of the paper."""
    shares = training
    for _ in range(5_000):
        odds = predictions * shares / training
        shares = (odds / odds.sum(1, keepdims=True)).mean(0)
    return shares


TRAINED, NEW = np.array([1, 1, 1]) / 3, np.array([0.7, 0.2, 0.1])


def test_planted_shares_are_found_and_give_the_exact_posterior() -> None:
    x = rows(20_000, NEW)
    found = shares_of(posterior(x, TRAINED), TRAINED)
    assert found.used and found.warning == "" and found.p < 1e-6 and "within each class" in found.assumption
    assert (np.abs(found.estimated - NEW) < 4 * found.errors).all() and (found.errors < 0.01).all()
    np.testing.assert_allclose(found.adjusted, posterior(x, found.estimated), atol=1e-12)
    np.testing.assert_allclose(found.adjusted, posterior(x, NEW), atol=0.03)
    np.testing.assert_allclose(found.adjusted.mean(0), found.estimated, atol=1e-6)  # the maximum is where these agree


def test_the_maximum_is_the_papers() -> None:
    given = posterior(rows(500, NEW, 1), TRAINED)
    np.testing.assert_allclose(shares_of(given, TRAINED).estimated, by_em(given, TRAINED), atol=1e-7)
    uneven = np.array([0.1, 0.3, 0.6])
    given = posterior(rows(500, NEW, 1), uneven)
    np.testing.assert_allclose(shares_of(given, 50 * uneven).estimated, by_em(given, uneven), atol=1e-7)


def test_standard_errors_are_those_of_rows_drawn_anew() -> None:
    drawn = [shares_of(posterior(rows(400, NEW, seed), TRAINED), TRAINED) for seed in range(200)]
    spread = np.std([own.estimated for own in drawn], axis=0, ddof=1)
    np.testing.assert_allclose(np.mean([own.errors for own in drawn], axis=0), spread, rtol=0.15)


def test_without_a_change_most_rows_stay_as_they_are() -> None:
    found = [shares_of(posterior(rows(300, NEW, seed), NEW), NEW) for seed in range(100)]
    used = [own for own in found if own.used]
    assert len(used) <= 12  # 5 of 100 by the test's level, give or take three standard deviations
    seed, kept = next((seed, own) for seed, own in enumerate(found) if not own.used)
    assert "no change was found (p = 0." in kept.warning and kept.p > 0.05
    np.testing.assert_array_equal(kept.adjusted, posterior(rows(300, NEW, seed), NEW))


def test_one_column_is_two() -> None:
    before, after = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    given = posterior(rows(2_000, after), before)
    two, one = shares_of(given, before), shares_of(given[:, 1:], before)
    np.testing.assert_allclose(one.estimated, two.estimated, atol=1e-9)
    np.testing.assert_allclose(one.adjusted, two.adjusted[:, 1:], atol=1e-9)
    np.testing.assert_allclose(reweighted(given[:, 1:], before, after), posterior(rows(2_000, after), after)[:, 1:])


def test_few_rows_and_predictions_that_tell_nothing_are_left_alone() -> None:
    given = posterior(rows(99, NEW), TRAINED)
    few = shares_of(given, TRAINED)
    assert not few.used and "at least 100 rows, found 99" in few.warning and few.adjusted.tobytes() == given.tobytes()
    blind = shares_of(np.tile(TRAINED, (500, 1)), TRAINED)
    assert not blind.used and "do not tell the classes apart" in blind.warning and np.isnan(blind.errors).all()
    rng = np.random.default_rng(0)
    weak = np.clip(0.5 + 0.03 * rng.normal(size=(400, 1)), 0, 1)
    found = shares_of(weak, [1, 1], classes=["well", "ill"])
    assert not found.used and "tell 'well', 'ill' from others too badly" in found.warning


def test_an_absent_class_is_named_and_pseudo_rows_keep_it() -> None:
    x = rows(2_000, np.array([0.5, 0.5, 0.0]))
    found = shares_of(posterior(x, TRAINED), TRAINED, classes=["a", "b", "c"])
    assert not found.used and found.estimated[2] < 1e-4 and "'c' would count as absent" in found.warning
    kept = shares_of(posterior(x, TRAINED), TRAINED, pseudo_rows=1)
    assert kept.used and 1e-4 < kept.estimated[2] < 0.01


def test_a_class_without_training_rows_keeps_its_probability() -> None:
    x = rows(1_000, np.array([0.8, 0.2]))
    given = np.hstack([0.9 * posterior(x, np.array([0.5, 0.5])), np.full((1_000, 1), 0.1)])
    found = shares_of(given, [10, 10, 0])
    np.testing.assert_array_equal(found.adjusted[:, 2], given[:, 2])
    np.testing.assert_allclose(found.adjusted.sum(1), 1)
    inner = shares_of(posterior(x, np.array([0.5, 0.5])), [1, 1])
    np.testing.assert_allclose(found.estimated[:2], 0.9 * inner.estimated, atol=1e-9)
    np.testing.assert_allclose(found.adjusted[:, :2], 0.9 * inner.adjusted, atol=1e-9)


def test_rows_with_known_classes_show_probabilities_that_do_not_fit() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(3, 600, p=TRAINED)
    known, new = posterior(MEANS[y] + rng.normal(size=600), TRAINED), posterior(rows(600, NEW), TRAINED)
    assert shares_of(new, TRAINED, known=(known, y)).used
    wrong = np.array([0.1, 0.1, 0.8])  # not what it was trained with
    found = shares_of(new, wrong, classes=["a", "b", "c"], known=(known, y))
    assert (
        not found.used
        and "the same estimate gives 'b' 56%, it is 34%" in found.warning
        and found.adjusted.tobytes() == new.tobytes()
    )
    assert shares_of(new, wrong).used  # nothing else shows it
    assert shares_of(new, wrong, known=(known[:99], y[:99])).used
    outside = np.where(np.arange(600) < 300, -1, y)
    assert shares_of(new, TRAINED, known=(known, outside)).used
    with pytest.raises(DataError, match="known rows: expected 600 classes"):
        shares_of(new, TRAINED, known=(known, y[:5]))


def test_degenerate_predictions() -> None:
    sure = np.eye(2)[np.repeat([0, 1], [150, 50])]
    found = shares_of(sure, [1, 1])  # certain of each row: shares are counts
    np.testing.assert_allclose(found.estimated, [0.75, 0.25], atol=1e-8)
    np.testing.assert_allclose(found.errors, np.sqrt(0.75 * 0.25 / 200), rtol=1e-6)
    np.testing.assert_array_equal(found.adjusted, sure)
    one = shares_of(np.ones((200, 2)) * [1.0, 0.0], [1, 0])
    assert not one.used and one.estimated.tolist() == [1.0, 0.0]
    none = reweighted(np.array([[0.0, 1.0]]), [1, 1], [1, 0])  # only a class without a share could have it
    np.testing.assert_array_equal(none, [[0.0, 1.0]])


def test_what_does_not_fit_is_refused() -> None:
    given = np.full((3, 2), 0.5)
    for training in ([1], [1, -1], [0, 0], [1, np.nan]):
        with pytest.raises(DataError, match="training shares: expected 2 numbers"):
            shares_of(given, training)
    with pytest.raises(DataError, match="new shares"):
        reweighted(given, [1, 1], [1, 1, 1])
    with pytest.raises(DataError, match="expected 2 classes, found 1"):
        shares_of(given, [1, 1], classes=["a"])
    with pytest.raises(DataError, match=r"pseudo_rows: .* found -1"):
        shares_of(given, [1, 1], pseudo_rows=-1)
    with pytest.raises(DataError, match="expected finite"):
        shares_of(np.full((3, 2), np.nan), [1, 1])
