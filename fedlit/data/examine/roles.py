"""Columns whose names say that they are no features: sampling weights, and times until an event."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fedlit.data.note import Note
from fedlit.data.table import ClientTable

_WEIGHT = re.compile(
    r"(?:sample|sampling|survey|person|design|case|row|final|replicate|freq|frequency|expansion|pop"
    r"|population)[_ .-]?(?:weight|wgt|wt)s?|fnlwgt|finalwgt|pweight|iptw|ipw|wgt|weights",
    re.I,
)
_TIME = re.compile(
    r"fu_?time|follow_?up(?:_?(?:time|days|weeks|months|years))?|durat(?:ion)?|tte"
    r"|(?:surv|survival|os|pfs|dfs|rfs)_?(?:time|days|weeks|months|years)|(?:time|days|months)_to_.*",
    re.I,
)
_BARE_TIME = re.compile(r"(?:[a-z]{1,3}[_ .-]?)?time", re.I)
_EVENT = re.compile(
    r"event|status|cens(?:or(?:ed|ing)?)?|dead|died|death|arrest|relapse|recur", re.I
)


def sampling_weights(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find columns of positive numbers with a name of sampling weights."""
    for table in tables:
        for name, column in table.features.items():
            if _WEIGHT.fullmatch(str(name)) is None or column.dtype.kind not in "iuf":
                continue
            if not (column.dropna() > 0).all():
                continue
            text = f"is a feature, but may say how much a row counts. Then write weight: {name}"
            either: list[dict[str, Any]] = [{"weight": str(name)}, {"drop": [str(name)]}]
            yield Note(text, "weight", clients=[table.name], column=str(name), alternatives=either)


def event_times(tables: Sequence[ClientTable]) -> Iterator[Note]:
    """Find times until an event or the end of observation, beside a column of the event."""
    for table in tables:
        target = str(table.target.name)
        labels = table.target.dropna()
        is_number = labels.dtype.kind in "iuf"
        if labels.nunique() == 2:
            times = _numbers(table, _TIME)
            if _EVENT.search(target) is not None:  # a finishing time is a feature like others
                times += _numbers(table, _BARE_TIME)
            for name in times:
                text = (
                    f"may be the time until {target}, or until the end of observation, which "
                    "nobody knows beforehand"
                )
                drop = [{"drop": [name]}]
                yield Note(text, "time", clients=[table.name], column=name, alternatives=drop)
        elif is_number and (_TIME.fullmatch(target) or _BARE_TIME.fullmatch(target)):
            for name in _numbers(table, _EVENT, values=2):
                text = (
                    f"may be a time until {name}, or until the end of observation, so that rows "
                    f"without {name} are too short: predict instead whether it comes by some day"
                )
                drop = [{"drop": [name]}]
                yield Note(text, "time", clients=[table.name], column=target, alternatives=drop)


def _numbers(table: ClientTable, names: re.Pattern[str], values: int = 0) -> list[str]:
    """Return the columns of numbers or truth values with such names and this number of different
    values; with more than two if the number is 0.
    """
    matches = list[str]()
    for name, column in table.features.items():
        if names.fullmatch(str(name)) is not None and column.dtype.kind in "iufb":
            different = column.nunique()
            fits_number = different == values if values else different > 2
            if fits_number:
                matches.append(str(name))
    return matches
