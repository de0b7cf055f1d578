"""Finds what each client would have chosen on its validation rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.study.frames import OUT_OF_FOLD
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED


def best_on_validation(
    results: pd.DataFrame,
    candidates: Sequence[str],
    choose: str | Mapping[str, str],
    *,
    undecided: Literal["none", "first"] = "none",
) -> pd.DataFrame:
    """Return, for each seed and client, the candidate with the best value on validation rows, the first among equals.

    Args:
        results: tidy results, with the validation split.
        candidates: methods, in the order in which equals are preferred. Candidates without any result are left out, and
            for each client those that it cannot have.
        choose: the metric, or a mapping of each client to its metric.
        undecided: what is chosen for clients for which the metric is undefined for all candidates: none of them, or the
            first, as a local baseline then takes its first settings.

    Candidates with out-of-fold scores are compared by these, and the best of them is compared with all others on
    validation rows, so that two models are always compared on the same rows.

    Returns:
        The columns seed, client and method. A seed without a result of one of the candidates is left out, because the
        best of fewer candidates would not be comparable.
    """
    keys = ["seed", "client", "method"]
    own = of_choice(results, choose)
    judged = own[own["split"].isin(["validation", OUT_OF_FOLD])]
    # the first is also chosen for clients that have no validation rows
    known = (results if undecided == "first" else judged)[keys].drop_duplicates()
    present = [name for name in candidates if (known["method"] == name).any()]
    known, judged = (frame[frame["method"].isin(present)] for frame in (known, judged))
    expected = known.groupby("client")["method"].nunique()
    counts = known.groupby(["seed", "client"])["method"].nunique()
    complete = counts[counts == expected.reindex(counts.index.get_level_values("client")).to_numpy()].index
    unseen, validation = (
        judged[judged["split"] == split]
        .pivot(index=["seed", "client"], columns="method", values="gain")
        .reindex(index=complete, columns=present)
        .to_numpy(float)
        for split in (OUT_OF_FOLD, "validation")
    )
    places = [_place(*values) for values in zip(unseen, validation, strict=True)]
    if undecided == "first":
        places = [place or 0 for place in places]
    chosen = [None if place is None else present[place] for place in places]
    return complete.to_frame(index=False).assign(method=pd.Series(chosen, dtype=object)).dropna().reset_index(drop=True)


def of_choice(results: pd.DataFrame, choose: str | Mapping[str, str]) -> pd.DataFrame:
    """Return the rows of the metric by which each client chooses, with a column ``gain``: the value with the sign by
    which larger is better.

    Args:
        results: a table with client, metric and value.
        choose: the metric, or a mapping of each client to its metric.
    """
    metric = results["client"].map({client: choice_of(choose, client) for client in results["client"].unique()})
    own = results[results["metric"] == metric]
    signs = {name: 1.0 if COMPARED[name].higher_is_better else -1.0 for name in own["metric"].unique()}
    return own.assign(gain=own["value"] * own["metric"].map(signs).astype(float))


def _place(unseen: NDArray[np.float64], validation: NDArray[np.float64]) -> int | None:
    """Return the position of the best candidate, or None if no value is known."""
    first = int(np.nanargmax(unseen)) if not np.isnan(unseen).all() else None
    beaten = ~np.isnan(unseen)
    if first is not None:
        beaten[first] = False
    values = np.where(beaten, np.nan, validation)
    return first if np.isnan(values).all() else int(np.nanargmax(values))


def best_in_hindsight(
    results: pd.DataFrame, candidates: Sequence[str], choose: str | Mapping[str, str]
) -> pd.DataFrame:
    """Return, for each client, the candidate with the best mean test score over seeds, which is the same for all seeds.
    This is a stricter bar than anybody could choose in advance.

    Args:
        results: tidy results, with the test split.
        candidates: methods, in the order in which equals are preferred. A method whose scores are not all numbers is no
            candidate.
        choose: the metric, or a mapping of each client to its metric.

    Returns:
        The columns seed, client and method, for the seeds that all candidates of a client have.
    """
    own = of_choice(results, choose)
    own = own[(own["split"] == "test") & own["method"].isin(list(candidates))]
    found = []
    for client, frame in own.groupby("client"):
        wide = frame.pivot(index="seed", columns="method", values="gain")
        wide = wide.reindex(columns=[name for name in candidates if name in wide])
        runs = frame.pivot(index="seed", columns="method", values="metric").notna().all(axis=1)
        means = wide[runs.reindex(wide.index)].mean(skipna=False).dropna()
        if len(means):
            found += [(seed, client, means.idxmax()) for seed in wide.index[runs.reindex(wide.index)]]
    return pd.DataFrame(found, columns=["seed", "client", "method"])
