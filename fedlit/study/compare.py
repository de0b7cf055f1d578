"""``fedlit compare``: runs the missing jobs of a study, and writes its tables and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from fedlit.data.table import ClientTable
from fedlit.data.targets import has_classes
from fedlit.errors import RunError, expect
from fedlit.explain.clusters import CLUSTERS
from fedlit.files import write_frames, write_text
from fedlit.jobs.job import digest_of
from fedlit.jobs.runner import nothing
from fedlit.show.shown import Grid, Shown
from fedlit.study.basis import Basis
from fedlit.study.collect import collect
from fedlit.study.contents import installed
from fedlit.study.findings import MANY, Findings, summary
from fedlit.study.lift import LEFT_OUT
from fedlit.study.notes import training_notes
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.report import guard_notes, one_class_notes, sections, title_of_report
from fedlit.study.resolve import resolve
from fedlit.study.runner import default_jobs, locked, run_jobs
from fedlit.study.sections import html, markdown, terminal
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import StudyFile
from fedlit.study.supplements import supplements
from fedlit.study.tune import TUNED, tune
from fedlit.train.supplement import SUPPLEMENTS


class Comparison(Shown, Findings):
    """The findings of a study. As text, it is what a terminal shows."""

    def parts(self) -> Iterable[str | Grid]:
        """Yield warnings, a sentence on all clients, each client's answer, the main score, and any
        clusters.
        """
        for note in self.notes:
            yield f"Note: {note}."
        if self.notes:
            yield ""
        if self.answers:
            yield from (f"{summary(self.answers, few=len(self.answers) <= MANY)}.", "")
        yield from terminal(sections(self))


def compare(
    study: str | StudyFile,
    *,
    scenario: str | None = None,
    seeds: str | Iterable[int] | None = None,
    methods: Iterable[str] | None = None,
    baselines: Iterable[str] | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    say: Callable[[str], None] = print,
) -> Comparison:
    """Train every method with every seed, fit every local baseline, and report what federation
    gained.

    Runs that are already in the folder are not repeated; an interrupted run is resumed from its
    last checkpoint.

    Args:
        study: its name, its path, or a :class:`~fedlit.study.study.StudyFile`.
        scenario: the scenario of the study to run under; None if it has none.
        seeds: the seeds, instead of the study's.
        methods: the methods to train, if not all; the reference is always among them.
        baselines: the local baselines to fit, if not all.
        jobs: the number of simultaneous runs, each with its share of the cores; by default one per
            core, at most 4.
        out: the study's folder; by default ``lightning_logs/studies/<name>``.
        quiet: print nothing.
        say: the function that prints messages, unless ``quiet``.

    Returns:
        The results, which are also written to the folder as ``results.csv``, ``results.parquet``,
        ``lift.csv``, ``tables.md`` and ``report.html``; if methods are tuned, also the choices, as
        ``tuned.csv``; if methods find clusters, also the clusters, as ``clusters.csv``; with
        ``leave_one_out`` also what the others gain by each client, as ``leave_one_out.csv``.

    Raises:
        ConfigError: the study cannot be run.
        RunError: no run came to its end, or methods were scored on different rows.

    Example:
        >>> import tempfile
        >>> from fedlit import Method
        >>> local = Method("quickstart.yaml", set={"exchange.federated": [], "trainer.max_epochs": 1})
        >>> models = {"logistic_regression": {"C": [1.0]}}
        >>> study = Study({"local": local}, seeds=[1], baselines=models, metrics=["auroc"])
        >>> found = compare(study, out=tempfile.mkdtemp(), jobs=1, quiet=True)
        >>> sorted(found.collected.results["method"].unique())
        ['local', 'logistic_regression']
    """
    say = nothing if quiet else say
    file = load_study(study) if isinstance(study, str) else study
    whole, folder = _placed(file, scenario, out)
    part = whole.restricted(methods, baselines)
    if part.about != whole.about:
        say(
            f"{part.about.removeprefix(whole.about).strip()} Report and tables in {folder} will "
            "show this part."
        )
    numbers = parse_seeds(part.seeds if seeds is None else seeds)
    expect(jobs is None or jobs > 0, "--jobs", "at least 1", jobs)
    with locked(folder):
        basis = Basis(part, folder)
        rows = basis.rows
        resolved = resolve(part, None, rows.tasks)
        complete, tuned = tune(resolved, folder, basis, jobs or default_jobs(), say)
        planned = plan_jobs(complete, numbers, folder, basis)
        if complete.leave_one_out:
            without_client = sum(job.left_out is not None for job in planned)
            say(
                f"leave_one_out: {without_client} further runs, each federation without one of its clients "
                "in turn"
            )
        notes = [
            *training_notes(complete, basis),
            *rows.findings.sentences(),
            *rows.open_questions,
        ]
        basis.contents.keep()
        for note in notes:
            say(f"{note}.")
        failures = run_jobs(planned, jobs or default_jobs(), say)
        if len(failures) == len(planned):
            errors = "\n".join(f"  {name}: {error}" for name, error in failures.items())
            raise RunError(
                f"expected at least one run to come to its end, found that all failed:\n{errors}"
            )
        collected = collect(complete, planned)
        notes += [*one_class_notes(complete, collected), *guard_notes(complete, collected)]
        predicted = {table.name: _predicted(table) for table in rows.tables}
        details = {
            "failures": failures,
            "predicted": predicted,
            "notes": notes,
            "blocks": rows.findings.blocks,
        }
        details["supplements"] = supplements(complete, planned, collected, rows.score, rows.source)
        comparison = Comparison.of(complete, numbers, collected, folder, **details)
        write(comparison)
        if len(tuned):
            write_frames({folder / TUNED: tuned})
    return comparison


def _placed(
    study: StudyFile, scenario: str | None, out: str | Path | None
) -> tuple[StudyFile, Path]:
    """Return the study under its scenario, and the scenario's folder."""
    folder = Path(
        out if out is not None else Path("lightning_logs", "studies", study.name)
    ).absolute()
    if scenario is not None:
        return study.of(scenario), folder / scenario
    expected = f"one of the scenarios {', '.join(study.scenarios)}"
    expect(not study.scenarios, study.name, expected, scenario, "give scenario")
    return study, folder


