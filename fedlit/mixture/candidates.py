"""The candidates that are worth trying for given tables: local and federated models, as separate
configurations.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from fedlit import yaml_text
from fedlit.data.agree import agree, facts
from fedlit.data.common import kind_conflict
from fedlit.data.examine.ledger import answerable_findings
from fedlit.data.findings import Findings
from fedlit.data.terms import Terms
from fedlit.errors import Told, expect
from fedlit.outcomes import outcome_type
from fedlit.run.run import Run
from fedlit.show.text import shorten
from fedlit.tasks.go_alone import LINEAR, TREES

ENOUGH = 500
"""With fewer rows for training and validation a client's own network is not tried."""
_LARGE = 2000
# keys of data that say which tables; others say how
_KEPT = ("source", "columns", "mutations", "known", "leave_out")


@dataclass(frozen=True)
class Survey:
    """What is known about tables before anything is tried: names and kinds of columns, numbers of
    rows, tasks.

    Attributes:
        rows: maps each client to its number of rows for training and validation.
        shared: maps each client to the number of its columns that another client has as well, by
            name and kind.
        columns: maps each client to its number of columns.
        tasks: the names of the clients' tasks.
        models: the names of the local baselines that some client's task has.
        scores: the names of the scores that may decide at some client.
        notes: what the user should know.
        findings: the findings about the tables.
        weighted: whether rows of some client have weights.
        differing: the columns of one name that differ in kind between clients.
        mixed_labels: whether labels are text at some clients and numbers at others.
    """

    rows: dict[str, int]
    shared: dict[str, int]
    columns: dict[str, int]
    tasks: frozenset[str]
    models: frozenset[str]
    scores: frozenset[str]
    notes: tuple[str, ...] = ()
    findings: Findings = field(default_factory=Findings)
    weighted: bool = False
    differing: tuple[str, ...] = ()
    mixed_labels: bool = False


@dataclass(frozen=True)
class Candidate:
    """A part that may enter clients' mixtures.

    Attributes:
        label: the name in a sentence for the user.
        content: its configuration; None for the user's own configuration, and for a local baseline.
        go_alone: the name of a local baseline of a task; None for a configuration.
        grid: the settings of that model to choose from; its default grid if None.
    """

    label: str
    content: dict[str, Any] | None = None
    go_alone: str | None = None
    grid: dict[str, list[Any]] | None = None


def survey(run: Run) -> Survey:
    """Examine the tables of a run that has not been trained."""
    tables = run.data.tables(keep=True)
    run.data.setup()
    specs = {spec.name: spec for spec in run.data.specs}
    # Columns of one name and kind meet; those of several kinds do not.
    terms = Terms(bins="agreed")
    sent = {table.name: facts(table, terms) for table in tables}
    agreement = agree(sent, terms)
    kinds = {client: answer.get("columns", {}) for client, answer in sent.items()}
    names = set(itertools.chain.from_iterable(kinds.values()))
    differing = sorted(column for column in names if kind_conflict(kinds, column))
    shared = dict.fromkeys((table.name for table in tables), 0)
    for table in tables:
        for column in table.features:
            match = agreement.shared(table.name, str(column))
            shared[table.name] += match is not None and len(match.clients) > 1
    notes = list(agreement.apart)
    if differing:
        notes.append(
            "the pooled linear model and the forest are tried without columns that differ in kind "
            f"between clients: {shorten(differing)}"
        )
    targets = {table.name: table.target_title for table in tables}
    if len(set(targets.values())) > 1:
        listing = shorten([f"{target} at {client}" for client, target in targets.items()], 4)
        notes.append(
            f"targets are called differently ({listing}): whether their labels mean the same, fedlit "
            "cannot see"
        )
    models = set[str]()
    deciding = set[str]()
    are_text = set[bool]()
    for spec in specs.values():
        models |= set(spec.task.go_alone)
        deciding.update(score.name for score in spec.task.scores if score.may_decide)
        if spec.task.outcome.one_label:
            are_text.add(isinstance(spec.task.classes[0], str))
    return Survey(
        {name: spec.rows["train"] + spec.rows["validation"] for name, spec in specs.items()},
        shared,
        {table.name: table.features.shape[1] for table in tables},
        frozenset(spec.task.name for spec in specs.values()),
        frozenset(models),
        frozenset(deciding),
        tuple(notes),
        answerable_findings(tables, run.data.source, run.data.known),
        any(table.weights is not None for table in tables),
        tuple(differing),
        len(are_text) > 1,
    )


