"""The trials of a search: drawn, run, judged on validation rows, and recorded."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from optuna.trial import FrozenTrial, TrialState

from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, FedlitError
from fedlit.mixture.settings import is_mixture
from fedlit.run.load import load
from fedlit.seeding import derive_seed
from fedlit.study.job import Job, validation_scores
from fedlit.study.method import Search
from fedlit.study.plan import plan_jobs
from fedlit.study.runner import run_jobs
from fedlit.study.space import inside, look_up
from fedlit.study.study import Study
from fedlit.tasks import COMPARED

__all__ = ["Trial", "Trials", "search_of", "text"]

# Trials that the Bayesian sampler draws at random before it learns from them.
STARTUP = 10


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
        """As people read it, and its folder."""
        return f"trial_{self.number}"


def search_of(study: Study) -> Search:
    """What a study's search varies.

    Raises:
        ConfigError: it has none, or one of a mixture.
    """
    if study.search is None:
        raise ConfigError(f"{study.name}: expected a study with search: (method, space), found none; add it")
    method = study.search.method
    if is_mixture(study.config(method)):
        raise ConfigError(
            f"search.method: expected a method of one configuration, found {method}, a mixture of several; search the "
            "settings of one of its parts, in a study whose method is that part"
        )
    return study.search


class Trials:
    """The trials of a folder: drawing, running and judging them.

    Args:
        study: what is searched.
        seeds: each trial is trained with.
        space: dotted key → where its values are drawn from.
        folder: of the search.
        tables: of the study's reference: no trial changes rows.

    Raises:
        ConfigError: the space does not fit the configuration, or the folder's trials are of another search.
    """

    def __init__(
        self,
        study: Study,
        seeds: list[int],
        space: dict[str, BaseDistribution],
        folder: Path,
        tables: Sequence[ClientTable],
    ) -> None:
        self.study, self.seeds, self.space, self.folder, self.tables = study, seeds, space, folder, tables
        self.score = COMPARED[study.choices[0]]
        self.search = search_of(study)
        self.method = study.methods[self.search.method]
        untouched = self.plan("own", {})
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal = folder / "journal.log"
        _mend(journal)
        backend = JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal)))
        self.trials = optuna.create_study(
            storage=JournalStorage(backend),
            study_name="search",
            direction="maximize" if self.score.higher_is_better else "minimize",
            load_if_exists=True,
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
        return [replace(job, test=False) for job in plan_jobs(study, seeds or self.seeds, self.folder, self.tables)]

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
        errors = run_jobs(jobs, slots, quiet=True)
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
            own = validation_scores(job)
            # where there is no score at all, predictions were not finite: then there is no value, as for a run
            judged = own[own["metric"].isin(list(COMPARED))]
            lost = bool(judged.groupby("client")["value"].count().eq(0).any())
            of_clients = own[own["metric"] == self.score.name].set_index("client")["value"].sort_index()
            known = {str(name): float(value) for name, value in of_clients.dropna().items()}
            worst = self.score.worst(known)
            if lost or worst is None:
                values.append(math.nan)
            else:
                mean = sum(known.values()) / len(known)
                values.append(mean if self.search.judge == "mean" else known[worst])
            clients.append({str(name): float(value) for name, value in of_clients.items()})
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
    flat = {key: own if isinstance(own, bool | int | float) else text(own) for key, own in params.items()}
    shutil.rmtree(folder, ignore_errors=True)
    with SummaryWriter(str(folder)) as writer:
        assert writer.file_writer is not None
        for summary in hparams(flat, metrics):
            writer.file_writer.add_summary(summary)
        for tag, scalar in metrics.items():
            writer.add_scalar(tag, scalar, number)


def text(value: Any) -> str:
    """A setting as people read it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
