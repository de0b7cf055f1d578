"""The space of a search: what a study says of it, as Optuna's distributions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from fedlit.errors import ConfigError
from fedlit.study.method import coded_choices, refuse_row_key

__all__ = ["distributions", "inside", "look_up"]


def distributions(space: Mapping[str, Mapping[str, Any]]) -> dict[str, BaseDistribution]:
    """Where each key's values are drawn from; choices as JSON, for Optuna takes no lists.

    Raises:
        ConfigError: the space is empty or not valid; names all problems.

    Example:
        >>> distributions({"exchange.rate": {"low": 0.5, "high": 1.0}})
        {'exchange.rate': FloatDistribution(high=1.0, log=False, low=0.5, step=None)}
    """
    made: dict[str, BaseDistribution] = {}
    problems = [] if space else ["search.space: expected at least one key, found none"]
    for key, entry in space.items():
        try:
            made[key] = _distribution(key, entry)
        except ConfigError as error:
            problems.append(f"search.space.{key}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return made


def _distribution(key: str, entry: Mapping[str, Any]) -> BaseDistribution:
    refuse_row_key(key)
    if set(entry) == {"choices"}:
        try:
            return CategoricalDistribution(coded_choices(entry["choices"]))
        except ConfigError as error:
            raise ConfigError(f"choices: {error}") from error
    if not {"low", "high"} <= set(entry) <= {"low", "high", "log"}:
        raise ConfigError(
            "expected {choices: [...]}, or {low: a, high: b} with log: true for a logarithmic scale, "
            f"found {dict(entry)}"
        )
    low, high, log = entry["low"], entry["high"], entry.get("log", False)
    if not isinstance(log, bool) or not all(type(end) in (int, float) and math.isfinite(end) for end in (low, high)):
        raise ConfigError(f"low, high, log: expected two numbers and true or false, found {dict(entry)}")
    if low >= high or (log and low <= 0):
        raise ConfigError(f"expected low < high{', low > 0 where log is true' * log}, found low {low}, high {high}")
    if type(low) is int and type(high) is int:
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def inside(distribution: BaseDistribution, value: Any) -> Any:
    """A value as Optuna has it, None if it is never drawn."""
    if isinstance(distribution, CategoricalDistribution):
        return next((one for one in distribution.choices if json.loads(str(one)) == value), None)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    fitting = (int,) if isinstance(distribution, IntDistribution) else (int, float)
    return value if type(value) in fitting and distribution.low <= value <= distribution.high else None


def look_up(settings: Any, key: str) -> Any:
    """A dotted key's value in a configuration; the arguments of a class may be meant without ``init_args``."""
    for part in key.split("."):
        if isinstance(settings, dict) and part not in settings:
            settings = settings.get("init_args")
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings
