"""A study as it is written in a file or in Python: methods, seeds, baselines, and how clients choose.

Nothing here needs the clients' tables. :func:`fedlit.study.resolve.resolve` completes a study by
their tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedlit.answers.verdict import MATTERS
from fedlit.errors import ConfigError, expect, must_be_known
from fedlit.run.config import find_config
from fedlit.study.method import NAME, Method, Paper, Scenario, Search, check_tuned
from fedlit.study.seeds import Seeds, parse_seeds

BEST_ALONE = "best_alone"
HINDSIGHT = "best_alone_in_hindsight"
BEST_FEDERATED = "best_federated"
BEST = (BEST_ALONE, HINDSIGHT, BEST_FEDERATED)
"""The names of what is chosen among the methods and baselines of a study."""
_LIMITS = {"bootstrap": 10**6, "small": 10**9, "folds": 1000, "matters": 100}
"""Key → the number below which its value must be; the least value is 0."""


class Lineup:
    """The methods of a study, and the questions that they alone answer.

    Attributes:
        methods: maps each name to a method.
        reference: the method in which each client trains alone.
        checkpoint: the state of a run that is scored.
        folder: a further folder in which configurations are searched.
    """

    methods: dict[str, Method]
    reference: str
    checkpoint: Literal["last", "best"]
    folder: str

    def reference_of(self, method: str) -> str:
        """Return the reference of a method's lift."""
        definition = self.methods.get(method)
        if definition is None or definition.reference is None:
            return self.reference
        return definition.reference

    def trained(self, method: str) -> str:
        """Return the method that is trained for a method: the method itself, or the one whose parts
        it mixes again.
        """
        return self.methods[method].of or method

    def config(self, method: str) -> Path:
        """Return the file of a method's configuration."""
        config = self.methods[self.trained(method)].config
        if not config:
            raise ConfigError(
                f"methods.{method}: expected config, over which its method is laid, found none; "
                "give it here or at each scenario"
            )
        return find_config(config, also=Path(self.folder) if self.folder else None)

    @property
    def variants(self) -> list[tuple[str, dict[str, Any]]]:
        """All methods with each of their combinations of settings. A method that is not tuned has
        one empty combination.
        """
        pairs = list[tuple[str, dict[str, Any]]]()
        for name, method in self.methods.items():
            pairs += [(name, settings) for settings in method.combinations]
        return pairs


