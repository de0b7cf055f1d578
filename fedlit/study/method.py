"""The parts of a study: a method, published figures, a search space, a scenario."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlit.errors import ConfigError
from fedlit.mixture.settings import Mixing
from fedlit.study.seeds import Seeds, parse_seeds

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Method:
    """A method that a study compares.

    Attributes:
        config: the name or path of its configuration. A configuration with ``mixture:`` is a run of
            several parts.
        label: its name in tables.
        set: configuration keys to change, by dotted name.
        alone: whether each client trains by itself: the method is then one of the local baselines,
            and no lift is computed for it.
        pooled: whether it needs all rows in one place: it is shown for comparison, but is no answer
            to who should join.
        reference: the method over which its lift is computed, if not the study's reference: the
            same network trained alone.
        tune: maps each dotted key to the values to try. All combinations are trained, and for each
            seed each client's results are those of the combination that is best on its validation
            rows, the first among equals, in the same way as local baselines choose theirs. Each
            combination is a federation of its own: a client that chooses other settings than its
            neighbours has chosen another federation than they did, not other settings within
            theirs. A seed for which a combination failed is left out; a combination that failed for
            every seed is left out, too.
        of: a method whose configuration has ``mixture:``; this method mixes its parts again, from
            stored predictions, and trains nothing. It replaces ``config``.
        parts: the parts to mix; all if empty.
        weights: ``equal``, ``half_own``, ``fitted`` to held-out rows, chosen ``together`` by all
            clients, or a mapping of each part to its weight.
        admit: whether federated parts are used only if they do not make held-out rows worse.
        shrink: the number of rows that each part's equal weight counts for if weights are fitted.
        method: the method that the configuration is changed to: a name that ``fedlit methods``
            lists, or the path of a YAML file of the user, which is laid over the configuration.
    """

    config: str = ""
    label: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    pooled: bool = False
    reference: str | None = None
    tune: dict[str, list[Any]] = field(default_factory=dict)
    of: str | None = None
    parts: list[str] = field(default_factory=list)
    weights: str | dict[str, float] = "equal"
    admit: bool = False
    shrink: float = 100.0
    method: str = ""

    def __post_init__(self) -> None:
        if bool(self.config or self.method) == bool(self.of):
            named = "both" if self.of else "neither"
            raise ConfigError(
                "expected config or method (what is trained) or of (whose parts are mixed anew), "
                f"found {named}"
            )
        if self.of and (self.set or self.tune):
            raise ConfigError(
                "set, tune: expected at the method that is trained, found beside of; drop them"
            )
        Mixing(self.weights, self.shrink, self.admit)  # refuses what cannot be meant
        check_tuned(self.tune, self.set)

    @property
    def mixing(self) -> dict[str, Any]:
        """The settings by which the parts of another method are mixed."""
        return {name: getattr(self, name) for name in ("weights", "shrink", "admit")}

    def overrides(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Map each changed configuration key to its value, including those of a combination of
        settings.
        """
        return {**({"method": self.method} if self.method else {}), **self.set, **(settings or {})}

    @property
    def combinations(self) -> list[dict[str, Any]]:
        """All combinations of the values of ``tune``, with the values of the last key changing
        fastest; one empty combination if nothing is tuned.

        Example:
            >>> Method("quickstart", tune={"exchange.rate": [0.5, 1.0]}).combinations
            [{'exchange.rate': 0.5}, {'exchange.rate': 1.0}]
        """
        return [
            dict(zip(self.tune, values, strict=True))
            for values in itertools.product(*self.tune.values())
        ]


@dataclass(frozen=True)
class Paper:
    """Published figures to compare with the study's.

    Attributes:
        source: the source of the figures.
        items: the paper's tables, figures and claims that the study repeats, such as ``Table 2``.
        values: maps each method → client, ``(mean)`` or ``(worst)`` → metric to its value, in % if
            the metric is in percent; empty if the paper only draws them.
        remarks: maps each method, or ``all``, to how the convention of its figures differs from
            fedlit's.
    """

    source: str
    items: list[str] = field(default_factory=list)
    values: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)

    def value(self, method: str, client: str, metric: str) -> float | None:
        """Return a figure, or None if there is none."""
        return self.values.get(method, {}).get(client, {}).get(metric)


@dataclass(frozen=True)
class Search:
    """What ``fedlit search`` varies.

    Attributes:
        method: the study's method whose configuration is varied.
        space: dotted key → ``{choices: [...]}`` or ``{low: a, high: b}``, with ``log: true`` for a
            logarithmic scale. Whole numbers at both ends give whole numbers.
        seeds: each trial is trained with these, and judged by the mean over them and over clients
            of the metric to choose by, on validation.
    """

    method: str
    space: dict[str, dict[str, Any]]
    seeds: Seeds = 0

    def __post_init__(self) -> None:
        parse_seeds(self.seeds)  # refuses what is none


@dataclass(frozen=True)
class Scenario:
    """Changed circumstances, mostly other data, for all methods of a study.

    Attributes:
        config: the configuration that replaces those of the methods; a name or a path.
        set: configuration keys to change, by dotted name; keys that a method sets itself take
            precedence.
        about: a sentence on what is different.
        tune: what all methods tune here, in addition to the study's ``tune``; a key of both has the
            values given here.
        paper: published figures for these circumstances; the study's if None.
    """

    config: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    about: str = ""
    tune: dict[str, list[Any]] = field(default_factory=dict)
    paper: Paper | None = None


def refuse_row_key(key: str) -> None:
    """Refuse a key that would make values on validation rows incomparable.

    Raises:
        ConfigError: the key selects or changes rows, or is no key.
    """
    if not isinstance(key, str) or key.startswith(
        ("seed", "data.source", "data.mutations", "data.pool", "data.leave_out")
    ):
        raise ConfigError(
            f"expected a key of the configuration that leaves the rows alone, found {key!r}; drop "
            "it"
        )


def coded_choices(choices: Any) -> list[str]:
    """Return the values to choose from, encoded as JSON.

    Raises:
        ConfigError: there are no values, or one occurs twice.
    """
    try:
        coded = [json.dumps(choice) for choice in choices] if isinstance(choices, list) else []
    except TypeError as error:
        raise ConfigError(
            f"expected numbers, text, lists and such, found {choices!r} ({error})"
        ) from error
    if not coded or len(set(coded)) < len(coded):
        raise ConfigError(
            f"expected a list of at least one value and none twice, found {choices!r}"
        )
    return coded


def plain(key: str) -> str:
    """Return a dotted key as users write it, without ``init_args``."""
    return str(key).replace(".init_args", "")


def check_tuned(tuned: Mapping[str, Any], changed: Iterable[str] = ()) -> None:
    """Refuse keys and values that cannot be tuned.

    Args:
        tuned: maps each dotted key to its values.
        changed: keys that are changed in any case.

    Raises:
        ConfigError: a key or its values are not allowed.
    """
    for key, values in tuned.items():
        try:
            refuse_row_key(key)
            coded_choices(values)
            if plain(key) in map(plain, changed):
                raise ConfigError(
                    "expected a key that is not in set, found it there too; drop one of them"
                )
        except ConfigError as error:
            raise ConfigError(f"tune.{key}: {error}") from error
