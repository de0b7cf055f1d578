"""``fedlit search``: what to federate, how often, how much, and with which hyperparameters, chosen
on validation rows.

<out>/trials.db                         Optuna's record of all trials: a search goes on from it
     /runs/<method>@<settings>/seed_<s>/    a run each, as :mod:`fedlit.study.runs` says, without
     test rows
"""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from fedlit.errors import ConfigError, RunError, expect
from fedlit.jobs.job import digest_of
from fedlit.jobs.pool import Pool
from fedlit.jobs.runner import nothing
from fedlit.mixture.written import is_mixture
from fedlit.run.config import known_configs, typed_value
from fedlit.seeding import derive_seed
from fedlit.show.bar import Bar
from fedlit.show.shown import Grid, Shown, print_notice
from fedlit.show.text import Verbatim
from fedlit.study.basis import Basis
from fedlit.study.method import Method, Search, coded_choices, refuse_row_key
from fedlit.study.parse import load_study
from fedlit.study.resolve import ResolvedStudy, resolve
from fedlit.study.runner import SERVE, locked, slots_of
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import StudyFile
from fedlit.study.tune import Judged, judged, tuning_jobs
from fedlit.tasks import COMPARED, Score
from fedlit.tasks.units import heading

MOST_TRIALS = 10  # of the printed table
STARTUP = 10  # trials that are drawn at random before the sampler learns from them


@dataclass(frozen=True)
class Trial:
    """One point of the search space.

    Attributes:
        number: the number of the trial, from 0.
        params: maps each dotted key to its value.
        value: the mean over seeds and clients of the metric; None if the trial failed.
        error: the reason for a failure.
    """

    number: int
    params: dict[str, Any]
    value: float | None
    error: str


@dataclass(frozen=True, eq=False, repr=False)
class Found(Shown):
    """The result of a search.

    Attributes:
        study: the study that was searched.
        definition: its search.
        seeds: the seeds with which each trial was trained.
        trials: all finished trials, by number.
        unchanged: the value of the configuration's unchanged settings; None if they failed.
        folder: the folder of the files.
    """

    study: ResolvedStudy
    definition: Search
    seeds: list[int]
    trials: list[Trial]
    unchanged: float | None
    folder: Path

    @property
    def score(self) -> Score:
        """The score by which trials are judged."""
        return COMPARED[self.study.choices[0]]

    @property
    def ranked(self) -> list[Trial]:
        """The trials that have a value, the best first; of equals, the earlier one first."""
        valued = [trial for trial in self.trials if trial.value is not None]
        return sorted(valued, key=lambda trial: -float(self.score.gain(trial.value, 0.0)))

    @property
    def best(self) -> Trial:
        """The best trial on validation rows."""
        return self.ranked[0]

    @property
    def failures(self) -> dict[str, str]:
        """Maps each failed trial to its error."""
        return {f"trial {trial.number}": trial.error for trial in self.trials if trial.error}

    @property
    def method(self) -> Method:
        """The best trial as a method of a study."""
        searched = self.study.methods[self.definition.method]
        return replace(searched, label="", set={**searched.set, **self.best.params}, tune={})

    def parts(self) -> list[str | Grid]:
        """Return the best trials, what was gained, and the commands for the next steps."""
        definition = self.definition
        score = self.score
        method = self.method
        rows = [
            [str(trial.number), score.text(trial.value or 0.0), *map(_text, trial.params.values())]
            for trial in self.ranked[:MOST_TRIALS]
        ]
        unchanged = "no value, because they failed"
        if self.unchanged is not None:
            unchanged = score.text(self.unchanged)
        config = method.config
        if config not in known_configs():
            config = str(self.study.config(definition.method))
        keys = [f"--{key}={typed_value(value)}" for key, value in method.overrides().items()]
        snippet = json.dumps({"config": method.config, "set": method.set}, ensure_ascii=False)
        unit = " in %" if score.percent else ""
        return [
            f"{definition.method}: {len(self.ranked)} trials, seeds {', '.join(map(str, self.seeds))}; "
            f"{heading(score)} on validation rows{unit}, mean over clients:",
            Grid(["trial", "value", *definition.space], rows),
            f"The configuration's own settings: {unchanged}.",
            "",
            Verbatim(f"Train the best: {shlex.join(['fedlit', 'fit', '--config', config, *keys])}"),
            Verbatim(f"As a method of a study: best: {snippet}"),
            Verbatim(f"Trials: {self.folder / 'trials.db'} (optuna-dashboard shows them)"),
            "Note: the best of many trials flatters itself on the rows that it was chosen by. Put "
            "it into a study as a method, and let fedlit compare say what it is worth on test "
            "rows, with other seeds than these.",
            *(f"FAILED {name}: {error}" for name, error in self.failures.items()),
        ]


