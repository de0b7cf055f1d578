"""``fedlit compare``: run what is missing of a study, and write its tables and report."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedlit.errors import ConfigError, RunError
from fedlit.explain.clusters import CLUSTERS
from fedlit.study.collect import Collected, collect
from fedlit.study.lift import MEAN, WORST, Answer, Scores, answers, estimates, lifts
from fedlit.study.report import write_report
from fedlit.study.runner import default_jobs, locked, run_jobs
from fedlit.study.runs import plan_jobs
from fedlit.study.study import METRICS, Study, load_study, parse_seeds
from fedlit.study.tables import answer_words, cluster_table, each_of, lift_table, markdown_tables, score_table

__all__ = ["Comparison", "compare"]

_MOST_PRINTED = 12  # methods in a table beside the main ones


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a study found.

    Attributes:
        study: what was compared.
        seeds: with which seeds.
        collected: results, records, curves.
        estimates: one row per metric, method and client.
        lift: one row per metric, reference, method and client.
        answers: for each client, whether federation pays.
        failures: run → its error.
        folder: where the files are.
    """

    study: Study
    seeds: list[int]
    collected: Collected
    estimates: pd.DataFrame
    lift: pd.DataFrame
    answers: list[Answer]
    failures: dict[str, str]
    folder: Path

    @property
    def clients(self) -> list[str]:
        """Of tables: the clients, their mean, the worst."""
        return [*self.collected.clients, MEAN, WORST]

    def __str__(self) -> str:
        metric = self.study.metrics[0]
        tables = [
            f"{METRICS[metric]}, %:",
            str(score_table(self.study, self.estimates, metric, self.clients, short=True)),
        ]
        for reference in self.lift["reference"].unique():
            tables.append(f"Lift over {self.study.labels[reference]}, percentage points:")
            tables.append(str(lift_table(self.study, self.lift, metric, reference, self.clients)))
        together = cluster_table(self.study, self.collected)
        if together is not None and len(together.rows) <= _MOST_PRINTED:
            tables += ["Who belongs together:", str(together)]
        lines = [f"{answer.client}: {': '.join(answer_words(self.study, answer))}" for answer in self.answers]
        return "\n\n".join([*tables, *(["Should this client join?", "\n".join(lines)] if lines else [])])


def compare(
    study: str | Study,
    *,
    scenario: str | None = None,
    seeds: str | Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
    baselines: Iterable[str] | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Comparison:
    """Train every method with every seed, fit every go-alone model, and say what federation gained.

    What a folder holds already is not run again; a run that was cut short goes on from its last checkpoint.

    Args:
        study: its name, its path, or a :class:`~fedlit.study.study.Study`.
        scenario: under which of its scenarios; None where it has none.
        seeds: in place of the study's.
        methods: these only; the reference is always among them.
        baselines: these only.
        jobs: runs at once, each with its share of the cores; by default one per core, at most 4.
        out: the study's folder; by default ``lightning_logs/studies/<name>``.
        quiet: print nothing.

    Returns:
        The results, which also lie in the folder as ``results.csv``, ``results.parquet``, ``lift.csv``, ``tables.md``
        and ``report.html``; where methods are tuned, also what was chosen, as ``tuned.csv``; where methods tell clients
        apart, also who belongs together, as ``clusters.csv``.

    Raises:
        ConfigError: the study cannot be run.
        RunError: no run came to its end, or methods were scored on different rows.

    Example:
        >>> import tempfile
        >>> from fedlit.study.study import Method
        >>> local = Method("quickstart.yaml", set={"exchange.federated": [], "trainer.max_epochs": 1})
        >>> study = Study({"local": local}, seeds=[1], baselines={"logistic_regression": {"C": [1.0]}})
        >>> found = compare(study, out=tempfile.mkdtemp(), jobs=1, quiet=True)
        >>> sorted(found.collected.results["method"].unique())
        ['best_alone', 'local', 'logistic_regression']
    """
    study = load_study(study) if isinstance(study, str) else study
    folder = Path(out if out is not None else Path("lightning_logs", "studies", study.name)).absolute()
    if scenario is not None:
        study, folder = study.of(scenario), folder / scenario
    elif study.scenarios:
        known = ", ".join(study.scenarios)
        raise ConfigError(f"{study.name}: expected one of the scenarios {known}, found none chosen; give scenario")
    study = study.restricted(methods, baselines)
    numbers = study.seeds if seeds is None else parse_seeds(seeds)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs: expected at least 1, found {jobs}")
    with locked(folder):
        planned = plan_jobs(study, numbers, folder)
        say = (lambda text: None) if quiet else print
        failures = run_jobs(planned, jobs or default_jobs(), quiet=quiet, say=say)
        if len(failures) == len(planned):
            errors = "\n".join(f"  {name}: {error}" for name, error in failures.items())
            raise RunError(f"expected at least one run to come to its end, found that all failed:\n{errors}")
        collected = collect(study, planned)
        scores = Scores(collected)
        found = Comparison(
            study=study,
            seeds=numbers,
            collected=collected,
            estimates=estimates(study, scores),
            lift=lifts(study, scores),
            answers=answers(study, scores),
            failures=failures,
            folder=folder,
        )
        _write(found)
    return found


def _write(found: Comparison) -> None:
    results, folder = found.collected.results, found.folder
    results.to_csv(folder / "results.csv", index=False)
    results.to_parquet(folder / "results.parquet", index=False)
    found.lift.to_csv(folder / "lift.csv", index=False)
    for name, frame in (("tuned.csv", found.collected.tuned), (CLUSTERS, found.collected.clusters)):
        if len(frame):
            frame.to_csv(folder / name, index=False)
        else:
            (folder / name).unlink(missing_ok=True)  # of the study before it was changed
    lines = provenance(found)
    text = markdown_tables(found, lines)
    (folder / "tables.md").write_text(text, encoding="utf-8")
    write_report(found, folder / "report.html", lines)


def provenance(found: Comparison) -> list[str]:
    """When, with what, on what, how long: one line each."""
    records = found.collected.records
    versions = [", ".join(f"{name} {number}" for name, number in own.items()) for own in records["versions"]]
    machines = [
        f"{own['processor']}, {own['cores']} cores" + "".join(f", {gpu}" for gpu in own["gpus"])
        for own in records["machine"]
    ]
    first, last = min(records["finished"])[:10], max(records["finished"])[:10]
    lines = [f"{len(records)} of {len(records) + len(found.failures)} runs, finished {first} to {last}"]
    lines += [f"Versions: {own}" for own in dict.fromkeys(versions)]
    lines += [f"Machine: {own}" for own in dict.fromkeys(machines)]
    times = records["seconds"].astype(float).groupby(records["method"], sort=False).mean()
    shown = [
        f"{found.study.labels[str(method)]} {seconds:.1f} s{each_of(found.study, str(method))}"
        for method, seconds in times.items()
        if math.isfinite(seconds)
    ]
    lines.append(
        "Mean time of a run (training; for go-alone models fitting, choosing and scoring): " + ", ".join(shown)
    )
    lines += [f"FAILED {name}: {error}" for name, error in found.failures.items()]
    return lines
