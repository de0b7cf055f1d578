"""Compares names of columns and values of categories that may mean the same."""

from __future__ import annotations

import re
from collections.abc import Collection

from fedlit.data.schema.cells import true_or_false

_NO_MEANING = """
    years year yrs yr y days day d months month mo weeks mg dl mgdl kg g cm mm mmhg hg l ml mmol umol iu u percent pct
    in at of the value val
"""
_UNITS = frozenset(_NO_MEANING.split())
_SAME = {"gender": "sex"}
_MEANINGS = (
    "m male man männlich", "f female woman w weiblich", "l left", "r right", "pos positive +", "neg negative -",
)  # fmt: skip
_MEANS = {word: place for place, words in enumerate(_MEANINGS) for word in words.split()}


def plain(name: str) -> list[str]:
    """Return the words of a name without units and other words that do not change its meaning.

    Example:
        >>> plain("AGE_YEARS"), plain("Age"), plain("day"), plain("sysBP (mmHg)")
        (['age'], ['age'], ['day'], ['sys', 'bp'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [word for word in re.split(r"[\W_]+", parted.casefold()) if word]
    return [_SAME.get(word, word) for word in words if word not in _UNITS] or words


def plainly(value: str) -> str:
    """Return a value without blanks, in lower case."""
    return "".join(value.casefold().split())


def spelt(ones: Collection[str], others: Collection[str]) -> list[tuple[str, str]]:
    """Pair values of two clients that are one word except for case and blanks, or words that are known to mean the
    same, among those that only one of them has.

    Example:
        >>> spelt({"M", "F"}, {"male", "female"}), spelt({"yes", "no"}, {"1", "0"})
        ([('F', 'female'), ('M', 'male')], [('no', '0'), ('yes', '1')])
        >>> spelt({"Bern"}, {"Basel", "bern "}), spelt({"A"}, {"B"})
        ([('Bern', 'bern ')], [])
    """
    every = [(one, other) for one in sorted(ones) for other in sorted(others)]
    if {true_or_false(own) for own in ones} == {true_or_false(own) for own in others} == {True, False}:
        return [(one, other) for one, other in every if true_or_false(one) is true_or_false(other)]
    return [(one, other) for one, other in every if _meaning(one) == _meaning(other)]


def _meaning(value: str) -> str | int:
    return _MEANS.get(plainly(value), plainly(value))
