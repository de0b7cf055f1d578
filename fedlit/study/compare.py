"""``fedlit compare``: runs the missing jobs of a study, and writes its tables and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from fedlit.answers.shown import summary
from fedlit.data.table import ClientTable
from fedlit.data.targets import has_classes
from fedlit.errors import ConfigError, RunError, expect
from fedlit.explain.clusters import CLUSTERS
from fedlit.files import write_frames, write_text
from fedlit.jobs.job import Job, digest_of
from fedlit.jobs.runner import nothing
from fedlit.show.shown import Grid, Shown
from fedlit.study.basis import Basis
from fedlit.study.collect import collect
from fedlit.study.contents import installed
from fedlit.study.findings import MANY, Findings
from fedlit.study.lift import LEFT_OUT
from fedlit.study.notes import training_notes
from fedlit.study.parse import load_study
from fedlit.study.plan import plan_jobs
from fedlit.study.report import guard_notes, one_class_notes, sections, title_of_report
from fedlit.study.resolve import ResolvedStudy, resolve
from fedlit.study.runner import locked, run_jobs, slots_of
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
    workers: int | None = None,
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
        workers: the number of simultaneous runs, each with its share of the cores; by default one per
            core, or fewer if memory is short.
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
        >>> from fedlit import Method, Study
        >>> local = Method("quickstart.yaml", set={"exchange.federated": [], "trainer.max_epochs": 1})
        >>> models = {"logistic_regression": {"C": [1.0]}}
        >>> study = Study({"local": local}, seeds=[1], baselines=models, metrics=["auroc"])
        >>> found = compare(study, out=tempfile.mkdtemp(), workers=1, quiet=True)
        >>> sorted(found.collected.results["method"].unique())
        ['local', 'logistic_regression']
    """
    say = nothing if quiet else say
    expect(workers is None or workers > 0, "--workers", "at least 1", workers)
    file = load_study(study) if isinstance(study, str) else study
    whole, folder = _placed(file, scenario, out)
    part = whole.restricted(methods, baselines)
    if part.about != whole.about:
        sentence = part.about.removeprefix(whole.about).strip()
        say(f"{sentence} Report and tables in {folder} will show this part.")
    numbers = parse_seeds(part.seeds if seeds is None else seeds)
    with locked(folder):
        basis = Basis(part, folder)
        resolved = resolve(part, None, basis.rows.tasks)
        slots = slots_of(workers, say)
        complete, tuned = tune(resolved, folder, basis, slots, say)
        planned = plan_jobs(complete, numbers, folder, basis)
        _say_without(planned, say)
        notes = _notes_before(complete, basis, say)
        failures = run_jobs(planned, slots, say)
        if len(failures) == len(planned):
            errors = "\n".join(f"  {name}: {error}" for name, error in failures.items())
            raise RunError(
                f"expected at least one run to come to its end, found that all failed:\n{errors}"
            )
        collected = collect(complete, planned)
        rows = basis.rows
        notes += [*one_class_notes(complete, collected), *guard_notes(complete, collected)]
        comparison = Comparison.of(
            complete,
            numbers,
            collected,
            folder,
            failures=failures,
            predicted={table.name: _predicted(table) for table in rows.tables},
            notes=notes,
            blocks=rows.findings.blocks,
            supplements=supplements(complete, planned, collected, rows.score, rows.source),
        )
        write(comparison)
        if len(tuned):
            write_frames({folder / TUNED: tuned})
    return comparison


def _placed(
    study: StudyFile, scenario: str | None, out: str | Path | None
) -> tuple[StudyFile, Path]:
    """Return the study under its scenario, and the scenario's folder."""
    default = Path("lightning_logs", "studies", study.name)
    folder = Path(default if out is None else out).absolute()
    if scenario is not None:
        return study.of(scenario), folder / scenario
    if study.scenarios:
        raise ConfigError(
            f"{study.name}: expected one of the scenarios {', '.join(study.scenarios)}, found "
            "None; give scenario"
        )
    return study, folder


def _say_without(jobs: Sequence[Job], say: Callable[[str], None]) -> None:
    """Say how many runs leave-one-out adds."""
    count = sum(job.left_out is not None for job in jobs)
    if count:
        say(
            f"leave_one_out: {count} further runs, each federation without one of its clients in "
            "turn"
        )


def _notes_before(study: ResolvedStudy, basis: Basis, say: Callable[[str], None]) -> list[str]:
    """Return what should be known before the first run, and say it."""
    rows = basis.rows
    notes = [*training_notes(study, basis), *rows.findings.sentences(), *rows.open_questions]
    # The notes were the last to ask for contents of configurations.
    basis.contents.keep()
    for note in notes:
        say(f"Note: {note}.")
    return notes


def _predicted(table: ClientTable) -> str:
    """Describe a table's target in words."""
    target = table.target
    if isinstance(target.name, tuple):
        return f"{', '.join(target.name)} (yes or no, each)"
    name = "a target without a name" if target.name is None else str(target.name)
    if has_classes(table):
        return f"{name} ({target.nunique()} classes)"
    if target.dtype.kind in "biuf":
        return f"{name} (a number)"
    return f"{name} (a label for each position)"


def write(comparison: Comparison) -> None:
    """Write tables and report into the study's folder."""
    folder = comparison.folder
    tables = _tables(comparison)
    names = ["tuned.csv", CLUSTERS, LEFT_OUT, *(f"{name}.csv" for name in SUPPLEMENTS)]
    for name in names:
        if name not in tables:
            # It may be of the study before it was changed.
            (folder / name).unlink(missing_ok=True)
    write_frames({folder / name: frame for name, frame in tables.items()})
    report = sections(comparison)
    title = title_of_report(comparison)
    text = markdown(title, report)
    write_text(text, folder / "tables.md")
    page = folder / "report.html"
    mark = f"<!-- {_digest_of_page(comparison, text)} -->\n"
    # The pictures of the page take seconds, so that it is written only if something has changed.
    if not page.is_file() or not page.read_text(encoding="utf-8").endswith(mark):
        write_text(html(title, report) + mark, page)


def _tables(comparison: Comparison) -> dict[str, pd.DataFrame]:
    """Map the name of each file to its table. Tables without rows are left out."""
    collected = comparison.collected
    order = {name: position for position, name in enumerate(comparison.study.labels)}
    results = collected.scores[collected.scores["without"] == ""].sort_values(
        ["method", "seed", "client", "split", "metric"],
        key=lambda column: column.map(order) if column.name == "method" else column,
    )
    results = results[["study", "method", "seed", "client", "split", "metric", "value"]]
    tuned = collected.tuned[collected.tuned["without"] == ""]
    tuned = tuned[["best", "seed", "client", "settings"]].rename(columns={"best": "method"})
    optional = {"tuned.csv": tuned, CLUSTERS: collected.clusters, LEFT_OUT: comparison.left_out}
    optional |= {f"{beside.name}.csv": beside.table for beside in comparison.supplements}
    return {
        "results.csv": results,
        "results.parquet": results,
        "lift.csv": comparison.lift,
        **{name: table for name, table in optional.items() if len(table)},
    }


def _digest_of_page(comparison: Comparison, text: str) -> str:
    """Return a hash that changes with anything that the page shows."""
    content = {
        "text": text,
        "matters": comparison.study.matters,
        "bars": repr([answer.bar for answer in comparison.answers]),
        "records": comparison.collected.records.to_dict("records"),
        "packages": installed(),
    }
    return digest_of(content)
