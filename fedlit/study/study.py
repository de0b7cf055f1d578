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
    from fedlit.tasks import Task


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
            expect(
                not both,
                "tune_seeds",
                "seeds that are not among seeds",
                both,
                "what is chosen on them is flattered",
            )
        for key, names in (("methods", self.methods), ("scenarios", self.scenarios)):
            for name in names:
                free = NAME.fullmatch(name) and name not in (BEST_ALONE, HINDSIGHT, BEST_FEDERATED)
                expect(bool(free), key, "names of letters, digits, '_' and '-'", name)
        must_be_known("reference", [self.reference], self.methods)
        alone = [self.reference, *(name for name, method in self.methods.items() if method.alone)]
        for name, method in self.methods.items():
            must_be_known(f"methods.{name}.reference", [method.reference or self.reference], alone)
            if method.of is not None:
                whole = [other for other, own in self.methods.items() if own.of is None]
                must_be_known(f"methods.{name}.of", [method.of], whole)
                tuned = bool(self.methods[method.of].tune)
                do = "write the best settings into its set"
                expect(
                    not tuned,
                    f"methods.{name}.of",
                    "a method whose settings are not tuned",
                    method.of,
                    do,
                )
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
        scores = {
            score.name: score
            for task in kinds.values()
            for score in task.scores
            if score.name in COMPARED
        }
        shown = [name for task in kinds.values() for name in task.shown_scores()]
        main = {client: task.scores[0].name for client, task in tasks.items()}
        own = replace(
            self,
            choose=self.choose or (main if len(kinds) > 1 else next(iter(main.values()))),
            metrics=self.metrics or list(dict.fromkeys(shown)),
            baselines=dict(default_models(kinds.values()))
            if self.baselines is None
            else self.baselines,
            methods={
                name: method if method.of else self._tuned(method)
                for name, method in self.methods.items()
            },
            tune={},
        )
        must_be_known(
            "choose", own.choices, [name for name, score in scores.items() if not score.test_only]
        )
        must_be_known("metrics", own.metrics or (), scores)
        check_alone(own.baselines or {}, own.methods, tasks)
        if isinstance(own.choose, dict):
            must_be_known("choose (a metric for each client)", tasks, own.choose)
            expected = f"last, for clients choose by different metrics ({', '.join(own.choices)})"
            expect(
                own.checkpoint == "last",
                "checkpoint",
                expected,
                "best",
                "name one metric that all have as choose",
            )
        return own

    def _tuned(self, method: Method) -> Method:
        """Return a method with the study's ``tune``, except for the keys that the method sets
        itself.
        """
        said = {plain(key) for key in method.set}
        return replace(method, tune={**{key: own for key, own in self.tune.items() if plain(key) not in said},
                                     **method.tune})  # fmt: skip

    @property
    def choices(self) -> list[str]:
        """The metrics to choose by: one, or those of different clients; none if the study leaves
        them open.
        """
        named = (
            self.choose.values()
            if isinstance(self.choose, dict)
            else [self.choose]
            if self.choose
            else []
        )
        return list(dict.fromkeys(named))

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

        known = cards()
        known_models = labels()
        methods = {
            name: method.label or (known[method.method].title if method.method in known else name)
            for name, method in self.methods.items()
        }
        baselines = {
            name: (own or {}).get("label") or name if is_any_model(own) else known_models[name]
            for name, own in (self.baselines or {}).items()
        }
        best = (
            {BEST_ALONE: "Best alone", HINDSIGHT: "Best alone in hindsight"}
            if len(self.alone) > 1
            else {}
        )
        best |= {BEST_FEDERATED: "Best federated"} if self.candidates else {}
        return {**methods, **baselines, **best}

    @property
    def alone(self) -> list[str]:
        """The names of what a client can do without others: the reference, other methods without
        exchange, baselines.
        """
        others = [
            name for name, method in self.methods.items() if method.alone and name != self.reference
        ]
        return [self.reference, *others, *(self.baselines or ())]

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
        return [self.best_alone, *([HINDSIGHT] if self.best_alone == BEST_ALONE else [])]

    def reference_of(self, method: str) -> str:
        """Return the reference of a method's lift."""
        own = self.methods.get(method)
        return own.reference if own is not None and own.reference is not None else self.reference

    def trained(self, method: str) -> str:
        """Return the method that is trained for a method: the method itself, or the one whose parts
        it mixes again.
        """
        return self.methods[method].of or method

    def config(self, method: str) -> Path:
        """Return the file of a method's configuration."""
        found = self.methods[self.trained(method)].config
        expect(
            bool(found),
            f"methods.{method}",
            "config, over which its method is laid",
            found,
            "or at each scenario",
        )
        return find_config(found, also=Path(self.folder) if self.folder else None)

    def of(self, scenario: str) -> Study:
        """Return the study under one of its scenarios.

        Raises:
            ConfigError: the study has no scenario of this name.
        """
        expect(bool(self.scenarios), self.name, "no scenario, because the study has none", scenario)
        must_be_known("scenarios", [scenario], self.scenarios)
        own = self.scenarios[scenario]
        return replace(
            self,
            methods={
                name: method  # what is mixed anew is the changed method's
                if method.of is not None
                else replace(
                    method, config=own.config or method.config, set={**own.set, **method.set}
                )
                for name, method in self.methods.items()
            },
            about=" ".join(part for part in (self.about, own.about) if part),
            tune={**self.tune, **own.tune},
            paper=own.paper or self.paper,
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
        known: dict[str, Any] = (
            dict.fromkeys(labels()) if self.baselines is None else self.baselines
        )
        must_be_known("--methods", chosen, self.methods)
        must_be_known("--baselines", alone or (), known)
        kept = {self.reference, *chosen, *(self.reference_of(name) for name in chosen)}
        kept |= {self.trained(name) for name in kept}
        models = known if alone is None else {name: known[name] for name in known if name in alone}
        own = replace(
            self,
            methods={name: own for name, own in self.methods.items() if name in kept},
            baselines=self.baselines if alone is None else models,
            search=self.search if self.search is not None and self.search.method in kept else None,
        )
        if (set(own.methods), set(models)) == (set(self.methods), set(known)):
            return own
        told = [", ".join([*names]) or "none" for names in (own.methods, models)]
        part = f"Part of the study: methods {told[0]}; local baselines {told[1]}."
        return replace(own, about=" ".join(filter(None, [self.about, part])))


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
    own = sorted(seeds)
    if len(own) > 1 and own == list(range(own[0], own[-1] + 1)):
        return f"{own[0]}:{own[-1]}"
    return ", ".join(map(str, own))
