"""The definition of a study: methods, seeds, baselines, and the metrics by which clients choose."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedlit.errors import ConfigError, expect, must_be_known
from fedlit.run.catalogue import cards
from fedlit.run.config import find_config
from fedlit.statistics import MATTERS
from fedlit.study.method import NAME, Method, Paper, Scenario, Search, check_tuned, plain

if TYPE_CHECKING:
    from fedlit.tasks import Score, Task


BEST_ALONE = "best_alone"
HINDSIGHT = "best_alone_in_hindsight"
BEST_FEDERATED = "best_federated"


def choice_of(choose: str | Mapping[str, str], client: str) -> str:
    """Return the metric by which a client chooses: the one for all clients, or the client's."""
    return choose if isinstance(choose, str) else choose[client]


@dataclass(frozen=True)
class Study:
    """Methods that are compared on the same rows with the same seeds.

    Attributes:
        methods: maps each name to a method.
        seeds: the seeds with which each method is trained; in a file also ``a:b`` (both ends
            included) and ``1,2,5``.
        about: a sentence on what is studied.
        reference: the method in which each client trains alone: lifts are computed over it, and the
            baselines use its data.
        baselines: the local baselines, by name, each with its grid of settings, or null for the
            default grid. If it is left out: those of the clients' tasks, and ``trees_and_linear``,
            the mean of the predictions of the chosen extra trees and the chosen linear model. Any
            class of scikit-learn, or one with the same interface, can be given under a new name:
            ``{class_path: …, init_args: …, grid: …, scale: true, label: …}``.
        folds: if it is not 0, local baselines are trained on so many folds of training and
            validation rows: settings are chosen by predictions for rows that a fold's model has not
            seen, and test rows get the mean of the folds' models. The training of networks does not
            change.
        small: the number of validation rows below which a client's local baselines, and the best of
            them, are chosen by out-of-fold predictions on its training rows (5 folds); they are
            then fitted on all of these. 0 to never do so.
        choose: the metric, on validation rows, by which settings of baselines and tuned methods,
            the best model alone, best checkpoints and trials of a search are chosen; or a mapping
            of each client to its metric. If it is left
            out: the main score of the client's task.
        checkpoint: the state of a run that is scored on the test split: of the ``last`` epoch, or
            the ``best`` by ``choose``.
        metrics: the metrics that tables show, the main one first. If it is left out: the usual ones
            for the clients' tasks.
        bootstrap: the number of resamples of the test rows, for intervals if all seeds have the
            same test rows; 0 for none (they are not used if seeds draw new splits).
        matters: the smallest lift that matters: in percentage points or, for a score that is not in
            percent, in percent of the score to improve on. A smaller lift gives no verdict to join
            or stay alone.
        leave_one_out: whether every federation is also trained without each of its clients in turn,
            with the same seeds and settings, which shows what the others gain or lose by that
            client. Training takes longer in proportion to the number of clients.
        paper: published figures.
        search: the search space of ``fedlit search``.
        tune: the settings that every trained method tunes; what a method itself has in ``set`` or
            ``tune`` takes precedence.
        tune_seeds: the seeds on whose validation rows tuned settings are chosen, once for all
            clients, by their mean. With ``seeds``, which must be different ones, only the chosen
            settings are trained. None: each client chooses for each seed (see
            :class:`~fedlit.study.method.Method`).
        scenarios: maps each name to the circumstances under which the methods are compared, one
            scenario after another, each in a folder of its own.
        name: the name of its folder; for a study in a file, the file's name.
        folder: a further folder in which configurations are searched; for a study in a file, the
            file's folder.
    """

    methods: dict[str, Method]
    seeds: list[int]
    about: str = ""
    reference: str = "local"
    baselines: dict[str, dict[str, Any] | None] | None = None
    folds: int = 0
    small: int = 500
    choose: str | dict[str, str] | None = None
    checkpoint: Literal["last", "best"] = "last"
    metrics: list[str] | None = None
    bootstrap: int = 300
    matters: float = MATTERS
    leave_one_out: bool = False
    paper: Paper | None = None
    search: Search | None = None
    tune: dict[str, list[Any]] = field(default_factory=dict)
    tune_seeds: list[int] | None = None
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    name: str = "study"
    folder: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", parse_seeds(self.seeds))
        if self.tune_seeds is not None:
            object.__setattr__(self, "tune_seeds", parse_seeds(self.tune_seeds, "tune_seeds"))
            both = sorted({*self.seeds} & {*self.tune_seeds})
            reason = "what is chosen on them is flattered"
            expect(not both, "tune_seeds", "seeds that are not among seeds", both, reason)
        for key, names in (("methods", self.methods), ("scenarios", self.scenarios)):
            for name in names:
                free = NAME.fullmatch(name) and name not in (BEST_ALONE, HINDSIGHT, BEST_FEDERATED)
                expect(bool(free), key, "names of letters, digits, '_' and '-'", name)
        must_be_known("reference", [self.reference], self.methods)
        alone = [self.reference, *(name for name, method in self.methods.items() if method.alone)]
        for name, method in self.methods.items():
            must_be_known(f"methods.{name}.reference", [method.reference or self.reference], alone)
            if method.of is not None:
                whole = [
                    source
                    for source, source_method in self.methods.items()
                    if source_method.of is None
                ]
                must_be_known(f"methods.{name}.of", [method.of], whole)
                tuned = bool(self.methods[method.of].tune)
                expected = "a method whose settings are not tuned"
                do = "write the best settings into its set"
                expect(not tuned, f"methods.{name}.of", expected, method.of, do)
        check_tuned(self.tune)
        if self.search is not None:
            must_be_known("search.method", [self.search.method], self.methods)
        for key, low, high in (
            ("bootstrap", 0, 10**6),
            ("small", 0, 10**9),
            ("folds", 0, 1000),
            ("matters", 0, 100),
        ):
            value = getattr(self, key)
            expect(low <= float(value) < high, key, f"a number from {low} to below {high}", value)
        expect(
            self.folds != 1, "folds", "2 folds or more, 0 for none", self.folds, "4 or 8 are usual"
        )
        expect(self.metrics != [], "metrics", "at least one", self.metrics)

    def for_tasks(self, tasks: Mapping[str, type[Task]]) -> Study:
        """Return the study with defaults for what it leaves out: metrics, the metric to choose by,
        local baselines, and what each method tunes.

        Args:
            tasks: maps each client to its task.

        Raises:
            ConfigError: no client's task has a metric or local baseline, or best checkpoints are
                scored although clients choose by different metrics.
        """
        from fedlit.study.alone import check_alone, default_models
        from fedlit.tasks import COMPARED

        kinds = {task.name: task for task in tasks.values()}
        scores: dict[str, Score] = {}
        shown_metrics = list[str]()
        for task in kinds.values():
            scores |= {score.name: score for score in task.scores if score.name in COMPARED}
            shown_metrics += task.shown_scores()
        main = {client: task.scores[0].name for client, task in tasks.items()}
        choose = self.choose or (main if len(kinds) > 1 else next(iter(main.values())))
        baselines = self.baselines
        if baselines is None:
            baselines = dict(default_models(kinds.values()))
        methods = {
            name: method if method.of else self._tuned(method)
            for name, method in self.methods.items()
        }
        completed = replace(
            self,
            choose=choose,
            metrics=self.metrics or list(dict.fromkeys(shown_metrics)),
            baselines=baselines,
            methods=methods,
            tune={},
        )
        must_be_known(
            "choose",
            completed.choices,
            [name for name, score in scores.items() if not score.test_only],
        )
        must_be_known("metrics", completed.metrics or (), scores)
        check_alone(completed.baselines or {}, completed.methods, tasks)
        if isinstance(completed.choose, dict):
            must_be_known("choose (a metric for each client)", tasks, completed.choose)
            expected = (
                f"last, for clients choose by different metrics ({', '.join(completed.choices)})"
            )
            do = "name one metric that all have as choose"
            expect(completed.checkpoint == "last", "checkpoint", expected, "best", do)
        return completed

    def _tuned(self, method: Method) -> Method:
        """Return a method with the study's ``tune``, except for the keys that the method sets
        itself.
        """
        changed = {plain(key) for key in method.set}
        of_study = {key: values for key, values in self.tune.items() if plain(key) not in changed}
        return replace(method, tune={**of_study, **method.tune})

    @property
    def choices(self) -> list[str]:
        """The metrics to choose by: one, or those of different clients; none if the study leaves
        them open.
        """
        if isinstance(self.choose, dict):
            return list(dict.fromkeys(self.choose.values()))
        return [self.choose] if self.choose else []

    @property
    def all_metrics(self) -> list[str]:
        """The metrics that tables show, and those to choose by."""
        return list(dict.fromkeys([*(self.metrics or ()), *self.choices]))

    @property
    def labels(self) -> dict[str, str]:
        """Maps the name of each method, baseline and best choice to its label, in the order of
        tables.
        """
        from fedlit.study.alone import labels
        from fedlit.tasks.go_alone import is_any_model

        catalogue = cards()
        known_models = labels()
        methods = {
            name: method.label
            or (catalogue[method.method].title if method.method in catalogue else name)
            for name, method in self.methods.items()
        }
        baselines = {
            name: (settings or {}).get("label") or name
            if is_any_model(settings)
            else known_models[name]
            for name, settings in (self.baselines or {}).items()
        }
        best = dict[str, str]()
        if len(self.alone) > 1:
            best |= {BEST_ALONE: "Best alone", HINDSIGHT: "Best alone in hindsight"}
        if self.candidates:
            best[BEST_FEDERATED] = "Best federated"
        return {**methods, **baselines, **best}

    @property
    def alone(self) -> list[str]:
        """The names of what a client can do without others: the reference, other methods without
        exchange, baselines.
        """
        without_exchange = [
            name for name, method in self.methods.items() if method.alone and name != self.reference
        ]
        return [self.reference, *without_exchange, *(self.baselines or ())]

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

    def reference_of(self, method: str) -> str:
        """Return the reference of a method's lift."""
        definition = self.methods.get(method)
        return (
            definition.reference
            if definition is not None and definition.reference is not None
            else self.reference
        )

    def trained(self, method: str) -> str:
        """Return the method that is trained for a method: the method itself, or the one whose parts
        it mixes again.
        """
        return self.methods[method].of or method

    def config(self, method: str) -> Path:
        """Return the file of a method's configuration."""
        config = self.methods[self.trained(method)].config
        expected = "config, over which its method is laid"
        expect(bool(config), f"methods.{method}", expected, config, "or at each scenario")
        return find_config(config, also=Path(self.folder) if self.folder else None)

    def of(self, scenario: str) -> Study:
        """Return the study under one of its scenarios.

        Raises:
            ConfigError: the study has no scenario of this name.
        """
        expect(bool(self.scenarios), self.name, "no scenario, because the study has none", scenario)
        must_be_known("scenarios", [scenario], self.scenarios)
        circumstances = self.scenarios[scenario]
        methods = dict(self.methods)
        for name, method in methods.items():
            # A method that mixes another one's parts again follows that method's changes.
            if method.of is None:
                config = circumstances.config or method.config
                changed = {**circumstances.set, **method.set}
                methods[name] = replace(method, config=config, set=changed)
        return replace(
            self,
            methods=methods,
            about=" ".join(part for part in (self.about, circumstances.about) if part),
            tune={**self.tune, **circumstances.tune},
            paper=circumstances.paper or self.paper,
            scenarios={},
            name=f"{self.name}/{scenario}",
        )

    def restricted(self, methods: Iterable[str] | None, baselines: Iterable[str] | None) -> Study:
        """Return the study with only these methods (and always the reference) and these baselines;
        None stands for all. Its description then states that it is a part of the study.

        Raises:
            ConfigError: a name that the study does not have.
        """
        from fedlit.study.alone import labels

        chosen = list(self.methods if methods is None else methods)
        alone = None if baselines is None else list(baselines)
        available: dict[str, Any] = (
            dict.fromkeys(labels()) if self.baselines is None else self.baselines
        )
        must_be_known("--methods", chosen, self.methods)
        must_be_known("--baselines", alone or (), available)
        included = {self.reference, *chosen, *(self.reference_of(name) for name in chosen)}
        included |= {self.trained(name) for name in included}
        models = available
        baselines_of_part = self.baselines
        if alone is not None:
            models = {name: available[name] for name in available if name in alone}
            baselines_of_part = models
        searched = self.search is not None and self.search.method in included
        search = self.search if searched else None
        kept_methods = {name: method for name, method in self.methods.items() if name in included}
        part_of_study = replace(
            self, methods=kept_methods, baselines=baselines_of_part, search=search
        )
        if (set(part_of_study.methods), set(models)) == (set(self.methods), set(available)):
            return part_of_study
        lists = [", ".join([*names]) or "none" for names in (part_of_study.methods, models)]
        part = f"Part of the study: methods {lists[0]}; local baselines {lists[1]}."
        return replace(part_of_study, about=" ".join(filter(None, [self.about, part])))


