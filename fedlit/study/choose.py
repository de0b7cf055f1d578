"""What each client would have chosen on its validation rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedlit.study.frames import OUT_OF_FOLD
from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED

__all__ = ["best_in_hindsight", "best_on_validation", "of_choice"]


def best_on_validation(
    results: pd.DataFrame,
    candidates: Sequence[str],
    choose: str | Mapping[str, str],
    *,
    undecided: Literal["none", "first"] = "none",
) -> pd.DataFrame:
    """Per seed and client the candidate of the best value on validation, the first of equals.

    Args:
        results: tidy, with the validation split.
        candidates: methods, in the order in which equals are preferred. Those without any result are left out, of a
            client those that it cannot have.
        choose: the metric, or client → its own.
        undecided: what is chosen for clients for which the metric is undefined for all candidates: none of them, or
            the first, as a local baseline takes its first settings then.

    Candidates that have out-of-fold scores are compared by these, and the best of them with all others on validation
    rows: two models are always compared on the same rows.

    Returns:
        Columns seed, client, method. A seed of which a candidate is missing is left out: the best of fewer would not
        be comparable.
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
    """The rows of the metric by which each client chooses, with ``gain``: the value, the larger the better.

    Args:
        results: with client, metric, value.
        choose: the metric, or client → its own.
    """
    metric = results["client"].map({client: choice_of(choose, client) for client in results["client"].unique()})
    own = results[results["metric"] == metric]
    signs = {name: 1.0 if COMPARED[name].higher_is_better else -1.0 for name in own["metric"].unique()}
    return own.assign(gain=own["value"] * own["metric"].map(signs).astype(float))


def _place(unseen: NDArray[np.float64], validation: NDArray[np.float64]) -> int | None:
    """Which candidate is best, by its place; None where nothing is known."""
    first = int(np.nanargmax(unseen)) if not np.isnan(unseen).all() else None
    beaten = ~np.isnan(unseen)
    if first is not None:
        beaten[first] = False
    values = np.where(beaten, np.nan, validation)
    return first if np.isnan(values).all() else int(np.nanargmax(values))


def best_in_hindsight(
    results: pd.DataFrame, candidates: Sequence[str], choose: str | Mapping[str, str]
) -> pd.DataFrame:
    """Per client the candidate with the best mean test score over seeds, the same for all seeds: a stricter bar than
    anybody can choose beforehand.

    Args:
        results: tidy, with the test split.
        candidates: methods, in the order in which equals are preferred. One that lost its numbers is none.
        choose: the metric, or client → its own.

    Returns:
        Columns seed, client, method, of the seeds that all candidates of a client have.
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