def _predicted(table: ClientTable) -> str:
    """Describe a table's target in words."""
    target = table.target
    if isinstance(target.name, tuple):
        return f"{', '.join(target.name)} (yes or no, each)"
    name = "a target without a name" if target.name is None else str(target.name)
    if has_classes(table):
        return f"{name} ({target.nunique()} classes)"
    return (
        f"{name} (a number)"
        if target.dtype.kind in "biuf"
        else f"{name} (a label for each position)"
    )


def write(comparison: Comparison) -> None:
    """Write tables and report into the study's folder."""
    collected = comparison.collected
    folder = comparison.folder
    order = {name: position for position, name in enumerate(comparison.study.labels)}
    results = collected.scores[collected.scores["without"] == ""].sort_values(
        ["method", "seed", "client", "split", "metric"],
        key=lambda column: column.map(order) if column.name == "method" else column,
    )
    results = results[["study", "method", "seed", "client", "split", "metric", "value"]]
    tables = {"results.csv": results, "results.parquet": results, "lift.csv": comparison.lift}
    tuned = collected.tuned[collected.tuned["without"] == ""]
    tuned = tuned[["best", "seed", "client", "settings"]].rename(columns={"best": "method"})
    for name, frame in (
        ("tuned.csv", tuned),
        (CLUSTERS, collected.clusters),
        (LEFT_OUT, comparison.left_out),
    ):
        if len(frame):
            tables[name] = frame
        else:
            (folder / name).unlink(missing_ok=True)  # of the study before it was changed
    for name in SUPPLEMENTS:
        (folder / f"{name}.csv").unlink(missing_ok=True)
    tables |= {f"{supplement.name}.csv": supplement.table for supplement in comparison.supplements}
    write_frames({folder / name: frame for name, frame in tables.items()})
    report = sections(comparison)
    title = title_of_report(comparison)
    text = markdown(title, report)
    page = folder / "report.html"
    write_text(text, folder / "tables.md")
    bars = repr([comparison.study.matters, [supplement.bar for supplement in comparison.answers]])
    mark = (
        f"<!-- {digest_of([text, bars, collected.records.to_dict('records'), installed()])} -->\n"
    )
    # its pictures take seconds
    if not page.is_file() or not page.read_text(encoding="utf-8").endswith(mark):
        write_text(html(title, report) + mark, page)