def parse_seeds(text: int | str | Iterable[int], key: str = "seeds") -> list[int]:
    """Return the seeds in ``a:b`` (both ends included), in numbers separated by commas, or in both.

    Args:
        text: the seeds as they are written.
        key: the key of the seeds, for messages.

    Raises:
        ConfigError: the text is of another form, or there is no seed, or one occurs twice.

    Example:
        >>> parse_seeds("8:10,20")
        [8, 9, 10, 20]
    """
    if isinstance(text, int):
        seeds = [text]
    elif isinstance(text, str):
        seeds = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", part)
            if not match:
                raise ConfigError(
                    f"{key}: expected such as 8:28 (both ends included) or 1,2,5, found {text!r}"
                )
            first = int(match[1])
            last = int(match[2] or match[1])
            seeds += range(first, last + 1)
    else:
        seeds = list(text)
    if (
        not seeds
        or len(set(seeds)) < len(seeds)
        or not all(type(s) is int and 0 <= s < 2**32 for s in seeds)
    ):
        raise ConfigError(
            f"{key}: expected at least one, none twice, from 0 to 2**32 - 1, found {text!r}"
        )
    return seeds


def seed_words(seeds: Sequence[int]) -> str:
    """Return ``8:17`` for consecutive numbers, otherwise the numbers.

    Example:
        >>> seed_words([8, 9, 10]), seed_words([1, 5])
        ('8:10', '1, 5')
    """
    ordered = sorted(seeds)
    if len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}:{ordered[-1]}"
    return ", ".join(map(str, ordered))
