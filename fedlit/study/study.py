"""What a study is: experiments, seeds, baselines, and by what they are chosen. Read from one YAML."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.config import find_config, read_yaml

__all__ = [
    "BASELINES",
    "BEST_ALONE",
    "BEST_FEDERATED",
    "METRICS",
    "Method",
    "Paper",
    "Scenario",
    "Search",
    "Study",
    "coded_choices",
    "load_study",
    "parse_seeds",
    "refuse_row_key",
]

# The go-alone models by name; fedlit.study.baselines has what they are.
BASELINES = {
    "extra_trees": "Extra trees",
    "gradient_boosting": "Gradient boosting",
    "logistic_regression": "Logistic regression",
}
BEST_ALONE, BEST_FEDERATED = "best_alone", "best_federated"
METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "balanced_accuracy": "Balanced accuracy",
    "accuracy": "Accuracy",
    "f1": "F1",
    "weighted_f1": "Weighted F1",
    "auroc_ovo": "AUROC, one versus one",
}
TEST_ONLY = frozenset({"auroc_ovo"})  # not computed on validation rows
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Method:
    """An experiment of a study.

    Attributes:
        config: its configuration: a name, or a path.
        label: how it is called in tables.
        set: keys of the configuration to change, by dotted name.
        alone: whether each client trains by itself: it is then one of the go-alone models, and no lift is computed.
        pooled: whether it needs all rows in one place: shown for comparison, but no answer to who should join.
        reference: the method that its lift is over, if not the study's: the same network trained alone.
        tune: dotted key → values. All combinations are trained, and per seed each client's results are those of the
            one that is best on its own validation rows, the first of equals: as go-alone models choose theirs. Each
            combination is a federation of its own: a client that chooses other settings than its neighbours chose
            another federation than they did, not other settings within theirs. A seed for which a combination failed
            is left out, a combination that failed for every seed is too.
    """

    config: str
    label: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    pooled: bool = False
    reference: str | None = None
    tune: dict[str, list[Any]] = field(default_factory=dict)

    def arguments(self, settings: Mapping[str, Any] | None = None) -> list[str]:
        """The changed keys as command-line arguments, with those of a combination."""
        changed = {**self.set, **(settings or {})}
        return [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in changed.items()]

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """Of the values of ``tune``, the last key's changing fastest; an empty one where nothing is tuned.

        Example:
            >>> Method("quickstart", tune={"exchange.rate": [0.5, 1.0]}).combinations
            [{'exchange.rate': 0.5}, {'exchange.rate': 1.0}]
        """
        return [dict(zip(self.tune, values, strict=True)) for values in itertools.product(*self.tune.values())]


@dataclass(frozen=True)
class Paper:
    """Published figures to stand beside the study's own.

    Attributes:
        source: where they are from.
        values: method → client → metric → value in %.
        remarks: method, or ``all`` → in what the figures' convention differs from fedlit's.
    """

    source: str
    values: dict[str, dict[str, dict[str, float]]]
    remarks: dict[str, str] = field(default_factory=dict)

    def value(self, method: str, client: str, metric: str) -> float | None:
        """A figure in %, None if there is none."""
        return self.values.get(method, {}).get(client, {}).get(metric)


@dataclass(frozen=True)
class Search:
    """What ``fedlit search`` varies.

    Attributes:
        method: the study's method whose configuration is varied.
        space: dotted key → ``{choices: [...]}`` or ``{low: a, high: b}``, with ``log: true`` for a logarithmic scale.
            Whole numbers at both ends give whole numbers.
        seeds: each trial is trained with these and judged by the mean over them.
        sampler: ``bayesian`` (tree-structured Parzen estimator) or ``random``.
        judge: judged by the mean over clients of the choice metric on validation, or by the ``worst`` client.
    """

    method: str
    space: dict[str, dict[str, Any]]
    seeds: list[int] = field(default_factory=lambda: [0])
    sampler: Literal["bayesian", "random"] = "bayesian"
    judge: Literal["mean", "worst"] = "mean"


@dataclass(frozen=True)
class Scenario:
    """Other circumstances for all methods of a study: other data, mostly.

    Attributes:
        config: the configuration that takes the place of the methods' own; a name, or a path.
        set: keys of the configuration to change, by dotted name; what a method sets itself counts more.
        about: what is different, in a sentence.
    """

    config: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    about: str = ""


@dataclass(frozen=True)
class Study:
    """Experiments that are compared on the same rows with the same seeds.

    Attributes:
        methods: name → experiment.
        seeds: each method is trained with each; in the file also ``a:b`` (both ends included) and ``1,2,5``.
        about: what is studied, in a sentence.
        reference: the method that is each client training alone: lifts are over it, and the baselines get its data.
        baselines: the go-alone models, by name; each with its grid of settings, null for the default one.
        choose: the metric, on validation, by which settings of baselines and tuned methods, the best go-alone model,
            best checkpoints and trials of a search are chosen.
        checkpoint: which state of a run is scored on the test split: ``last`` epoch, or the ``best`` by ``choose``.
        metrics: what tables show, the main one first.
        bootstrap: resamples of the test rows, for intervals where all seeds have the same; 0 for none (where
            seeds draw splits anew, they are not used).
        keep_checkpoints: whether runs keep theirs.
        paper: published figures.
        search: what ``fedlit search`` varies.
        scenarios: name → circumstances under each of which the methods are compared, one after another, each in a
            folder of its own.
        name: what its folder is called; of a study in a file, the file's name.
        folder: where configurations are also looked for; of a study in a file, beside it.
    """

    methods: dict[str, Method]
    seeds: list[int]
    about: str = ""
    reference: str = "local"
    baselines: dict[str, dict[str, list[Any]] | None] = field(default_factory=lambda: dict.fromkeys(BASELINES))
    choose: str = "auroc"
    checkpoint: Literal["last", "best"] = "last"
    metrics: list[str] = field(default_factory=lambda: ["auroc", "balanced_accuracy", "auprc"])
    bootstrap: int = 300
    keep_checkpoints: bool = False
    paper: Paper | None = None
    search: Search | None = None
    scenarios: dict[str, Scenario] = field(default_factory=dict)
    name: str = "study"
    folder: str = ""

    def __post_init__(self) -> None:
        if not self.methods:
            raise ConfigError("methods: expected at least one, found none")
        for name in self.methods:
            if not _NAME.fullmatch(name) or name in (*BASELINES, BEST_ALONE, BEST_FEDERATED):
                raise ConfigError(
                    f"methods: expected names of letters, digits, '_' and '-' that no baseline has, found {name!r}"
                )
        object.__setattr__(self, "seeds", parse_seeds(self.seeds))
        _known("reference", [self.reference], self.methods)
        for name, method in self.methods.items():
            alone = [self.reference, *(other for other, own in self.methods.items() if own.alone)]
            _known(f"methods.{name}.reference", [method.reference or self.reference], alone)
            plain = {str(other).replace(".init_args", "") for other in method.set}
            for key, values in method.tune.items():
                try:
                    refuse_row_key(key)
                    coded_choices(values)
                    if key.replace(".init_args", "") in plain:
                        raise ConfigError("expected a key that is not in set, found it there too; drop one of them")
                except ConfigError as error:
                    raise ConfigError(f"methods.{name}.tune.{key}: {error}") from error
        _known("baselines", self.baselines, BASELINES)
        _known("choose", [self.choose], [metric for metric in METRICS if metric not in TEST_ONLY])
        _known("metrics", self.metrics, METRICS)
        if not self.metrics:
            raise ConfigError(f"metrics: expected at least one of {', '.join(METRICS)}, found none")
        if self.bootstrap < 0:
            raise ConfigError(f"bootstrap: expected a number of resamples, 0 for none, found {self.bootstrap}")
        if self.search is not None:
            _known("search.method", [self.search.method], self.methods)
        for name in self.scenarios:
            if not _NAME.fullmatch(name):
                raise ConfigError(f"scenarios: expected names of letters, digits, '_' and '-', found {name!r}")

    @property
    def all_metrics(self) -> list[str]:
        """Those that tables show and the one to choose by."""
        return list(dict.fromkeys([*self.metrics, self.choose]))

    @property
    def labels(self) -> dict[str, str]:
        """Name → label, of methods, baselines and the best of both kinds, in the order of tables."""
        methods = {name: method.label or name for name, method in self.methods.items()}
        baselines = {name: BASELINES[name] for name in self.baselines}
        best = {BEST_ALONE: "Best go-alone"} if len(self.alone) > 1 else {}
        best |= {BEST_FEDERATED: "Best federated"} if self.candidates else {}
        return {**methods, **baselines, **best}

    @property
    def alone(self) -> list[str]:
        """What a client can do without others: the reference, other methods without exchange, and the baselines."""
        others = [name for name, method in self.methods.items() if method.alone and name != self.reference]
        return [self.reference, *others, *self.baselines]

    @property
    def federated(self) -> list[str]:
        """The methods in which clients gain from each other."""
        return [name for name in self.methods if name not in self.alone]

    @property
    def candidates(self) -> list[str]:
        """What a client could join: the federated methods that leave rows where they are."""
        return [name for name in self.federated if not self.methods[name].pooled]

    @property
    def best_alone(self) -> str:
        """What a client would do alone: the best go-alone model, or the reference where there is no other."""
        return BEST_ALONE if len(self.alone) > 1 else self.reference

    def reference_of(self, method: str) -> str:
        """What a method's lift is over."""
        own = self.methods.get(method)
        return own.reference if own is not None and own.reference is not None else self.reference

    def config(self, method: str) -> Path:
        """The file of a method's configuration."""
        return find_config(self.methods[method].config, also=Path(self.folder) if self.folder else None)

    def of(self, scenario: str) -> Study:
        """The study under one of its scenarios.

        Raises:
            ConfigError: there is none of this name.
        """
        if not self.scenarios:
            raise ConfigError(f"{self.name}: expected no scenario, for the study has none, found {scenario!r}")
        _known("scenarios", [scenario], self.scenarios)
        own = self.scenarios[scenario]
        return replace(
            self,
            methods={
                name: replace(method, config=own.config or method.config, set={**own.set, **method.set})
                for name, method in self.methods.items()
            },
            about=" ".join(part for part in (self.about, own.about) if part),
            scenarios={},
            name=f"{self.name}/{scenario}",
        )

    def restricted(self, methods: Iterable[str] | None, baselines: Iterable[str] | None) -> Study:
        """The study with these methods (the reference always among them) and these baselines only; None for all.

        Raises:
            ConfigError: a name that the study does not have.
        """
        chosen = list(self.methods if methods is None else methods)
        alone = list(self.baselines if baselines is None else baselines)
        _known("--methods", chosen, self.methods)
        _known("--baselines", alone, self.baselines)
        kept = {self.reference, *chosen, *(self.reference_of(name) for name in chosen)}
        return replace(
            self,
            methods={name: own for name, own in self.methods.items() if name in kept},
            baselines={name: own for name, own in self.baselines.items() if name in alone},
            search=self.search if self.search is not None and self.search.method in kept else None,
        )


