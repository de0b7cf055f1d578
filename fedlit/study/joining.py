"""``fedlit add-client``: lets a client join a trained run, and measures what it gains over training
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from fedlit.answers.answer import Answer
from fedlit.errors import RunError, Told, expect
from fedlit.jobs.job import Train
from fedlit.jobs.runner import nothing
from fedlit.run.config import shown
from fedlit.run.joining import Joining, prepare
from fedlit.run.run import Run
from fedlit.show.shown import Grid, Shown
from fedlit.show.shown import say as say_aside
from fedlit.show.text import Verbatim
from fedlit.study.collect import collect
from fedlit.study.compare import Comparison, write
from fedlit.study.method import Method
from fedlit.study.plan import jobs_of, planned_alone
from fedlit.study.resolve import ResolvedStudy, resolve
from fedlit.study.rows import tasks_of
from fedlit.study.runs import best_checkpoint, execute, keep_result
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import StudyFile
from fedlit.study.trained import Planned
from fedlit.train.manifest import read_checkpoint
from fedlit.train.whole import CHECKPOINTS, LAST

JOINED = "joined"
LOCAL = "local"
BESIDE = "alone"  # the folder of what it is compared with, in the run's


@dataclass(frozen=True, repr=False, eq=False)
class Joined(Shown):
    """A client that has joined a run.

    Attributes:
        client: the name of the client.
        folder: the folder of its run, for ``fedlit predict`` and ``fedlit export``.
        seeds: the seeds with which it was trained; the run in the folder is that of the first.
        comparison: the study of ``joined``, ``local`` and local baselines on its rows.
    """

    client: str
    folder: Path
    seeds: list[int]
    comparison: Comparison

    @property
    def answer(self) -> Answer:
        """The comparison of joining with the best model alone, which is chosen on validation
        rows.
        """
        return self.comparison.answers[0]

    def parts(self) -> Iterable[str | Grid]:
        """Yield the comparison and the folder."""
        yield from self.comparison.parts()
        yield from (f"FAILED {name}: {error}" for name, error in self.comparison.failures.items())
        yield Verbatim(f"Report: {self.comparison.folder / 'report.html'}")
        yield Verbatim(f"Run folder: {self.folder}")
        yield Verbatim(
            f"Next: fedlit predict --run {shown(self.folder)} --client {self.client} --data FILE"
        )


def add_client(
    run: str | Path,
    config: str | Path | Mapping[str, Any],
    typed: Sequence[str] = (),
    *,
    ckpt_path: str = "last",
    seeds: str | Sequence[int] | None = None,
    baselines: Sequence[str] | None = None,
    bootstrap: int = 300,
    quiet: bool = False,
    say: Callable[[str], None] = say_aside,
) -> Joined:
    """Let a client join a run that has been trained, and compare it with going alone.

    The newcomer starts from the federated tensors of the run's checkpoint. These stay as they are
    while it trains its private parts on its rows; nothing is exchanged. It gets a separate run
    folder, ``<run>+<client>``. In the folder ``alone`` below it, the same network with random
    initial values, trained as long, and local baselines are trained on the same rows.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        config: a configuration, a file or its content, of which ``data.source`` is taken: the
            newcomer's table.
        typed: keys that differ from the run's, as on the command line:
            ``["--trainer.max_epochs=3"]``.
        ckpt_path: ``last`` or ``best``: from which of the run's checkpoints it starts, and which of
            its own is scored.
        seeds: of the newcomer's training; the run's if None.
        baselines: these local baselines only, none if empty; all that the newcomer's task has if
            None.
        bootstrap: resamples of its test rows, for the interval.
        quiet: print nothing.
        say: where notices go, unless ``quiet``.

    Raises:
        ConfigError: no such run, a client that the run has, tensors that do not fit.
        RunError: training had to stop, or what is federated was changed by the method.
    """
    expect(ckpt_path in ("last", "best"), "--ckpt_path", "last or best", ckpt_path)
    notify = nothing if quiet else say
    joining = prepare(run, config, typed, checkpoint=ckpt_path)
    notify(f"Using {joining.checkpoint}")
    client = joining.table.name
    alone = joining.alone()
    numbers = [alone.seed] if seeds is None else parse_seeds(seeds)
    study = _study(joining, numbers, ckpt_path, baselines, bootstrap)
    overrides = {"seed": numbers[0], **best_checkpoint(ckpt_path, study.choose)}
    joined = joining.joined(*(f"--{key}={value}" for key, value in overrides.items()))
    notify(
        f"{client} trains its private parts around the run's core, which stays; nothing is "
        "exchanged"
    )
    for note in joining.notes:
        notify(f"Note: {note}")
    trained = joined.fit(quiet=quiet)
    assert joined.folder is not None
    _unchanged(client, joined)
    folder = joined.folder / BESIDE
    folder.mkdir()
    local = folder / "local.yaml"
    local.write_text(alone.config_text or "", encoding="utf-8")
    configs = {JOINED: joined.folder / "config.yaml", LOCAL: local}
    planned = [
        Planned(name, Train(str(file), {}, study.checkpoint), {}) for name, file in configs.items()
    ]
    planned += planned_alone(study, tasks_of([joining.table]), (str(local), {}), planned[1])
    jobs = jobs_of(study, numbers, folder, planned, data=str(folder))
    keep_result(jobs[0], joined, trained)
    findings = joined.data.findings
    notes = [*joining.notes, *joined.loop.federation.notes, *findings.sentences()]
    failures = dict[str, str]()
    for job in jobs[1:]:
        notify(f"Training {study.labels[job.method]}, seed {job.seed}")
        try:
            execute(job)
        # The newcomer is trained; a failure of what it is compared with is reported, as in studies.
        except Exception as error:
            failures[job.name] = f"{type(error).__name__}: {error}"
    comparison = Comparison.of(
        study,
        numbers,
        collect(study, jobs),
        folder,
        failures=failures,
        notes=notes,
        blocks=findings.blocks,
    )
    write(comparison)
    return Joined(client, joined.folder, numbers, comparison)


def _study(
    joining: Joining,
    seeds: list[int],
    checkpoint: str,
    baselines: Sequence[str] | None,
    bootstrap: int,
) -> ResolvedStudy:
    """Return the study of the comparison, as ``fedlit compare`` would run it. The newcomer's task
    determines its metrics and baselines.
    """
    methods = {
        JOINED: Method(JOINED, label=joining.run.parent.name),
        LOCAL: Method(LOCAL, label="Local"),
    }
    models = None if baselines is None else dict.fromkeys(baselines)
    state: Literal["last", "best"] = "best" if checkpoint == "best" else "last"
    about = f"{joining.table.name} joins {joining.run}, which has {', '.join(joining.clients)}."
    study = StudyFile(
        methods,
        seeds,
        about,
        baselines=models,
        checkpoint=state,
        bootstrap=bootstrap,
        name=joining.name,
    )
    return resolve(study, None, tasks_of([joining.table]))


def _unchanged(name: str, joined: Run) -> None:
    """Check that the frozen core equals the run's, bit by bit.

    Raises:
        RunError: the method has changed it.
    """
    assert joined.folder is not None and joined.trainer is not None
    client = joined.loop.federation[name]
    frozen = joined.loop.federation.frozen[name]
    path = joined.folder / CHECKPOINTS / LAST
    state = client.state_dict()
    saved = read_checkpoint(path, resumable=False)["state_dict"] if path.is_file() else {}
    for key, value in frozen.items():
        ends = [state[key].cpu(), saved.get(f"clients.{name}.{key}", value)]
        same = all(torch.equal(tensor, value) for tensor in ends)
        received = Told(f"that it changed {key}")
        expected = f"{type(client).__name__} to leave the frozen core as it is"
        expect(same, f"client {name!r}", expected, received, "train all clients together", RunError)
