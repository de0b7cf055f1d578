"""Intervals and tests against SciPy and closed forms: how often an interval holds the truth is
known exactly."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from fedlit.answers.verdict import Verdict, verdict_on
from fedlit.jobs.job import Job, Train
from fedlit.statistics import (
    Estimate,
    corrected_interval,
    holm,
    over_seeds,
    rows_interval,
    wilcoxon,
)
from fedlit.study.collect import _check_rows

TRIALS = 500


def made(effect: float, n: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(effect, 0.01, n)


def test_the_intervals_over_seeds_are_scipys_and_by_hand() -> None:
    values = made(0.02)
    ratio = 0.5
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    for found in (over_seeds(values).interval, corrected_interval(values)):
        np.testing.assert_allclose(found, (expected.low, expected.high), rtol=1e-12)
    reach = stats.t.ppf(0.975, 11) * math.sqrt((1 / 12 + ratio) * values.var(ddof=1))
    np.testing.assert_allclose(
        corrected_interval(values, ratio), (values.mean() - reach, values.mean() + reach)
    )


def said(found: Estimate) -> Verdict:
    """The verdict where any lift matters."""
    return verdict_on(found, 0.0)


@pytest.mark.parametrize("effect", [0.0, 2.0])
def test_fixed_rows_the_interval_of_both_sources_covers(effect: float) -> None:
    # truth, plus what these test rows add for every seed, plus training noise
    rng = np.random.default_rng(2)
    n = 10
    rows = 0.3
    noise = 0.5
    hits = only_seeds = clear = 0
    for _ in range(TRIALS):
        shift = rng.normal(0, rows)
        values = effect + shift + rng.normal(0, noise, n)
        found = over_seeds(values, resamples=values.mean() + rng.normal(0, rows, 200))
        hits += found.interval[0] <= effect <= found.interval[1]
        only_seeds += found.seeds[0] <= effect <= found.seeds[1]
        clear += said(found) == Verdict.JOIN
    assert abs(hits / TRIALS - 0.95) < 0.03
    assert only_seeds / TRIALS < 0.85  # as if these rows were all rows
    assert clear / TRIALS < 0.04 if effect == 0 else clear / TRIALS > 0.95


def test_the_parts_of_a_fixed_interval_add_up() -> None:
    values = made(0.0, n=8)
    resamples = np.random.default_rng(3).normal(values.mean(), 0.004, 500)
    found = over_seeds(values, resamples=resamples)
    training = values.var(ddof=1) / 8
    rows = resamples.var(ddof=1)
    degrees = (training + rows) ** 2 / (training**2 / 7)
    reach = stats.t.ppf(0.975, degrees) * math.sqrt(training + rows)
    np.testing.assert_allclose(found.interval, (values.mean() - reach, values.mean() + reach))
    assert found.rows == rows_interval(resamples) == tuple(np.quantile(resamples, [0.025, 0.975]))
    assert degrees > 7
    # of two seeds Welch's interval is narrower than theirs alone
    few = over_seeds([0.0, 0.02], resamples=resamples)
    assert few.interval == pytest.approx(few.seeds) and few.seeds[1] > 0.1


def test_what_has_no_spread_or_one_seed_is_no_certainty() -> None:
    resamples = np.random.default_rng(4).normal(0.1, 0.01, 4000)
    equal = over_seeds([0.1] * 6, resamples=resamples)
    one = over_seeds([0.1], resamples=resamples)
    np.testing.assert_allclose(
        equal.interval, stats.norm.interval(0.95, 0.1, resamples.std(ddof=1))
    )
    assert math.isnan(one.sd) and one.rows[0] < 0.1 and math.isnan(equal.seeds[0])
    for own in (
        one,
        over_seeds([0.02] * 2, ratio=0.5),
        over_seeds([0.02] * 3),
        over_seeds([0.1, math.nan, 0.2]),
    ):
        assert said(own) == Verdict.FEW


@pytest.mark.parametrize("effect", [0.0, 0.03])
def test_wilcoxon_is_scipys_and_needs_eight_seeds(effect: float) -> None:
    values = made(effect, seed=5)
    assert wilcoxon(values) == stats.wilcoxon(values).pvalue
    assert math.isnan(wilcoxon(values[:7]))
    assert wilcoxon(np.zeros(9)) == 1.0


def test_holm_is_statsmodels() -> None:
    p = np.round(np.random.default_rng(0).random(8) ** 3, 2).tolist()  # with ties
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=1e-15)
    # what is not known does not count
    np.testing.assert_array_equal(holm([*p, math.nan]), [*holm(p), math.nan])


def test_shared_test_rows_are_set_against_all_others() -> None:
    def ratio(digests: dict[str, str], tested: int) -> dict[str, float]:
        rows = {
            name: {"test": {"digest": digest, "rows": tested}} for name, digest in digests.items()
        }
        record = {"rows": rows, "train_rows": {"a": 200, "b": 300}}
        job = Job("local", 1, "", {}, Train("", {}), {"a": "auroc"})
        return _check_rows([(job, record)])[1]

    assert ratio({"a": "1", "b": "2"}, 100) == {"a": 1 / 2, "b": 1 / 3}
    assert ratio({"a": "1", "b": "1"}, 100) == {"a": 1 / 5, "b": 1 / 5}  # of 500 training rows
