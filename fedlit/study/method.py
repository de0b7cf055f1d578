"""The parts of a study: a method, published figures, a search's space, a scenario."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.mixture.settings import Mixing

__all__ = [
    "NAME", "Method", "Paper", "Scenario", "Search", "check_tuned", "coded_choices", "must_be_known", "plain",
    "refuse_row_key",
]  # fmt: skip

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Method:
    """An experiment of a study.

    Attributes:
        config: its configuration: a name, or a path. One with ``mixture:`` is a run of several parts.
        label: how it is called in tables.
        set: keys of the configuration to change, by dotted name.
        alone: whether each client trains by itself: it is then one of the local baselines, and no lift is computed.
        pooled: whether it needs all rows in one place: shown for comparison, but no answer to who should join.
        reference: the method that its lift is over, if not the study's: the same network trained alone.
        tune: dotted key → values. All combinations are trained, and per seed each client's results are those of the
            one that is best on its own validation rows, the first of equals: as local baselines choose theirs. Each
            combination is a federation of its own: a client that chooses other settings than its neighbours chose
            another federation than they did, not other settings within theirs. A seed for which a combination failed
            is left out, a combination that failed for every seed is too.
        of: a method whose configuration has ``mixture:``; this one mixes its parts anew, from stored predictions, and
            trains nothing. It stands in the place of ``config``.
        parts: which of them; all if empty.
        weights: ``equal``, ``half_own``, ``fitted`` to held-out rows, chosen ``together`` by all clients, or part →
            weight.
        admit: whether federated parts enter only where they do not make held-out rows worse.
        shrink: how many rows each part's equal weight counts where weights are fitted.
        method: what makes the configuration this method's: a name that ``fedlit methods`` lists, or the path of a YAML
            file of one's own, which lies over the configuration.
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
            found = "both" if self.of else "neither"
            raise ConfigError(
                f"expected config or method (what is trained) or of (whose parts are mixed anew), found {found}"
            )
        if self.of and (self.set or self.tune):
            raise ConfigError("expected set and tune at the method that is trained, found them beside of; drop them")
        Mixing(self.weights, self.shrink, self.admit)  # refuses what cannot be meant
        check_tuned(self.tune, self.set)

    @property
    def mixing(self) -> dict[str, Any]:
        """How parts of another method are mixed."""
        return {name: getattr(self, name) for name in ("weights", "shrink", "admit")}

    def overrides(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The changed keys of the configuration → their values, with those of a combination."""
        return {**({"method": self.method} if self.method else {}), **self.set, **(settings or {})}

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
        values: method → client, ``(mean)`` or ``(worst)`` → metric → value, in % where the metric is in percent.
        remarks: method, or ``all`` → in what the figures' convention differs from fedlit's.
    """

    source: str
    values: dict[str, dict[str, dict[str, float]]]
    remarks: dict[str, str] = field(default_factory=dict)

    def value(self, method: str, client: str, metric: str) -> float | None:
        """A figure, None if there is none."""
        return self.values.get(method, {}).get(client, {}).get(metric)


@dataclass(frozen=True)
class Search:
    """What ``fedlit search`` varies.

    Attributes:
        method: the study's method whose configuration is varied.
        space: dotted key → ``{choices: [...]}`` or ``{low: a, high: b}``, with ``log: true`` for a logarithmic scale.
            Whole numbers at both ends give whole numbers.
        seeds: each trial is trained with these, and judged by the mean over them and over clients of the metric to
            choose by, on validation.
    """

    method: str
    space: dict[str, dict[str, Any]]
    seeds: list[int] = field(default_factory=lambda: [0])


@dataclass(frozen=True)
class Scenario:
    """Other circumstances for all methods of a study: other data, mostly.

    Attributes:
        config: the configuration that takes the place of the methods' own; a name, or a path.
        set: keys of the configuration to change, by dotted name; what a method sets itself counts more.
        about: what is different, in a sentence.
        tune: what all methods tune here, in the place of the study's own ``tune``.
        paper: published figures of these circumstances; the study's own if None.
    """

    config: str | None = None
    set: dict[str, Any] = field(default_factory=dict)
    about: str = ""
    tune: dict[str, list[Any]] = field(default_factory=dict)
    paper: Paper | None = None


def must_be_known(key: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that nobody knows.

    Raises:
        ConfigError: one of them, with the key where it stands and what is known.
    """
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
    if not isinstance(key, str) or key.startswith(
        ("seed", "data.source", "data.mutations", "data.pool", "data.leave_out")
    ):
        raise ConfigError(f"expected a key of the configuration that leaves the rows alone, found {key!r}; drop it")


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


def plain(key: str) -> str:
    """A dotted key as people write it, who may leave out ``init_args``."""
    return str(key).replace(".init_args", "")


def check_tuned(tuned: Mapping[str, Any], changed: Iterable[str] = ()) -> None:
    """Refuse what cannot be tuned.

    Args:
        tuned: dotted key → values.
        changed: keys that are changed anyway.

    Raises:
        ConfigError: one of the keys, or its values.
    """
    for key, values in tuned.items():
        try:
            refuse_row_key(key)
            coded_choices(values)
            if plain(key) in map(plain, changed):
                raise ConfigError("expected a key that is not in set, found it there too; drop one of them")
        except ConfigError as error:
            raise ConfigError(f"tune.{key}: {error}") from error
