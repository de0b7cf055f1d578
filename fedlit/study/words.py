"""Sentences about a study: what is predicted from how many rows, what the words of its tables mean, and how it was
made.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pandas as pd

from fedlit.exchange import named
from fedlit.show.text import shorten
from fedlit.study.baselines import FEW_FOLDS
from fedlit.study.collect import Collected
from fedlit.study.findings import Findings
from fedlit.study.frames import OUT_OF_FOLD
from fedlit.study.study import Study

_MOST_NAMED = 6  # methods in one line


def clients_table(found: Findings) -> pd.DataFrame:
    """Return what is predicted, and each client's numbers of rows (with the first seed), which a reader must know
    before any score.
    """
    records = found.collected.records.to_dict("records")
    own = next((record for record in records if record["method"] == found.study.reference), {})
    splits, trained = own.get("rows"), own.get("train_rows")
    rows = []
    for client in found.extremes:
        counts = ["–"] * 3
        if isinstance(splits, dict) and isinstance(trained, dict) and client in splits:
            tested = [splits[client].get(split, {"rows": 0})["rows"] for split in ("validation", "test")]
            counts = [f"{count:,}" for count in (trained[client], *tested)]
        rows.append([found.predicted.get(client, "–"), *counts])
    return pd.DataFrame(rows, found.extremes, ["predicted", "training rows", "validation rows", "test rows"])


def glossary() -> list[str]:
    """Return the terms of tables with their meanings, from the page ``docs/glossary.md``: a term in bold, and a text.

    Example:
        >>> next(line for line in glossary() if line.startswith("**lift**"))[:31]
        '**lift**: the score of a method'
    """
    here = Path(__file__)
    shipped = here.with_name("glossary.md")  # in a wheel
    page = shipped if shipped.is_file() else here.parents[2] / "docs" / "glossary.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("- ") for line in lines if line.startswith("- **")]


def _judged(found: Findings) -> list[str]:
    """Describe the rows by which models alone were chosen, if these were not only validation rows."""
    study, results = found.study, found.collected.results
    if not (results["split"] == OUT_OF_FOLD).any():
        return []
    if study.folds:
        rows = f"trained on {study.folds} folds of training and validation rows, and chosen by out-of-fold predictions"
    else:
        own = sorted(set(results.loc[results["split"] == OUT_OF_FOLD, "client"]))
        rows = (
            f"chosen by out-of-fold predictions on training rows ({FEW_FOLDS} folds) at {', '.join(own)}, with fewer "
            f"than {study.small} validation rows"
        )
    return [f"Local baselines were {rows}; the best of them is compared with networks trained alone on validation rows"]


def guard_notes(study: Study, collected: Collected) -> list[str]:
    """Return notes on the clients that were left out of exchanges, or watched, by method, over all seeds."""
    notes = []
    for method, records in collected.records.groupby("method", sort=False):
        found: dict[str, Counter[str]] = {}
        for own in records.to_dict("records"):
            for client, counts in (own["guarded"] if isinstance(own.get("guarded"), dict) else {}).items():
                found.setdefault(client, Counter()).update(counts)
        notes += [f"{study.labels[str(method)]}: {line}" for line in named.words(found)]
    return notes


def one_class_notes(study: Study, collected: Collected) -> list[str]:
    """Return notes on models that predict one class for all test rows of a client, because their scores mean little."""
    runs, found = collected.records["method"].value_counts(), dict[str, Counter[str]]()
    for own in collected.records.to_dict("records"):
        for client in own["one_class"]:
            found.setdefault(client, Counter())[own["method"]] += 1
    return [
        f"{client}: all test rows are predicted as one class by "
        + shorten(
            [f"{study.labels[own]} ({count} of {runs[own]} runs)" for own, count in times.most_common()], _MOST_NAMED
        )
        + ": at the threshold, these models do not distinguish rows"
        for client, times in sorted(found.items())
    ]


def paper_notes(study: Study) -> list[str]:
    """Return the source of the paper's figures, and how their convention differs from ours: first for all methods, then
    for those marked †.
    """
    if study.paper is None:
        return []
    remarks = study.paper.remarks
    source = f"Paper: {study.paper.source}. In brackets: ours minus the paper's."
    own = [f"† {label}: {remarks[method]}" for method, label in study.labels.items() if method in remarks]
    return [source, *([remarks["all"]] if "all" in remarks else []), *own]


def provenance(found: Findings) -> list[str]:
    """Return when and with what versions on which machines the study was run, one line each."""
    records, lacking = found.collected.records, found.collected.lacking
    versions = [", ".join(f"{name} {number}" for name, number in own.items()) for own in records["versions"]]
    machines = [", ".join([own["processor"], f"{own['cores']} cores", *own["gpus"]]) for own in records["machine"]]
    first, last = min(records["finished"])[:10], max(records["finished"])[:10]
    done = len(records) + lacking
    lines = [f"{done} of {done + len(found.failures)} runs, finished {first} to {last}"]
    lines += [f"{lacking} of these were federations without one of their clients (leave_one_out)"] if lacking else []
    lines += _judged(found)
    lines += [f"Versions: {own}" for own in dict.fromkeys(versions)]
    lines += [f"Machine: {own}" for own in dict.fromkeys(machines)]
    if "without" in records:
        without = records.dropna(subset="without").groupby("method", sort=False)["without"].first()
        lines += [
            f"{found.study.labels[str(name)]}: does not fit the task of {', '.join(own)}"
            for name, own in without.items()
        ]
    return lines


def times(found: Findings) -> pd.DataFrame:
    """Return, for each method, its number of runs, their mean time, and the cost of an exchange."""
    records = found.collected.records
    told = records.reindex(columns=["exchange"])["exchange"]
    costs = pd.DataFrame([own if isinstance(own, dict) else {} for own in told], records.index)
    costs = costs.reindex(columns=["rounds", "seconds", "bytes"]).astype(float)  # of no round NaN
    each = pd.DataFrame({
        "method": records["method"],
        "s a run": records["seconds"].astype(float),
        "s an exchange": costs["seconds"] / costs["rounds"],
        "MB an exchange": costs["bytes"] / costs["rounds"] / 1e6,
    })  # fmt: skip
    means = each.groupby("method").mean().map(lambda value: f"{value:.3g}" if math.isfinite(value) else "–")
    means.insert(0, "runs", each["method"].value_counts().map(str))
    return means.reindex([method for method in found.study.labels if method in means.index]).rename(found.study.labels)
