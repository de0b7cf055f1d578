"""``fedlit add-client``: lets a client join a trained run, and measures what it gains over training alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from fedlit.errors import RunError, Told, expect
from fedlit.run.config import shown
from fedlit.run.joining import Joining, prepare
from fedlit.run.run import Run
from fedlit.show.shown import Grid, Shown
from fedlit.show.shown import say as say_aside
from fedlit.show.text import Verbatim
from fedlit.study.collect import Collected, collect
from fedlit.study.compare import Comparison, write
from fedlit.study.findings import Answer
from fedlit.study.job import Train
from fedlit.study.method import Method
from fedlit.study.plan import Planned, jobs_of, planned_alone, tasks_of
from fedlit.study.runner import nothing
from fedlit.study.runs import best_checkpoint, execute, record
from fedlit.study.study import Study, parse_seeds
from fedlit.train.manifest import read_checkpoint
from fedlit.train.whole import CHECKPOINTS, LAST

JOINED, LOCAL = "joined", "local"
BESIDE = "alone"  # the folder of what it is compared with, in the run's


@dataclass(frozen=True, repr=False, eq=False)
class Joined(Shown):
    """A client that has joined a run.

    Attributes:
        client: the name of the client.
        folder: the folder of its run, for ``fedlit predict`` and ``fedlit export``.
        seeds: the seeds with which it was trained; the run in the folder is that of the first.
        found: the study of ``joined``, ``local`` and local baselines on its rows.
    """

    client: str
    folder: Path
    seeds: list[int]
    found: Comparison

    @property
    def answer(self) -> Answer:
        """The comparison of joining with the best model alone, which is chosen on validation rows."""
        return self.found.answers[0]

    def parts(self) -> Iterable[str | Grid]:
        """Yield the comparison and the folder."""
        yield from self.found.parts()
        yield from (f"FAILED {name}: {error}" for name, error in self.found.failures.items())
        yield Verbatim(f"Report: {self.found.folder / 'report.html'}")
        yield Verbatim(f"Run folder: {self.folder}")
        yield Verbatim(f"Next: fedlit predict --run {shown(self.folder)} --client {self.client} --data FILE")


def add_client(
    run: str | Path,
    config: str | Path | Mapping[str, Any],
    typed: Sequence[str] = (),
    *,
    client: str | None = None,
    ckpt_path: str = "last",
    federated: bool = False,
    seeds: str | Sequence[int] | None = None,
    baselines: Sequence[str] | None = None,
    bootstrap: int = 300,
    quiet: bool = False,
    say: Callable[[str], None] = say_aside,
) -> Joined:
    """Let a client join a run that has been trained, and compare it with going alone.

    The newcomer starts from the federated tensors of the run's checkpoint. These stay as they are while it trains its
    private parts on its rows; nothing is exchanged. It gets a separate run folder, ``<run>+<client>``. In the folder
    ``alone`` below it, the same network with random initial values, trained as long, and local baselines are trained on
    the same rows.

    Args:
        run: a run's folder, or the name of a configuration: its newest run.
        config: the newcomer's configuration, a file or its content: ``data.source``, with one client, and keys that
            differ from the run's.
        typed: further keys, as on the command line: ``["--trainer.max_epochs=3"]``.
        client: which client of the source, if it has several.
        ckpt_path: ``last`` or ``best``: from which of the run's checkpoints it starts, and which of its own is scored.
        federated: train all clients of the run further, together with the new one. The run's tables must be there.
        seeds: of the newcomer's training; the run's if None.
        baselines: these local baselines only, none if empty; all that the newcomer's task has if None.
        bootstrap: resamples of its test rows, for the interval.
        quiet: print nothing.
        say: where notices go, unless ``quiet``.

    Raises:
        ConfigError: no such run, a client that the run has, tensors that do not fit.
        RunError: training had to stop, or what is federated was changed by the method.
    """
    expect(ckpt_path in ("last", "best"), "--ckpt_path", "last or best", ckpt_path)
    tell = nothing if quiet else say
    joining = prepare(run, config, typed, client=client, checkpoint=ckpt_path, federated=federated)
    tell(f"Using {joining.checkpoint}")
    alone = joining.alone()
    numbers = _seeds(joining, alone, seeds)
    study = _study(joining, numbers, ckpt_path, baselines, bootstrap)
    more = {"seed": numbers[0], **best_checkpoint(ckpt_path, study.choices[0])}
    joined = joining.joined(*(f"--{key}={value}" for key, value in more.items()))
    tell(_what(joining))
    for note in joining.notes:
        tell(f"Note: {note}")
    trained = joined.fit(quiet=quiet)
    assert joined.folder is not None
    if not federated:
        _unchanged(joining, joined)
    place = joined.folder / BESIDE
    place.mkdir()
    local = place / "local.yaml"
    local.write_text(alone.config_text or "", encoding="utf-8")
    configs = {JOINED: joined.folder / "config.yaml", LOCAL: local}
    planned = [Planned(name, Train(str(file), {}, study.checkpoint), {}) for name, file in configs.items()]
    planned += planned_alone(study, tasks_of([joining.table]), (str(local), {}), planned[1])
    jobs = jobs_of(study, numbers, place, planned, data=str(place))
    record(jobs[0], joined, trained)
    notes, failures = [*joining.notes, *joined.loop.federation.notes], dict[str, str]()
    for job in jobs[1:]:
        tell(f"Training {study.labels[job.method]}, seed {job.seed}")
        try:
            execute(job)
        except Exception as error:  # the newcomer is trained; what it is compared with is as in studies
            failures[job.name] = f"{type(error).__name__}: {error}"
    collected = _of(collect(study, jobs), joining.client)
    found = Comparison.of(study, numbers, collected, place, failures=failures, notes=notes)
    write(found)
    return Joined(joining.client, joined.folder, numbers, found)


def _what(joining: Joining) -> str:
    if joining.federated:
        return (
            f"{joining.client} and the {len(joining.clients)} clients of {joining.run.parent.name} go on training "
            "together; optimizers and the rule start anew"
        )
    return f"{joining.client} trains its private parts around the run's core, which stays; nothing is exchanged"


def _seeds(joining: Joining, alone: Run, seeds: str | Sequence[int] | None) -> list[int]:
    numbers = [alone.seed] if seeds is None else parse_seeds(seeds)
    if joining.federated:
        own = read_checkpoint(joining.checkpoint, resumable=False)["fedlit"]["seed"]
        expected = f"the run's seed, {own}, with --federated"
        expect(
            numbers == [own], "--seeds", expected, numbers, "it says which rows of the run's clients are for testing"
        )
    return numbers


def _study(
    joining: Joining, seeds: list[int], checkpoint: str, baselines: Sequence[str] | None, bootstrap: int
) -> Study:
    """Return the study of the comparison, as ``fedlit compare`` would run it. The newcomer's task determines its
    metrics and baselines.
    """
    methods = {JOINED: Method(JOINED, label=joining.run.parent.name), LOCAL: Method(LOCAL, label="Local")}
    models = None if baselines is None else dict.fromkeys(baselines)
    state: Literal["last", "best"] = "best" if checkpoint == "best" else "last"
    about = f"{joining.client} joins {joining.run}, which has {', '.join(joining.clients)}."
    study = Study(methods, seeds, about, baselines=models, checkpoint=state, bootstrap=bootstrap, name=joining.name)
    return study.for_tasks(tasks_of([joining.table]))


def _unchanged(joining: Joining, joined: Run) -> None:
    """Check that the frozen core equals the run's, bit by bit.

    Raises:
        RunError: the method has changed it.
    """
    assert joined.folder is not None and joined.trainer is not None
    client = joined.loop.federation[joining.client]
    frozen = joined.loop.federation.frozen[joining.client]
    path = joined.folder / CHECKPOINTS / LAST
    state = client.state_dict()
    saved = read_checkpoint(path, resumable=False)["state_dict"] if path.is_file() else {}
    for name, value in frozen.items():
        ends = [state[name].cpu(), saved.get(f"clients.{joining.client}.{name}", value)]
        same, told = all(torch.equal(own, value) for own in ends), Told(f"that it changed {name}")
        expected = f"{type(client).__name__} to leave the frozen core as it is"
        expect(same, f"client {joining.client!r}", expected, told, "join with --federated", RunError)


def _of(collected: Collected, client: str) -> Collected:
    """Return the newcomer's results only."""
    results, chosen = (own[own["client"] == client] for own in (collected.results, collected.chosen))
    return replace(collected, results=results, chosen=chosen, ratio={client: collected.ratio[client]})
