"""Scenarios together: ranks, and Friedman's test."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import friedmanchisquare, rankdata

from fedlit.study.across import Across, rank_table
from fedlit.study.method import Method
from fedlit.tasks import SCORES


def test_ranks_share_places_and_friedman_is_scipys() -> None:
    rng = np.random.default_rng(1)
    values = pd.DataFrame(rng.normal(size=(12, 4)), columns=list("abcd"))
    values["d"] = values["a"]
    found = rank_table(values, higher_is_better=False, resamples=200)
    assert np.allclose(found["rank"].sort_index(), rankdata(values.to_numpy(), axis=1).mean(0))
    assert found.loc["a", "rank"] == found.loc["d", "rank"]
    same = pd.DataFrame({"a": [1.0] * 5, "b": [0.0] * 5})
    assert rank_table(same).loc["a"].tolist() == [1.0, 1.0, 1.0]

    class Made(Across):
        @property
        def values(self) -> pd.DataFrame:  # type: ignore[override]
            return values

    assert Made({}).p == pytest.approx(friedmanchisquare(*values.to_numpy().T).pvalue)


def test_a_method_that_lacks_a_seed_is_not_ranked() -> None:
    columns = pd.MultiIndex.from_product([["a", "b", "c"], ["x", "y"]], names=["method", "client"])
    values = pd.DataFrame(np.random.default_rng(1).random((3, 6)), index=[1, 2, 3], columns=columns)
    values.loc[2, "b"] = np.nan  # it failed
    values.loc[3, (slice(None), "y")] = np.nan  # what nobody has, such as an AUROC of one class
    estimates = values.mean().rename("mean").reset_index().assign(metric="auroc")
    own = SimpleNamespace(
        estimates=estimates,
        scores=[SCORES["auroc"]],
        collected=SimpleNamespace(values=lambda metric: values),
        study=SimpleNamespace(
            methods=dict.fromkeys("abc", Method("quickstart")), labels={name: name for name in "abc"}
        ),
    )
    found = Across({"one": own}).values  # type: ignore[dict-item]
    assert found["b"].isna().all()
    assert found.loc[("one", "y"), "c"] == values.loc[[1, 2], ("c", "y")].mean()
    assert found[["a", "c"]].notna().all(axis=None)
