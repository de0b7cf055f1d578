"""``fedlit search``: what to federate, how often, how much, and with which hyperparameters, chosen on validation rows.

<out>/journal.log                   Optuna's record of all trials: a search goes on from it
     /runs/trial_<n>/seed_<s>/      a run each, as :mod:`fedlit.study.runs` says, without test rows
     /trials/trial_<n>/             parameters and value for TensorBoard's HParams tab
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from optuna.trial import FrozenTrial, TrialState
from tqdm import tqdm

from fedlit.data.encoding import UNION_SITE
from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.run.config import known_configs
from fedlit.seeding import derive_seed
from fedlit.show.text import text_table
from fedlit.spec import Site
from fedlit.study.runner import default_jobs, locked, run_jobs
from fedlit.study.runs import SCORES, Job, plan_jobs
from fedlit.study.space import distributions, inside, look_up
from fedlit.study.study import METRICS, Method, Search, Study, load_study, parse_seeds
from fedlit.tasks.metrics import summarise

__all__ = ["Found", "Trial", "search"]

# Trials that the Bayesian sampler draws at random before it learns from them.
STARTUP = 10
MOST_TRIALS = 10  # of the printed table


@dataclass(frozen=True)
class Trial:
    """One point of the space.

    Attributes:
        number: from 0.
        params: dotted key → value.
        value: mean over seeds of what trials are judged by; None if it failed.
        clients: client → mean over seeds of the metric.
        own: whether these are the configuration's own settings.
        error: why it failed.
    """

    number: int
    params: dict[str, Any]
    value: float | None
    clients: dict[str, float]
    own: bool
    error: str

    @property
    def name(self) -> str:
        """As it is spoken of, and its folder."""
        return f"trial_{self.number}"


@dataclass(frozen=True, eq=False)
class Found:
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
    def ranked(self) -> list[Trial]:
        """Those that have a value, the best first; of equals the earlier."""
        return sorted((trial for trial in self.trials if trial.value is not None), key=_loss)

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
        searched = self.study.methods[_search(self.study).method]
        return replace(searched, label="", set={**searched.set, **self.best.params}, tune={})

    def __str__(self) -> str:
        what, metric = _search(self.study), METRICS[self.study.choose]
        ranked, own = self.ranked, self.own
        shown = ranked[:MOST_TRIALS] + [one for one in ranked[MOST_TRIALS:] if one is own]
        rows = [[str(one.number), _percent(one), *map(_text, one.params.values()), "own" * one.own] for one in shown]
        judged = "mean over clients" if what.judge == "mean" else "worst client"
        method = self.method
        shares_nothing = self.best.params.get("exchange.federated", ...) == []
        config = method.config if method.config in known_configs() else str(self.study.config(what.method))
        command = ["fedlit", "fit", "--config", config, *method.arguments()]
        snippet = json.dumps({"config": method.config, "set": method.set}, ensure_ascii=False)
        return "\n".join(
            [
                f"{what.method}: {len(ranked)} trials, seeds {', '.join(map(str, self.seeds))}; "
                f"{metric} on validation rows in %, {judged}:",
                text_table(["trial", "value", *what.space, ""], rows),
                self._comparison(),
                "",
                f"Train the best: {shlex.join(command)}",
                f"As a method of a study: best: {snippet}",
                f"Trials: tensorboard --logdir {shlex.quote(str(self.folder / 'trials'))} (tab HParams)",
                f"Curves of every run: tensorboard --logdir {shlex.quote(str(self.folder / 'runs'))}",
                *(["The best trial shares nothing: each client by itself."] if shares_nothing else []),
                "Note: the best of many trials flatters itself on the rows that it was chosen by. No test rows were "
                "scored: put it into a study as a method, let fedlit compare say what it is worth, with other seeds "
                "than these. (Where seeds draw splits anew, even those share rows with the ones it was chosen by.)",
                *(f"FAILED {name}: {error}" for name, error in self.failures.items()),
            ]
        )

    def _comparison(self) -> str:
        if self.own is None:
            return "The configuration's own settings have no value here: they failed, or the space does not hold them."
        if self.best.own:
            return f"No trial was better than the configuration's own settings, {_percent(self.own)}."
        gain = f"{100 * (_loss(self.own) - _loss(self.best)):.2f}"
        return f"The configuration's own settings: {_percent(self.own)}; the best trial is {gain} points above."


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
        ConfigError: the search cannot be run, or the folder holds trials of another one.
        RunError: no trial came to its end.
    """
    study = load_study(study) if isinstance(study, str) else study
    for option, number in (("--trials", trials), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise ConfigError(f"{option}: expected at least 1, found {number}")
    numbers = _search(study).seeds if seeds is None else parse_seeds(seeds)
    folder = Path(out if out is not None else Path("lightning_logs", "studies", f"{study.name}_search")).absolute()
    space = distributions(_search(study).space)
    slots = jobs or default_jobs()
    with locked(folder):
        work = _Work(study, numbers, space, folder)
        with tqdm(total=trials, initial=len(work.ended()), disable=quiet, unit="trial", dynamic_ncols=True) as bar:
            while (left := trials - len(work.ended())) > 0:
                work.run(work.ask(min(left, work.batch(slots))), slots)
                bar.update(len(work.ended()) - bar.n)
        found = Found(study, numbers, work.ended(), folder)
    if not found.ranked:
        reasons = "\n".join(f"{name}: {error}" for name, error in found.failures.items())
        raise RunError(f"expected at least one trial that came to its end, found none:\n{reasons}")
    return found


class _Work:
    """The trials of a folder: drawing, running and judging them.

    Args:
        study: what is searched.
        seeds: each trial is trained with.
        space: dotted key → where its values are drawn from.
        folder: of the search.

    Raises:
        ConfigError: the space does not fit the configuration, or the folder's trials are of another search.
    """

    def __init__(self, study: Study, seeds: list[int], space: dict[str, BaseDistribution], folder: Path) -> None:
        self.study, self.seeds, self.space, self.folder = study, seeds, space, folder
        self.search = _search(study)
        self.method = study.methods[self.search.method]
        untouched = self.plan("own", {})
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = folder / "journal.log"
        _mend(journal)
        backend = JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal)))
        self.trials = optuna.create_study(
            storage=JournalStorage(backend), study_name="search", direction="maximize", load_if_exists=True
        )
        made_of = {
            "search.method": self.search.method,
            "search.space": self.search.space,
            "search.judge": self.search.judge,
            "choose": study.choose,
            "seeds": seeds,
            "the configuration's settings or data": self.plan("own", {}, seeds=[0])[0].digest,
        }
        if "made_of" in self.trials.user_attrs:
            self._refuse_changes(self.trials.user_attrs["made_of"], json.loads(json.dumps(made_of)))
        else:
            self._check_keys()
            self.trials.set_user_attr("made_of", made_of)
        own = self._own(untouched[0])
        if own is not None and not any("own" in trial.user_attrs for trial in self._known()):
            self.trials.enqueue_trial(own, user_attrs={"own": True})

    def plan(self, name: str, params: Mapping[str, Any], seeds: list[int] | None = None) -> list[Job]:
        """The runs of a trial, one per seed; they never see test rows."""
        # A trial is one configuration: what a study tunes beside it is as the configuration has it.
        method = replace(self.method, set={**self.method.set, **params}, reference=None, tune={})
        study = replace(self.study, methods={name: method}, reference=name, baselines={}, bootstrap=0, search=None)
        return [replace(job, test=False) for job in plan_jobs(study, seeds or self.seeds, self.folder)]

    def ended(self) -> list[Trial]:
        """By number."""
        return [
            Trial(one.number, self._params(one), one.value, own="own" in one.user_attrs, **self._note(one))
            for one in self._known()
            if one.state.is_finished()
        ]

    def batch(self, slots: int) -> int:
        """How many trials to draw at once: as many as run at once, so that the next ones learn from them; more where
        there is nothing to learn, for every batch starts its processes anew.
        """
        blind = STARTUP - len(self._known()) if self.search.sampler == "bayesian" else 4 * slots
        return max(slots, min(4 * slots, blind))

    def ask(self, count: int) -> list[FrozenTrial]:
        """The next trials: first those that were cut short, then new ones."""
        running = [one for one in self._known() if one.state == TrialState.RUNNING]
        asked = [one for one in running if set(one.params) == set(self.space)][:count]
        for one in running:
            if set(one.params) != set(self.space):  # it was cut short while it was drawn
                self.trials.tell(one.number, state=TrialState.FAIL)
        while len(asked) < count:
            self.trials.sampler = self._sampler()
            number = self.trials.ask(self.space).number
            asked.append(self.trials.get_trials(deepcopy=False)[number])
        return asked

    def run(self, asked: Sequence[FrozenTrial], slots: int) -> None:
        """Train, judge and record trials."""
        planned: dict[int, list[Job]] = {}
        for one in asked:
            same = next((own for own in self._known() if own.value is not None and own.params == one.params), None)
            if same is not None and same.value is not None:  # runs are reproducible: nothing to be learnt from another
                self._tell(one, same.value, self._note(same)["clients"])
                continue
            try:
                planned[one.number] = self.plan(f"trial_{one.number}", self._params(one))
            except FedlitError as error:
                self._tell(one, error=str(error))
        jobs = [job for own in planned.values() for job in own]
        errors = run_jobs(jobs, slots, quiet=True, say=lambda _: None)
        for one in asked:
            failed = [
                f"seed {job.seed}: {errors[job.name]}" for job in planned.get(one.number, []) if job.name in errors
            ]
            if failed:
                self._tell(one, error="; ".join(failed))
            elif one.number in planned:
                self._tell(one, *self._judge(planned[one.number]))

    def _judge(self, jobs: Sequence[Job]) -> tuple[float, dict[str, float]]:
        """A trial's value, and each client's part in it: means over seeds."""
        values, clients = [], []
        for job in jobs:
            scores = pd.read_csv(Path(job.folder) / SCORES, dtype={"client": str})
            own = scores[(scores["split"] == "validation") & (scores["client"] != UNION_SITE)]
            nested = {
                str(name): dict(zip(one["metric"], one["value"], strict=True)) for name, one in own.groupby("client")
            }
            summary = summarise(nested, [Site(name, (), {}) for name in nested])
            values.append(summary[self.search.judge][self.study.choose])
            clients.append({name: scored[self.study.choose] for name, scored in nested.items()})
        means = pd.DataFrame(clients).mean()
        return sum(values) / len(values), {str(name): float(value) for name, value in means.items()}

    def _tell(
        self, one: FrozenTrial, value: float = math.nan, clients: Mapping[str, float] | None = None, error: str = ""
    ) -> None:
        if not error and math.isnan(value):
            error = (
                f"its {self.study.choose} on validation is not a number: predictions that are not finite, or one class"
            )
        # before it ends: a trial without a note is one that was cut short
        self.trials.set_user_attr(f"trial_{one.number}", {"clients": dict(clients or {}), "error": error})
        if error:
            self.trials.tell(one.number, state=TrialState.FAIL)
            return
        _show(self.folder / "trials" / f"trial_{one.number}", one.number, self._params(one), value, clients or {})
        self.trials.tell(one.number, value)

    def _sampler(self) -> optuna.samplers.BaseSampler:
        # anew for each trial: with one fixed seed, a search that goes on would draw the points that it began with
        number = len(self.trials.get_trials(deepcopy=False))
        seed = derive_seed(0, "search", number) % 2**32
        if self.search.sampler == "random":
            return optuna.samplers.RandomSampler(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(n_startup_trials=STARTUP, constant_liar=True, seed=seed)

    def _known(self) -> list[FrozenTrial]:
        """All trials but those that ended while they were being drawn."""
        everything = self.trials.get_trials(deepcopy=False)
        return [one for one in everything if one.state != TrialState.FAIL or self._note(one)]

    def _note(self, one: FrozenTrial) -> dict[str, Any]:
        note: dict[str, Any] = self.trials.user_attrs.get(f"trial_{one.number}", {})
        return note

    def _params(self, one: FrozenTrial) -> dict[str, Any]:
        """In the order of the space, decoded."""
        coded = {key for key, own in self.space.items() if isinstance(own, CategoricalDistribution)}
        return {key: json.loads(one.params[key]) if key in coded else one.params[key] for key in self.space}

    def _own(self, job: Job) -> dict[str, Any] | None:
        """The configuration's own settings as Optuna has them, None if the space does not hold them."""
        from fedlit.run.load import load

        settings = yaml.safe_load(load(job.config, *job.arguments).config_text or "")
        own = {key: inside(distribution, look_up(settings, key)) for key, distribution in self.space.items()}
        return None if None in own.values() else own

    def _refuse_changes(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [key for key in now if before.get(key) != now[key]]
        if changed:
            found = "; ".join(
                key if "settings" in key else f"{key}: {json.dumps(now[key])}, there {json.dumps(before.get(key))}"
                for key in changed
            )
            raise ConfigError(
                f"{self.folder}: expected the search whose trials lie there, found others: {found}; values would not "
                "be comparable. Give --out for a new search, or put the study back"
            )

    def _check_keys(self) -> None:
        """Refuse a key with which no configuration can be put together: each trial would fail."""
        problems = []
        for key, own in self.space.items():
            coded = own.choices if isinstance(own, CategoricalDistribution) else ()
            ends = (own.low, own.high) if isinstance(own, IntDistribution | FloatDistribution) else ()
            error: ConfigError | None = None
            for value in (*(json.loads(str(choice)) for choice in coded), *ends):
                try:
                    self.plan("own", {key: value})
                except ConfigError as refused:
                    error = error or refused
                else:
                    break
            else:
                problems.append(f"search.space: {error}")
        if problems:
            raise ConfigError("\n".join(problems))


def _search(study: Study) -> Search:
    if study.search is None:
        raise ConfigError(f"{study.name}: expected a study with search: (method, space), found none; add it")
    return study.search


def _mend(journal: Path) -> None:
    """Take away what a killed process may have left: its lock, which Optuna would wait for, and half a line, behind
    which it could read nothing. No other process is at work here.
    """
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    content = journal.read_bytes() if journal.exists() else b""
    if content and not content.endswith(b"\n"):
        journal.write_bytes(content[: content.rfind(b"\n") + 1])


def _show(folder: Path, number: int, params: Mapping[str, Any], value: float, clients: Mapping[str, float]) -> None:
    """Write a trial for TensorBoard: one session of the HParams tab, one point per client in the charts.

    In a folder beside the runs: these have records of all their settings, among which TensorBoard would pick columns.
    """
    from torch.utils.tensorboard import SummaryWriter
    from torch.utils.tensorboard.summary import hparams

    metrics = {"search/value": value, **{f"client/{name}": own for name, own in clients.items()}}
    flat = {key: own if isinstance(own, bool | int | float) else _text(own) for key, own in params.items()}
    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        assert writer.file_writer is not None
        for summary in hparams(flat, metrics):
            writer.file_writer.add_summary(summary)
        for tag, scalar in metrics.items():
            writer.add_scalar(tag, scalar, number)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _loss(trial: Trial) -> float:
    return math.inf if trial.value is None else -trial.value


def _percent(trial: Trial) -> str:
    return f"{-100 * _loss(trial):.2f}"