def _known(key: str, found: Iterable[str], known: Iterable[str]) -> None:
    for name in found:
        if name not in known:
            raise ConfigError(
                f"{key}: expected some of {', '.join(known)}, found {name!r}." + did_you_mean(name, known)
            )


def refuse_row_key(key: str) -> None:
    """Refuse a key with which values could not be compared on validation.

    Raises:
        ConfigError: it draws or changes rows, or is none.
    """
    if not isinstance(key, str) or key.startswith(("seed", "data.source", "data.mutations", "data.pool")):
        raise ConfigError(
            "expected a key of the configuration that leaves the rows alone, found one that draws other validation "
            f"rows, or none ({key!r}); drop it"
        )


def coded_choices(found: Any) -> list[str]:
    """Values to choose from, as JSON.

    Raises:
        ConfigError: there are none, or one is there twice.
    """
    try:
        coded = [json.dumps(choice) for choice in found] if isinstance(found, list) else []
    except TypeError as error:
        raise ConfigError(f"expected numbers, text, lists and such, found {found!r} ({error})") from error
    if not coded or len(set(coded)) < len(coded):
        raise ConfigError(f"expected a list of at least one value and none twice, found {found!r}")
    return coded


def parse_seeds(text: int | str | Iterable[int]) -> list[int]:
    """Seeds from ``a:b`` (both ends included), numbers divided by commas, or both.

    Raises:
        ConfigError: anything else, none at all, or one twice.

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
                raise ConfigError(f"seeds: expected such as 8:28 (both ends included) or 1,2,5, found {text!r}")
            first, last = int(match[1]), int(match[2] or match[1])
            seeds += range(first, last + 1)
    else:
        seeds = list(text)
    if not seeds or len(set(seeds)) < len(seeds) or not all(type(s) is int and 0 <= s < 2**32 for s in seeds):
        raise ConfigError(f"seeds: expected at least one, none twice, from 0 to 2**32 - 1, found {text!r}")
    return seeds


def load_study(name: str) -> Study:
    """Read a study.

    Args:
        name: a path, or the name of a YAML in this folder, in ``configs/studies/``, or of those that came with fedlit.

    Raises:
        ConfigError: there is none, or it is not valid.

    Example:
        >>> sorted(load_study("quickstart").methods)
        ['gl', 'gl_step', 'local']
    """
    path = find_config(name, studies=True)
    try:
        return _parse(read_yaml(path), path)
    except ConfigError as error:
        raise error if str(error).startswith(str(path)) else ConfigError(f"{path}: {error}") from error


def _parse(content: Mapping[str, Any], path: Path) -> Study:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--study", type=Study)
    content = dict(content)
    for part in (content, content.get("search")):
        if isinstance(part, dict) and "seeds" in part:
            part["seeds"] = parse_seeds(part["seeds"])
    if isinstance(content.get("baselines"), list):
        content["baselines"] = dict.fromkeys(content["baselines"])
    # Left out of the parsing, which would complete a class_path inside with defaults that are not the configuration's.
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for group in ("methods", "scenarios"):
        if isinstance(content.get(group), dict):
            content[group] = dict(content[group])
            for name, own in content[group].items():
                if isinstance(own, dict):
                    kept = {key: own[key] for key in ("set", "tune") if isinstance(own.get(key), dict)}
                    content[group][name] = {key: own[key] for key in own if key not in kept}
                    changes[group, name] = kept
    for key in ("name", "folder"):
        if key in content:
            raise ConfigError(f"{path}: expected no key {key!r}, found one; a study is named after its file")
    try:
        study: Study = parser.instantiate(
            parser.parse_object({"study": {**content, "name": path.stem, "folder": str(path.parent)}})
        ).study
    except ConfigError:
        raise
    except Exception as error:  # jsonargparse raises many kinds
        reason = " ".join(str(error).split()).removeprefix('Parser key "study": ')
        raise ConfigError(f"{path}: expected a study, found: {reason}") from error
    methods = {name: replace(own, **changes.get(("methods", name), {})) for name, own in study.methods.items()}
    scenarios = {name: replace(own, **changes.get(("scenarios", name), {})) for name, own in study.scenarios.items()}
    return replace(study, methods=methods, scenarios=scenarios)