def search(
    study: str | StudyFile,
    *,
    trials: int = 20,
    seeds: str | Iterable[int] | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
) -> Found:
    """Search the space of a study's ``search`` for the settings that are best on validation rows.

    The configuration's own settings are also tried. A search that is started again continues until
    it has this many trials in total; interrupted trials are resumed. If the definition of the
    search has changed, it starts over.

    Args:
        study: its name, its path, or a :class:`~fedlit.study.study.StudyFile`.
        trials: the total number of trials, including failed ones.
        seeds: the seeds, instead of those of the study's ``search``.
        workers: the number of simultaneous runs, each with its share of the cores; by default one per
            core, or fewer if memory is short.
        out: the search's folder; by default ``lightning_logs/studies/<name>_search``.
        quiet: no progress bar.

    Raises:
        ConfigError: the search cannot be run.
        RunError: no trial came to its end.
    """
    file = load_study(study) if isinstance(study, str) else study
    for option, number in (("--trials", trials), ("--workers", workers)):
        expect(number is None or number > 0, option, "at least 1", number)
    definition = _search_of(file)
    numbers = parse_seeds(definition.seeds if seeds is None else seeds)
    default = Path("lightning_logs", "studies", f"{file.name}_search")
    folder = Path(default if out is None else out).absolute()
    space = distributions(definition.space)
    with locked(folder), ExitStack() as stack:
        basis = Basis(file)
        resolved = resolve(file, None, basis.rows.tasks)
        slots = slots_of(workers, nothing if quiet else print)
        pool = stack.enter_context(Pool(slots, [SERVE.partition(":")[0]]))
        if len(resolved.choices) > 1:
            raise ConfigError(
                "choose: expected one metric by which trials are judged, found "
                f"{resolved.choices}; name one that all tasks have"
            )
        drawn = _opened(resolved, definition, numbers, folder, basis)
        score = COMPARED[resolved.choices[0]]

        def judge(settings: Sequence[Mapping[str, Any]]) -> list[Judged]:
            changes = [(definition.method, changed) for changed in settings]
            return judged(resolved, changes, numbers, folder, basis, pool)

        ((gain, error),) = judge([{}])
        unchanged = None if error else score.gain(gain, 0.0)
        done = len(_ended(drawn))
        with Bar(trials, done, hidden=quiet) as bar:
            while done < trials:
                bar.show(done, description=_best_so_far(drawn, score))
                _next_trials(drawn, space, judge, min(slots, trials - done))
                done = len(_ended(drawn))
                if not quiet and not bar.shown:
                    print_notice(f"[{done}/{trials}] {_best_so_far(drawn, score)}".rstrip())
        ended = [_trial(trial, space, score) for trial in _ended(drawn)]
        result = Found(resolved, definition, numbers, ended, unchanged, folder)
    if not result.ranked:
        reasons = "\n".join(f"{name}: {error}" for name, error in result.failures.items())
        raise RunError(f"expected at least one trial that came to its end, found none:\n{reasons}")
    return result


def _next_trials(
    drawn: optuna.Study,
    space: Mapping[str, BaseDistribution],
    judge: Callable[[Sequence[Mapping[str, Any]]], list[Judged]],
    number: int,
) -> None:
    """Draw some trials, judge them at once, and tell the sampler.

    Args:
        drawn: all trials.
        space: the distribution of each key's values.
        judge: trains combinations of settings, and returns the value of each.
        number: the number of new trials.
    """
    new_trials = [_ask(drawn, space) for _ in range(number)]
    results = judge([_decoded(space, trial.params) for trial in new_trials])
    for trial, (gain, error) in zip(new_trials, results, strict=True):
        # A trial without this attribute was cut short, so it is set before the end.
        trial.set_user_attr("error", error)
        if error:
            drawn.tell(trial, None, TrialState.FAIL)
        else:
            drawn.tell(trial, gain)