def candidates_of(
    raw: Mapping[str, Any], surveyed: Survey
) -> tuple[dict[str, Candidate], dict[str, str]]:
    """Map each candidate's name to the candidate, with the cheapest first, and each other name to
    the reason why it is not tried.

    Args:
        raw: the user's configuration.
        surveyed: the survey of its tables.

    Raises:
        ConfigError: no client's task has a local baseline, so that there is nothing to compare
            with.
    """
    received = Told(f"{', '.join(sorted(surveyed.tasks))}: this task has no local baselines")
    do = (
        "compare methods by fedlit compare; each client's own network (exchange.federated: []) is "
        "the reference"
    )
    expected = "a task with local baselines to compare with"
    expect(bool(surveyed.models), "fedlit recommend", expected, received, do)
    large = max(surveyed.rows.values()) >= _LARGE
    out = dict[str, str]()
    candidates = _local(surveyed.models, large=large)
    federated = len(surveyed.rows) > 1
    shared = any(surveyed.shared.values())
    if not federated:
        out["logistic, forest, tabm"] = "there is only one client"
    elif not shared:
        out["logistic, forest"] = (
            "no column is shared by two clients; give columns that mean the same one name"
        )
    elif len(surveyed.tasks) == 1 and all(map(_of_curves, surveyed.tasks)):
        cox = configuration("cox", raw, without=surveyed.differing)
        candidates["cox"] = Candidate("the federated Cox model", cox)
        out["logistic, forest"] = "for times to an event, the Cox model is tried instead"
    elif len(surveyed.tasks) > 1 or not all(map(_one_label_or_number, surveyed.tasks)):
        out["logistic, forest"] = (
            "it takes clients that all predict one label, or all one number; tasks are "
            + ", ".join(sorted(surveyed.tasks))
        )
    elif surveyed.mixed_labels:
        out["logistic, forest"] = (
            "labels are text at some clients and numbers at others; answer what fedlit check asks "
            "about them"
        )
    else:
        pooled = configuration("logistic", raw, without=surveyed.differing)
        candidates["logistic"] = Candidate("the pooled linear model", pooled)
        forest = configuration("forest", raw, large, without=surveyed.differing)
        candidates["forest"] = Candidate("the forest", forest)
    if surveyed.weighted and candidates.pop("forest", None) is not None:
        out["forest"] = "its trees have no use for weights of rows (data.source.weight)"
    if federated:
        candidates["tabm"] = Candidate("the federated TabM", configuration("tabm", raw, large))
    few = [name for name, count in surveyed.rows.items() if count < ENOUGH]
    if len(few) < len(surveyed.rows):
        candidates["network"] = Candidate("its own TabM", configuration("network", raw, large, few))
    else:
        out["network"] = f"no client has {ENOUGH} rows for a network of its own"
    if ("model" in raw or "exchange" in raw) and (raw.get("data") or {}).get("pool"):
        out["yours"] = "data.pool puts all rows into one place, so it is no federation"
    elif "model" in raw or "exchange" in raw:
        candidates["yours"] = Candidate("the method of your configuration")
    return candidates, out


def _local(models: Collection[str], *, large: bool) -> dict[str, Candidate]:
    """Return the local baselines that are tried, of those that clients' tasks have."""
    linear = [name for name in LINEAR if name in models]
    candidates = {
        name if len(linear) > 1 else "linear": Candidate("its own linear model", go_alone=name)
        for name in linear
    }
    if TREES[0] in models:
        grid: dict[str, list[Any]] = {
            "n_estimators": [200],
            "min_samples_leaf": [1],
            "max_features": ["sqrt", None],
        }
        small: dict[str, list[Any]] = {
            "n_estimators": [100],
            "min_samples_leaf": [1, 5],
            "max_features": ["sqrt"],
        }
        tried = grid if large else small
        candidates["trees"] = Candidate("its own trees", go_alone=TREES[0], grid=tried)
    if not candidates:  # a task with other local baselines than most
        for name in sorted(models):
            candidates[name] = Candidate(f"its own {name}", go_alone=name)
    return candidates


def _one_label_or_number(task: str) -> bool:
    """Return whether the clients of a task can have a linear model and a forest in common."""
    outcome = outcome_type(task)
    return outcome is not None and (
        outcome.one_label or (outcome.number and outcome.family == "gaussian")
    )


def _of_curves(task: str) -> bool:
    """Return whether a task predicts curves, from a time and an event."""
    outcome = outcome_type(task)
    return outcome is not None and outcome.estimator == "Curves"


def configuration(
    name: str,
    raw: Mapping[str, Any],
    large: bool = False,
    few: Collection[str] = (),
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Return a configuration of ``candidates.yaml`` with the tables of another configuration.

    Args:
        name: the name of the template.
        raw: the user's configuration.
        large: whether a client has many rows.
        few: the clients that are left out.
        without: the columns that are left out.
    """
    template = templates()[name]
    sizes = {size: template.pop(size, {}) for size in ("small", "large")}
    for key, value in sizes["large" if large else "small"].items():
        *groups, last = key.split(".")
        reduce(lambda tree, group: tree[group], groups, template)[last] = value
    data = raw.get("data") or {}
    tables = {key: data[key] for key in _KEPT if data.get(key) is not None}
    if few:
        tables["leave_out"] = [*(tables.get("leave_out") or []), *few]
    if without:
        excluded = [f"!{glob.escape(column)}" for column in without]
        tables["columns"] = [*(tables.get("columns") or ["*"]), *excluded]
    return {**template, "data": {**tables, **template["data"]}}


def templates() -> dict[str, dict[str, Any]]:
    """Return the content of ``candidates.yaml``."""
    content: dict[str, dict[str, Any]] = yaml_text.load(
        (Path(__file__).parent / "candidates.yaml").read_text("utf-8")
    )
    return content
