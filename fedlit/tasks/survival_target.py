"""Reads the target of a survival task: times, events and entries of rows, and the settings that say
how times are counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedlit.errors import ConfigError, DataError, expect
from fedlit.outcomes.survival import DAYS, SHORT
from fedlit.show.text import in_rows
from fedlit.types import Bools, Floats

if TYPE_CHECKING:
    import pandas as pd

INTERVALS = 10
"""How many intervals there are if nobody says so."""
MOST_INTERVALS = 200
SHARES = ("25%", "50%", "75%")
"""The quantiles of event times that are the horizons if nobody names any."""
_LATEST = float(np.finfo(np.float32).max)
"""The largest time that an encoded target holds."""
_HORIZON = re.compile(r"(\d+(?:\.\d+)?)\s*(%|[a-z]*)")


def target_values(target: pd.Series) -> Floats:
    """Return the times, events and entries of rows, (n, 3) float32.

    Args:
        target: a tuple for each row, and its name the names of these columns.

    Raises:
        DataError: a cell is none of the expected ones; the message shows some of them.

    Example:
        >>> import pandas as pd
        >>> target_values(pd.Series([(30, 1), (8.5, 0)], name=("days", "died"))).tolist()
        [[30.0, 1.0, -inf], [8.5, 0.0, -inf]]
    """
    names: Any = target.name
    cells = list(zip(*target.tolist(), strict=True)) or [()] * len(names)
    events = _events(target, names[1], cells[1])
    numbers = [np.asarray(cells[0], np.float64), events]
    advice = "correct these rows, or leave them out"
    wrong = ~((numbers[0] <= _LATEST) & (numbers[0] >= 0))
    _refuse(target, names[0], cells[0], wrong, "finite times of at least 0", advice)
    entries = np.full(len(target), -np.inf)
    if len(names) > 2:
        entries = np.asarray(cells[2], np.float64)
        # What is the same time in float32 is the same time.
        with np.errstate(over="ignore"):
            is_before = entries.astype(np.float32) < numbers[0].astype(np.float32)
        expected = f"an entry before {names[0]} in each row"
        both = [f"{entry} and {time}" for entry, time in zip(cells[2], cells[0], strict=True)]
        is_number = np.abs(entries) <= _LATEST
        _refuse(target, names[2], both, ~(is_number & is_before), expected, advice)
    values: Floats = np.stack([*numbers, entries], 1).astype(np.float32)
    return values


def _events(target: pd.Series, name: str, cells: Sequence[Any]) -> Floats:
    """Return 1 for each row with the event and 0 for a censored one.

    Raises:
        DataError: other values than 0 and 1, or false and true.
    """
    wrong = np.array([cell not in (0, 1) for cell in cells], bool)
    values = sorted({str(cell) for cell in cells})
    mapping = ", ".join(f"{value}: 0 or 1" for value in values[:4])
    advice = f"say with values which of them is the event: values: {{{name}: {{{mapping}}}}}"
    _refuse(target, name, cells, wrong, "1 (the event) or 0 (censored)", advice)
    return np.array([float(cell) for cell in cells], np.float64)


def _refuse(
    target: pd.Series, name: str, cells: Sequence[Any], wrong: Bools, expected: str, advice: str
) -> None:
    if wrong.any():
        wrong_cells = np.array(list(map(str, cells)), object)[wrong]
        raise DataError(
            f"target {name!r}: expected {expected}, found {int(wrong.sum()):,} others of "
            f"{len(wrong):,}: {in_rows(target.index[wrong], wrong_cells)}; {advice}"
        )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse invalid settings of a survival task.

    Raises:
        ConfigError: an unknown unit, horizons that are no times above 0, or intervals that are
            neither a number of them nor their ascending ends.
    """
    unit = settings.get("unit", "")
    expect(unit in ("", *DAYS), "task: survival: unit", f"one of {', '.join(DAYS)}", unit)
    horizons_of(settings)
    intervals_of(settings)


def horizons_of(settings: Mapping[str, Any]) -> tuple[list[float], list[float]]:
    """Return the horizons of a survival task: times in its unit, and shares of event times.

    Raises:
        ConfigError: they are no such list.

    Example:
        >>> horizons_of({"unit": "day", "horizons": [90, "1y", "50%"]})
        ([90.0, 365.25], [0.5])
    """
    written = settings.get("horizons", SHARES)
    expected = "a list such as [1y, 5y], [90, 365] or [25%, 50%]"
    key = "task: survival: horizons"
    expect(isinstance(written, list | tuple) and len(written) > 0, key, expected, written)
    times = list[float]()
    shares = list[float]()
    for horizon in written:
        match = _HORIZON.fullmatch(str(horizon).strip().casefold())
        if match is None or isinstance(horizon, bool) or not float(match[1]) > 0:
            raise ConfigError(f"{key}: expected {expected}, found {horizon!r}")
        number = float(match[1])
        if match[2] == "%":
            expect(number < 100, key, "shares above 0 % and below 100 %", horizon)
            shares.append(number / 100)
        else:
            times.append(number * _in_unit(key, horizon, match[2], settings.get("unit", "")))
    return times, shares


def _in_unit(key: str, horizon: object, letters: str, unit: str) -> float:
    """Return by how much a horizon's number is multiplied so that it is in the unit of times."""
    if not letters:
        return 1.0
    expect(letters in SHORT, key, f"a unit among {', '.join(SHORT)}", horizon)
    is_known = bool(unit)
    advice = f"say what times are counted in: unit: {' or '.join(DAYS)}"
    expect(is_known, key, "the unit of times beside a horizon with one", horizon, advice)
    return DAYS[SHORT[letters]] / DAYS[unit]


def intervals_of(settings: Mapping[str, Any]) -> tuple[int, list[float]]:
    """Return how many intervals a survival task has, and their ends if they are written.

    Raises:
        ConfigError: neither a number of them nor their ascending ends.
    """
    written = settings.get("intervals", INTERVALS)
    key = "task: survival: intervals"
    expected = f"a number from 1 to {MOST_INTERVALS}, or a list of ascending times above 0"
    if isinstance(written, list | tuple):
        are_numbers = all(type(edge) in (int, float) for edge in written)
        expect(are_numbers and 0 < len(written) <= MOST_INTERVALS, key, expected, written)
        edges = [float(edge) for edge in written]
        is_valid = bool(np.isfinite(edges).all() and (np.diff([0.0, *edges]) > 0).all())
        expect(is_valid, key, expected, written)
        return len(edges), edges
    expect(type(written) is int and 0 < written <= MOST_INTERVALS, key, expected, written)
    return int(written), []