def _best_so_far(drawn: optuna.Study, score: Score) -> str:
    """Return the best value of all trials for the user; empty if none has a value."""
    gains = [trial.value for trial in _ended(drawn) if trial.value is not None]
    if not gains:
        return ""
    return f"best so far {score.label} {score.text(score.gain(max(gains), 0.0))}"


def _search_of(study: StudyFile) -> Search:
    """Return the search of a study."""
    if study.search is None:
        raise ConfigError(
            f"{study.name}: expected a study with search: (method, space), found none; add it"
        )
    method = study.search.method
    if is_mixture(study.config(method)):
        raise ConfigError(
            f"search.method: expected a method of one configuration, found {method!r}; search the "
            "settings of one of its parts"
        )
    return study.search


def distributions(space: Mapping[str, Mapping[str, Any]]) -> dict[str, BaseDistribution]:
    """Return the distribution of each key's values. Choices are encoded as JSON, because Optuna
    accepts no lists.

    Raises:
        ConfigError: the space is empty or not valid; the message lists all problems.

    Example:
        >>> distributions({"exchange.rate": {"low": 0.5, "high": 1.0}})
        {'exchange.rate': FloatDistribution(high=1.0, log=False, low=0.5, step=None)}
    """
    by_key: dict[str, BaseDistribution] = {}
    problems = [] if space else ["search.space: expected at least one key, found none"]
    for key, entry in space.items():
        try:
            refuse_row_key(key)
            by_key[key] = _distribution(entry)
        except (ConfigError, TypeError, ValueError) as error:
            problems.append(f"search.space.{key}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return by_key


def _distribution(entry: Mapping[str, Any]) -> BaseDistribution:
    if set(entry) == {"choices"}:
        return CategoricalDistribution(coded_choices(entry["choices"]))
    kinds = {type(entry.get("low")), type(entry.get("high"))}
    if not kinds <= {int, float} or not set(entry) <= {"low", "high", "log"}:
        raise ConfigError(
            f"expected {{choices: [...]}}, or {{low: a, high: b}} with log: true for a logarithmic "
            f"scale, found {dict(entry)}"
        )
    return (IntDistribution if kinds == {int} else FloatDistribution)(**entry)


# ---------------------------------------------------------------------- Optuna's record


def _opened(
    study: ResolvedStudy, definition: Search, seeds: Sequence[int], folder: Path, basis: Basis
) -> optuna.Study:
    """Open the trials of a folder that belong to the same definition of the search."""
    first = tuning_jobs(study, definition.method, {}, seeds, folder, basis)[0]
    made_of = {
        "space": definition.space,
        "choose": study.choose,
        "seeds": list(seeds),
        "first job": first.digest,
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    drawn = optuna.create_study(
        storage=f"sqlite:///{folder / 'trials.db'}", study_name=digest_of(made_of), direction="maximize",
        load_if_exists=True,
    )  # fmt: skip
    # It is written beside its digest, so that a user of the file sees what a search was made of.
    drawn.set_user_attr("made_of", made_of)
    # These trials were cut short; their runs go on.
    for trial in drawn.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        drawn.enqueue_trial(trial.params)
        drawn.tell(trial.number, state=TrialState.FAIL)
    return drawn


def _ask(drawn: optuna.Study, space: Mapping[str, BaseDistribution]) -> optuna.Trial:
    # Each trial has a sampler of its own: with one fixed seed, a search that goes on would draw the
    # points that it began with.
    seed = derive_seed(0, "search", len(drawn.get_trials(deepcopy=False))) % 2**32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        drawn.sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP, constant_liar=True, seed=seed
        )
    return drawn.ask(dict(space))


def _ended(drawn: optuna.Study) -> list[FrozenTrial]:
    """Return the trials by number, without those that were cut short."""
    return [
        trial
        for trial in drawn.get_trials(deepcopy=False)
        if trial.state.is_finished() and "error" in trial.user_attrs
    ]


def _trial(one: FrozenTrial, space: Mapping[str, BaseDistribution], score: Score) -> Trial:
    value = None if one.value is None else float(score.gain(one.value, 0.0))
    return Trial(one.number, _decoded(space, one.params), value, one.user_attrs["error"])


def _decoded(space: Mapping[str, BaseDistribution], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the order of the search space."""
    coded = {
        key
        for key, distribution in space.items()
        if isinstance(distribution, CategoricalDistribution)
    }
    return {key: json.loads(params[key]) if key in coded else params[key] for key in space}


def _text(value: Any) -> str:
    """Return a setting as text for the user."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
