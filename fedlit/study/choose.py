"""What each client would have chosen on its validation rows, and the results of what was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from fedlit.study.study import choice_of
from fedlit.tasks import COMPARED

__all__ = ["best_on_validation", "bootstrap_of", "scores_of"]


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
            the first, as a go-alone model takes its first settings then.

    Returns:
        Columns seed, client, method. A seed of which a candidate is missing is left out: the best of fewer would not
        be comparable.
    """
    keys = ["seed", "client", "method"]
    metric = results["client"].map({client: choice_of(choose, client) for client in results["client"].unique()})
    own = results[(results["split"] == "validation") & (results["metric"] == metric)]
    for name in own["metric"].unique():
        chosen = own["metric"] == name
        own = own.assign(value=own["value"].where(~chosen, COMPARED[name].gain(own["value"], 0.0)))
    if undecided == "first":  # also for clients that have no validation rows
        own = results[keys].drop_duplicates().merge(own, on=keys, how="left")
    present = [name for name in candidates if (own["method"] == name).any()]
    own = own[own["method"].isin(present)]
    expected = own.groupby("client")["method"].nunique()
    counts = own.groupby(["seed", "client"])["method"].nunique()
    wide = own.pivot(index=["seed", "client"], columns="method", values="value").reindex(columns=present)
    decided = wide.notna().any(axis=1) | (undecided == "first")
    complete = counts.reindex(wide.index) == expected.reindex(wide.index.get_level_values("client")).to_numpy()
    wide = wide[complete & decided]
    position = np.argmax(wide.fillna(-np.inf).to_numpy(float), axis=1) if len(wide) else []
    return wide.index.to_frame(index=False).assign(method=[present[column] for column in position])


def scores_of(name: str, chosen: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """Of scores or curves those of what was chosen (seed, client, method), under a name of their own."""
    if frame.empty:  # its columns have no types to be merged by
        return frame
    return frame.merge(chosen, on=["seed", "client", "method"]).assign(method=name)


def bootstrap_of(
    name: str, chosen: pd.DataFrame, bootstrap: Mapping[tuple[str, int], pd.DataFrame]
) -> dict[tuple[str, int], pd.DataFrame]:
    """The same of resamples, for the seeds of which there are all."""
    found = {}
    for seed in chosen["seed"].unique().tolist():
        picks = chosen[chosen["seed"] == seed]
        parts = {
            client: bootstrap[method, seed][client]
            for method, client in picks[["method", "client"]].itertuples(index=False)
            if (method, seed) in bootstrap
        }
        if len(parts) == len(picks):
            found[name, seed] = pd.concat(parts, axis=1)
    return found
