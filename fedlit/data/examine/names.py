"""Names of columns that may mean the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

__all__ = ["alike", "normal", "pairs", "words_of"]

_UNITS = """
    years year yrs yr y days day d months month mo weeks mg dl mgdl kg g cm mm mmhg hg l ml mmol umol iu u
    percent pct in at of the value val
"""  # and words that say nothing
_SAME = {"gender": "sex"}
_LONG = 4  # letters from which a beginning says something
_ALIKE = 0.85
_MOST = 300
"""Names at each client from which only those of one normal form are compared: pairs grow with their square."""


def words_of(name: str) -> list[str]:
    """The words of a name.

    Example:
        >>> words_of("AGE_YEARS"), words_of("sysBP (mmHg)")
        (['age', 'years'], ['sys', 'bp', 'mm', 'hg'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\W_]+", parted.casefold()) if word]


def normal(name: str) -> str:
    """A name without what does not change its meaning: case, punctuation, units.

    Example:
        >>> normal("AGE_YEARS"), normal("Age"), normal("day")
        ('age', 'age', 'day')
    """
    own = words_of(name)
    kept = [word for word in own if word not in _UNITS.split() and word != "mm"] or own
    joined = "".join(kept)
    return _SAME.get(joined, joined) or name


def alike(one: str, other: str) -> bool:
    """Return whether two names of different normal form are spelt so alike that they may mean the same.

    Example:
        >>> alike("cholesterol", "Cholestrol"), alike("chol", "cholesterol"), alike("creatinine", "serum_creatinine")
        (True, True, True)
        >>> alike("x1", "x2"), alike("radius_mean", "radius_max"), alike("systolic", "diastolic")
        (False, False, False)
    """
    if re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    first, second = ([word for word in words_of(own) if word not in _UNITS.split()] for own in (one, other))
    if len(first) == len(second):
        return bool(first) and all(_one_word(*pair) for pair in zip(first, second, strict=True))
    short, long = sorted((first, second), key=len)
    return bool(short) and len(long) == len(short) + 1 and set(short) < set(long) and max(map(len, short)) >= 2 * _LONG


def _one_word(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if short == long or (len(short) >= _LONG and long.startswith(short)):
        return True
    return len(short) > _LONG and SequenceMatcher(None, short, long, autojunk=False).ratio() >= _ALIKE


def pairs(ones: Iterable[str], others: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Names of one client and of another that may mean the same, and whether they have one normal form.

    Args:
        ones: names that the other does not have.
        others: names that the first does not have.
    """
    ones, others = list(ones), list(others)
    by_form: dict[str, list[str]] = {}
    for other in others:
        by_form.setdefault(normal(other), []).append(other)
    left = []
    for one in ones:
        same = by_form.get(normal(one), [])
        yield from ((one, other, True) for other in same)
        left += [] if same else [one]
    if len(left) > _MOST or len(others) > _MOST:
        return
    forms = set(map(normal, ones))
    rest = [other for other in others if normal(other) not in forms]
    yield from ((one, other, False) for one in left for other in rest if alike(one, other))