@dataclass(frozen=True)
class StudyFile(Lineup):
    """Methods that are compared on the same rows with the same seeds.

    Attributes:
        methods: maps each name to a method.
        seeds: the seeds with which each method is trained: a number, a list, ``a:b`` (both ends
            included) or ``1,2,5``.
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
    seeds: Seeds
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
    tune_seeds: Seeds | None = None
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    name: str = "study"
    folder: str = ""

    def __post_init__(self) -> None:
        _check_seeds(self.seeds, self.tune_seeds)
        _check_names("methods", self.methods)
        _check_names("scenarios", self.scenarios)
        _check_references(self.methods, self.reference)
        _check_mixed_again(self.methods)
        check_tuned(self.tune)
        if self.search is not None:
            must_be_known("search.method", [self.search.method], self.methods)
        for key, limit in _LIMITS.items():
            value = getattr(self, key)
            expect(0 <= float(value) < limit, key, f"a number from 0 to below {limit}", value)
        if self.folds == 1:
            raise ConfigError(
                "folds: expected 2 folds or more, 0 for none, found 1; 4 or 8 are usual"
            )
        if self.metrics == []:
            raise ConfigError("metrics: expected at least one, found []")

    def of(self, scenario: str) -> StudyFile:
        """Return the study under one of its scenarios, as if it had been written for it.

        Raises:
            ConfigError: the study has no scenario of this name.
        """
        if not self.scenarios:
            raise ConfigError(
                f"{self.name}: expected no scenario, because the study has none, found {scenario!r}"
            )
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
            about=" ".join(filter(None, [self.about, circumstances.about])),
            tune={**self.tune, **circumstances.tune},
            paper=circumstances.paper or self.paper,
            scenarios={},
            name=f"{self.name}/{scenario}",
        )

    def restricted(
        self, methods: Iterable[str] | None, baselines: Iterable[str] | None
    ) -> StudyFile:
        """Return the study with only these methods (and always the reference) and these baselines;
        None stands for all. Its description then states that it is a part of the study.

        Raises:
            ConfigError: a name that the study does not have.
        """
        part = self._with_methods(list(self.methods if methods is None else methods))
        if baselines is not None:
            part = part._with_baselines(list(baselines))
        fewer_models = len(part._available) < len(self._available)
        if len(part.methods) == len(self.methods) and not fewer_models:
            return part
        trained = ", ".join(part.methods)
        fitted = ", ".join(part._available) or "none"
        sentence = f"Part of the study: methods {trained}; local baselines {fitted}."
        return replace(part, about=" ".join(filter(None, [self.about, sentence])))

    @property
    def _available(self) -> Mapping[str, dict[str, Any] | None]:
        """The local baselines that may be named: all of fedlit if the study leaves them out."""
        from fedlit.study.alone import names_alone

        return dict.fromkeys(names_alone()) if self.baselines is None else self.baselines

    def _with_methods(self, chosen: list[str]) -> StudyFile:
        """Return the study with these methods, and with those that they need."""
        must_be_known("--methods", chosen, self.methods)
        included = {self.reference, *chosen, *(self.reference_of(name) for name in chosen)}
        included |= {self.trained(name) for name in included}
        methods = {name: method for name, method in self.methods.items() if name in included}
        searched = self.search is not None and self.search.method in included
        search = self.search if searched else None
        return replace(self, methods=methods, search=search)

    def _with_baselines(self, chosen: list[str]) -> StudyFile:
        """Return the study with these local baselines."""
        available = self._available
        must_be_known("--baselines", chosen, available)
        models = {name: available[name] for name in available if name in chosen}
        return replace(self, baselines=models)


Study = StudyFile
"""The public name of :class:`StudyFile`: a study in Python has the keys of one in a file."""


def _check_seeds(seeds: Seeds, tune_seeds: Seeds | None) -> None:
    """Refuse seeds that are none, and settings that are chosen on the seeds of the study."""
    numbers = parse_seeds(seeds)
    if tune_seeds is None:
        return
    both = sorted(set(numbers).intersection(parse_seeds(tune_seeds, "tune_seeds")))
    if both:
        raise ConfigError(
            f"tune_seeds: expected seeds that are not among seeds, found {both!r}; what is chosen "
            "on them is flattered"
        )


def _check_names(key: str, names: Iterable[str]) -> None:
    """Refuse names that are no names of folders, or that stand for what is chosen."""
    for name in names:
        free = NAME.fullmatch(name) is not None and name not in BEST
        expect(free, key, "names of letters, digits, '_' and '-'", name)


def _check_references(methods: Mapping[str, Method], reference: str) -> None:
    """Refuse references that are no methods alone."""
    must_be_known("reference", [reference], methods)
    alone = [reference, *(name for name, method in methods.items() if method.alone)]
    for name, method in methods.items():
        must_be_known(f"methods.{name}.reference", [method.reference or reference], alone)


def _check_mixed_again(methods: Mapping[str, Method]) -> None:
    """Refuse methods that mix the parts of a method that is itself mixed again, or tuned."""
    trained = [name for name, method in methods.items() if method.of is None]
    for name, method in methods.items():
        if method.of is None:
            continue
        must_be_known(f"methods.{name}.of", [method.of], trained)
        if methods[method.of].tune:
            raise ConfigError(
                f"methods.{name}.of: expected a method whose settings are not tuned, found "
                f"{method.of!r}; write the best settings into its set"
            )
