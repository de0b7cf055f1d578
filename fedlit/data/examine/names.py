"""Compares names of columns and values of categories that may mean the same."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import SequenceMatcher

from fedlit.data.schema.cells import true_or_false

__all__ = ["alike", "plain", "spelt", "words_of"]

_NO_MEANING = """
    years year yrs yr y days day d months month mo weeks mg dl mgdl kg g cm mm mmhg hg l ml mmol umol iu u percent pct
    in at of the value val
"""
_UNITS = frozenset(_NO_MEANING.split())
_SAME = {"gender": "sex"}
_LONG = 4  # letters from which a beginning says something
_ALIKE = 0.85


def words_of(name: str) -> list[str]:
    """Split a name into words.

    Example:
        >>> words_of("AGE_YEARS"), words_of("sysBP (mmHg)")
        (['age', 'years'], ['sys', 'bp', 'mm', 'hg'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\W_]+", parted.casefold()) if word]


def plain(name: str) -> list[str]:
    """Return the words of a name without units and other words that do not change its meaning.

    Example:
        >>> plain("AGE_YEARS"), plain("Age"), plain("day")
        (['age'], ['age'], ['day'])
    """
    words = words_of(name)
    return [_SAME.get(word, word) for word in words if word not in _UNITS] or words


def alike(one: str, other: str) -> bool:
    """Return whether two names, or two values, are spelt so similarly that they may mean the same.

    Example:
        >>> alike("cholesterol", "Cholestrol"), alike("chol", "cholesterol"), alike("Bern", "berne")
        (True, True, True)
        >>> alike("x1", "x2"), alike("radius_mean", "radius_max"), alike("systolic", "diastolic")
        (False, False, False)
    """
    first, second = plain(one), plain(other)
    if len(first) != len(second) or re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    return all(_one_word(*sorted(both, key=len)) for both in zip(first, second, strict=True))


def _one_word(short: str, long: str) -> bool:
    if short == long or (len(short) >= _LONG and long.startswith(short)):
        return True
    return len(short) >= _LONG and SequenceMatcher(None, short, long, autojunk=False).ratio() >= _ALIKE


def spelt(ones: Collection[str], others: Collection[str]) -> list[tuple[str, str]]:
    """Pair values of two clients that look like the same value, among those that only one of them has.

    Example:
        >>> spelt({"M", "F"}, {"male", "female"}), spelt({"yes", "no"}, {"1", "0"})
        ([('F', 'female'), ('M', 'male')], [('no', '0'), ('yes', '1')])
        >>> spelt({"Bern"}, {"Basel", "berne"}), spelt({"A"}, {"B"})
        ([('Bern', 'berne')], [])
    """
    every = [(one, other) for one in sorted(ones) for other in sorted(others)]
    if {true_or_false(own) for own in ones} == {true_or_false(own) for own in others} == {True, False}:
        return [(one, other) for one, other in every if true_or_false(one) is true_or_false(other)]
    begun = [(one, other) for one, other in every if _begins(*sorted((one.casefold(), other.casefold()), key=len))]
    if len(begun) == len(ones) == len(others) == len({one for one, _ in begun}):
        return begun
    return [(one, other) for one, other in every if alike(one, other)]


def _begins(short: str, long: str) -> bool:
    return short.isalpha() and len(long) > 2 and long.startswith(short)
