"""``fedlit search``: what to federate, how often, how much, and with which hyperparameters, chosen on validation rows.

<out>/journal.log                   Optuna's record of all trials: a search goes on from it
     /runs/trial_<n>/seed_<s>/      a run each, as :mod:`fedlit.study.runs` says, without test rows
     /trials/trial_<n>/             parameters and value for TensorBoard's HParams tab
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tqdm import tqdm

from fedlit.errors import ConfigError, RunError
from fedlit.run.config import known_configs
from fedlit.show.shown import Grid, Shown
from fedlit.show.table import NOTHING
from fedlit.show.text import Verbatim
from fedlit.study.job import check_format
from fedlit.study.method import Method
from fedlit.study.parse import load_study
from fedlit.study.plan import reference_tables, tasks_of
from fedlit.study.runner import default_jobs, locked
from fedlit.study.seeds import parse_seeds
from fedlit.study.space import distributions
from fedlit.study.study import Study
from fedlit.study.trials import Trial, Trials, search_of, text
from fedlit.study.units import heading, points
from fedlit.tasks import COMPARED, Score

__all__ = ["Found", "Trial", "search"]

MOST_TRIALS = 10  # of the printed table


@dataclass(frozen=True, eq=False, repr=False)
class Found(Shown):
    """What a search found.

    Attributes:
        study: what was searched.
        seeds: with which seeds each trial was trained.
        trials: all that have ended, by number.
        folder: where the files are.
    """

    study: Study
    seeds: list[int]
    trials: list[Trial]
    folder: Path

    @property
    def score(self) -> Score:
        """By which trials are judged."""
        return COMPARED[self.study.choices[0]]

    @property
    def ranked(self) -> list[Trial]:
        """Those that have a value, the best first; of equals the earlier."""
        return sorted((trial for trial in self.trials if trial.value is not None), key=self._loss)

    def _loss(self, trial: Trial) -> float:
        return math.inf if trial.value is None else -float(self.score.gain(trial.value, 0.0))

    def _value(self, trial: Trial) -> str:
        return NOTHING if trial.value is None else self.score.text(trial.value)

    @property
    def best(self) -> Trial:
        """The best on validation."""
        return self.ranked[0]

    @property
    def own(self) -> Trial | None:
        """The configuration's own settings, None if the space does not hold them or they failed."""
        return next((trial for trial in self.ranked if trial.own), None)

    @property
    def failures(self) -> dict[str, str]:
        """Trial → its error."""
        return {trial.name: trial.error for trial in self.trials if trial.error}

    @property
    def method(self) -> Method:
        """The best trial as a method of a study."""
        searched = self.study.methods[search_of(self.study).method]
        return replace(searched, label="", set={**searched.set, **self.best.params}, tune={})

    def parts(self) -> list[str | Grid]:
        """The best trials, what was gained, and the commands that go on from here."""
        what, score = search_of(self.study), self.score
        ranked, own = self.ranked, self.own
        shown = ranked[:MOST_TRIALS] + [one for one in ranked[MOST_TRIALS:] if one is own]
        rows = [[str(one.number), self._value(one), *map(text, one.params.values()), "own" * one.own] for one in shown]
        judged = "mean over clients" if what.judge == "mean" else "worst client"
        method = self.method
        shares_nothing = self.best.params.get("exchange.federated", ...) == []
        config = method.config if method.config in known_configs() else str(self.study.config(what.method))
        command = ["fedlit", "fit", "--config", config, *method.arguments()]
        snippet = json.dumps({"config": method.config, "set": method.set}, ensure_ascii=False)
        return [
            f"{what.method}: {len(ranked)} trials, seeds {', '.join(map(str, self.seeds))}; "
            f"{heading(score)} on validation rows{' in %' * score.percent}, {judged}:",
            Grid(["trial", "value", *what.space, ""], rows),
            self._comparison(),
            "",
            Verbatim(f"Train the best: {shlex.join(command)}"),
            Verbatim(f"As a method of a study: best: {snippet}"),
            Verbatim(f"Trials: tensorboard --logdir {shlex.quote(str(self.folder / 'trials'))} (tab HParams)"),
            Verbatim(f"Curves of every run: tensorboard --logdir {shlex.quote(str(self.folder / 'runs'))}"),
            *(["The best trial shares nothing: each client by itself."] if shares_nothing else []),
            "Note: the best of many trials flatters itself on the rows that it was chosen by. No test rows were "
            "scored: put it into a study as a method, let fedlit compare say what it is worth, with other seeds "
            "than these. (Where seeds draw splits anew, even those share rows with the ones it was chosen by.)",
            *(f"FAILED {name}: {error}" for name, error in self.failures.items()),
        ]

    def _comparison(self) -> str:
        if self.own is None:
            return "The configuration's own settings have no value here: they failed, or the space does not hold them."
        if self.best.own:
            return f"No trial was better than the configuration's own settings, {self._value(self.own)}."
        gain = self.score.text(self._loss(self.own) - self._loss(self.best))
        way = f"{points(self.score).lstrip()} above" if self.score.higher_is_better else "lower"
        return f"The configuration's own settings: {self._value(self.own)}; the best trial is {gain} {way.lstrip()}."


def search(
    study: str | Study,
    *,
    trials: int = 20,
    seeds: str | Iterable[int] | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Found:
    """Look through the space of a study's ``search`` for what does best on validation rows.

    The first trial is the configuration's own settings, if the space holds them. Started again, a search goes on until
    it has this many trials in all; trials that were cut short go on where they were.

    Args:
        study: its name, its path, or a :class:`~fedlit.study.study.Study`.
        trials: how many in all, those that failed included.
        seeds: in place of those of the study's ``search``.
        jobs: runs at once, each with its share of the cores; by default one per core, at most 4.
        out: the search's folder; by default ``lightning_logs/studies/<name>_search``.
        quiet: no progress bar.

    Raises:
        ConfigError: the search cannot be run, or the folder holds trials of another one or of another format.
        RunError: no trial came to its end.
    """
    study = load_study(study) if isinstance(study, str) else study
    for option, number in (("--trials", trials), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise ConfigError(f"{option}: expected at least 1, found {number}")
    numbers = search_of(study).seeds if seeds is None else parse_seeds(seeds)
    folder = Path(out if out is not None else Path("lightning_logs", "studies", f"{study.name}_search")).absolute()
    space = distributions(search_of(study).space)
    slots = jobs or default_jobs()
    with locked(folder):
        check_format(folder)
        tables = reference_tables(study)
        study = study.for_tasks(tasks_of(tables))
        if len(study.choices) > 1:
            raise ConfigError(
                f"choose: expected one metric by which trials are judged, found {', '.join(study.choices)}, for "
                "clients have different tasks; name one"
            )
        work = Trials(study, numbers, space, folder, tables)
        with tqdm(total=trials, initial=len(work.ended()), disable=quiet, unit="trial", dynamic_ncols=True) as bar:
            while (left := trials - len(work.ended())) > 0:
                work.run(work.ask(min(left, work.batch(slots))), slots)
                bar.update(len(work.ended()) - bar.n)
        found = Found(study, numbers, work.ended(), folder)
    if not found.ranked:
        reasons = "\n".join(f"{name}: {error}" for name, error in found.failures.items())
        raise RunError(f"expected at least one trial that came to its end, found none:\n{reasons}")
    return found
