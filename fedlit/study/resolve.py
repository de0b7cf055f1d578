"""A study that is complete: under one scenario, for clients whose tasks are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedlit.errors import ConfigError, must_be_known
from fedlit.run.catalogue import cards
from fedlit.study.alone import check_alone, default_models, labels_alone
from fedlit.study.method import Method, Paper, plain
from fedlit.study.seeds import parse_seeds
from fedlit.study.study import BEST_ALONE, BEST_FEDERATED, HINDSIGHT, Lineup, StudyFile
from fedlit.tasks import COMPARED, Score, Task


@dataclass(frozen=True)
class ResolvedStudy(Lineup):
    """A study of which nothing is left out: all of its fields have a meaning.

    Attributes:
        methods: maps each name to a method, with all settings that it tunes.
        seeds: the seeds with which each method is trained.
        metrics: the metrics that tables show, the main one first.
        choose: maps each client to the metric, on validation rows, by which it chooses.
        baselines: maps each local baseline to its grid of settings, or to None for the default one.
        baseline_labels: maps each local baseline to its label.
        name: the name of the study, with that of its scenario.
        about: a sentence on what is studied; empty if there is none.
        reference: the method in which each client trains alone.
        folds: see :class:`~fedlit.study.study.StudyFile`, like all that follow.
        small: the number of validation rows below which out-of-fold predictions choose.
        checkpoint: the state of a run that is scored.
        bootstrap: the number of resamples of the test rows.
        matters: the smallest lift that matters.
        leave_one_out: whether federations are also trained without each client.
        paper: published figures; None if there are none.
        tune_seeds: the seeds by which settings are chosen once for all clients; empty if each
            client chooses for each seed.
        folder: a further folder in which configurations are searched.
    """

    methods: dict[str, Method]
    seeds: list[int]
    metrics: list[str]
    choose: dict[str, str]
    baselines: dict[str, dict[str, Any] | None]
    baseline_labels: dict[str, str]
    name: str
    about: str
    reference: str
    folds: int
    small: int
    checkpoint: Literal["last", "best"]
    bootstrap: int
    matters: float
    leave_one_out: bool
    paper: Paper | None
    tune_seeds: list[int]
    folder: str

    @property
    def choices(self) -> list[str]:
        """The metrics by which clients choose: one, or those of different clients."""
        return list(dict.fromkeys(self.choose.values()))

    @property
    def all_metrics(self) -> list[str]:
        """The metrics that tables show, and those to choose by."""
        return list(dict.fromkeys([*self.metrics, *self.choices]))

    @property
    def labels(self) -> dict[str, str]:
        """Maps the name of each method, baseline and best choice to its label, in the order of
        tables.
        """
        catalogue = cards()
        names = dict[str, str]()
        for name, method in self.methods.items():
            card = catalogue.get(method.method)
            title = name if card is None else card.title
            names[name] = method.label or title
        names |= self.baseline_labels
        if len(self.alone) > 1:
            names |= {BEST_ALONE: "Best alone", HINDSIGHT: "Best alone in hindsight"}
        if self.candidates:
            names[BEST_FEDERATED] = "Best federated"
        return names

    @property
    def alone(self) -> list[str]:
        """The names of what a client can do without others: the reference, other methods without
        exchange, baselines.
        """
        without_exchange = [
            name for name, method in self.methods.items() if method.alone and name != self.reference
        ]
        return [self.reference, *without_exchange, *self.baselines]

    @property
    def federated(self) -> list[str]:
        """The methods by which clients gain from each other."""
        return [name for name in self.methods if name not in self.alone]

    @property
    def candidates(self) -> list[str]:
        """The methods that a client could join: the federated methods that leave rows at their
        sites.
        """
        return [name for name in self.federated if not self.methods[name].pooled]

    @property
    def best_alone(self) -> str:
        """What a client would do alone: its best model alone, or the reference if there is no
        other.
        """
        return BEST_ALONE if len(self.alone) > 1 else self.reference

    @property
    def bars(self) -> list[str]:
        """What all federated methods are compared with: the best model alone, and the best in
        hindsight.
        """
        if self.best_alone == BEST_ALONE:
            return [BEST_ALONE, HINDSIGHT]
        return [self.best_alone]


def resolve(
    file: StudyFile, scenario: str | None, tasks: Mapping[str, type[Task]]
) -> ResolvedStudy:
    """Complete a study by the tasks of its clients: metrics, the metric by which each client
    chooses, local baselines, and what each method tunes.

    Args:
        file: the study as it is written.
        scenario: the scenario under which the methods are compared; None if the study has none, or
            if it is already that of a scenario.
        tasks: maps each client to its task.

    Raises:
        ConfigError: no client's task has a metric or local baseline, or best checkpoints are
            scored although clients choose by different metrics.

    Example:
        >>> from fedlit.tasks import Classification
        >>> file = StudyFile({"local": Method("quickstart")}, seeds="1:3")
        >>> study = resolve(file, None, {"north": Classification})
        >>> study.seeds, study.choose
        ([1, 2, 3], {'north': 'auroc'})
    """
    if scenario is not None:
        file = file.of(scenario)
    kinds = list({task.name: task for task in tasks.values()}.values())
    baselines = file.baselines
    if baselines is None:
        baselines = dict(default_models(kinds))
    check_alone(baselines, file.methods, tasks)
    tune_seeds = list[int]()
    if file.tune_seeds is not None:
        tune_seeds = parse_seeds(file.tune_seeds, "tune_seeds")
    return ResolvedStudy(
        methods={name: _tuned(method, file.tune) for name, method in file.methods.items()},
        seeds=parse_seeds(file.seeds),
        metrics=_metrics(file, kinds),
        choose=_choices(file, tasks),
        baselines=baselines,
        baseline_labels=labels_alone(baselines, kinds),
        name=file.name,
        about=file.about,
        reference=file.reference,
        folds=file.folds,
        small=file.small,
        checkpoint=file.checkpoint,
        bootstrap=file.bootstrap,
        matters=file.matters,
        leave_one_out=file.leave_one_out,
        paper=file.paper,
        tune_seeds=tune_seeds,
        folder=file.folder,
    )


def _scores(tasks: Iterable[type[Task]]) -> dict[str, Score]:
    """Map the name of each score by which the models of these tasks are compared to the score."""
    scores = dict[str, Score]()
    for task in tasks:
        scores |= {score.name: score for score in task.scores if score.name in COMPARED}
    return scores


def _metrics(file: StudyFile, tasks: Iterable[type[Task]]) -> list[str]:
    """Return the metrics of the tables: those of the study, or the usual ones of the tasks."""
    metrics = list(file.metrics or ())
    if not metrics:
        for task in tasks:
            metrics += task.shown_scores()
    must_be_known("metrics", metrics, _scores(tasks))
    return list(dict.fromkeys(metrics))


def _choices(file: StudyFile, tasks: Mapping[str, type[Task]]) -> dict[str, str]:
    """Map each client to the metric by which it chooses: the study's, or the main score of its
    task.
    """
    written = file.choose
    if isinstance(written, dict):
        must_be_known("choose (a metric for each client)", tasks, written)
        choose = {client: written[client] for client in tasks}
    elif written:
        choose = dict.fromkeys(tasks, written)
    else:
        choose = {client: task.scores[0].name for client, task in tasks.items()}
    scores = _scores(tasks.values())
    usable = [name for name, score in scores.items() if not score.test_only]
    must_be_known("choose", choose.values(), usable)
    metrics = list(dict.fromkeys(choose.values()))
    if file.checkpoint == "best" and len(metrics) > 1:
        raise ConfigError(
            f"checkpoint: expected last, for clients choose by different metrics "
            f"({', '.join(metrics)}), found 'best'; name one metric that all have as choose"
        )
    return choose


def _tuned(method: Method, tune: Mapping[str, list[Any]]) -> Method:
    """Return a method with the study's ``tune``, except for the keys that the method sets
    itself.
    """
    if method.of is not None:
        return method
    changed = {plain(key) for key in method.set}
    of_study = {key: values for key, values in tune.items() if plain(key) not in changed}
    return replace(method, tune={**of_study, **method.tune})
