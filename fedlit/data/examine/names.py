"""Names of columns, and values of categories, that may mean the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher

from fedlit.data.schema.cells import true_or_false

__all__ = ["pairs", "spelt", "words_of"]

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


def _normal(name: str) -> str:
    """A name without what does not change its meaning: case, punctuation, units.

    >>> _normal("AGE_YEARS"), _normal("Age"), _normal("day")
    ('age', 'age', 'day')
    """
    joined = "".join([word for word in words_of(name) if word not in _UNITS.split()] or words_of(name))
    return _SAME.get(joined, joined) or name


def _alike(one: str, other: str) -> bool:
    """Whether two names of different normal form are spelt so alike that they may mean the same.

    >>> _alike("cholesterol", "Cholestrol"), _alike("chol", "cholesterol"), _alike("creatinine", "serum_creatinine")
    (True, True, True)
    >>> _alike("x1", "x2"), _alike("radius_mean", "radius_max"), _alike("systolic", "diastolic")
    (False, False, False)
    """
    if re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    words = ([word for word in words_of(own) if word not in _UNITS.split()] for own in (one, other))
    first, second = sorted(words, key=len)
    if len(first) == len(second):
        return bool(first) and all(map(_one_word, first, second))
    return len(second) == len(first) + 1 and set(first) < set(second) and max(map(len, first), default=0) >= 2 * _LONG


def _one_word(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if short == long or (len(short) >= _LONG and long.startswith(short)):
        return True
    return len(short) > _LONG and _ratio(short, long) >= _ALIKE


def pairs(ones: Collection[str], others: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """Names of one client and of another that may mean the same, and whether they have one normal form.

    Args:
        ones: names that the other does not have.
        others: names that the first does not have.

    Example:
        >>> list(pairs(["age", "chol"], ["AGE_YEARS", "cholesterol", "bmi"]))
        [('age', 'AGE_YEARS', True), ('chol', 'cholesterol', False)]
    """
    forms: dict[str, list[str]] = {}
    for other in others:
        forms.setdefault(_normal(other), []).append(other)
    for one in ones:
        same = forms.get(_normal(one), [])
        yield from ((one, other, True) for other in same)
        if not same and max(len(ones), len(others)) <= _MOST:
            yield from ((one, other, False) for other in others if _alike(one, other))


def spelt(ones: Collection[str], others: Collection[str]) -> list[tuple[str, str]]:
    """Values of two clients that look like one, of those that only one of them has.

    Example:
        >>> spelt({"M", "F"}, {"male", "female"}), spelt({"yes", "no"}, {"1", "0"})
        ([('F', 'female'), ('M', 'male')], [('no', '0'), ('yes', '1')])
        >>> spelt({"Bern"}, {"Basel", "berne"}), spelt({"A"}, {"B"})
        ([('Bern', 'berne')], [])
    """
    every = [(one, other) for one in sorted(ones) for other in sorted(others)]
    truth = [{true_or_false(own) for own in side} for side in (ones, others)]
    if len(ones) == len(others) == 2 and truth[0] == truth[1] == {True, False}:
        return [(one, other) for one, other in every if true_or_false(one) is true_or_false(other)]
    begun = [(one, other) for one, other in every if _begins(one, other)]
    least = min(len(ones), len(others))
    if least and least == len(begun) == len({one for one, _ in begun}) == len({other for _, other in begun}):
        return begun
    return [(one, other) for one, other in every if _near(one, other)]


def _near(one: str, other: str) -> bool:
    first, second = (re.sub(r"[\W_]+", "", own.casefold()) for own in (one, other))
    if not first or not second or re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    return first == second or (min(len(first), len(second)) >= _LONG and _ratio(first, second) >= _ALIKE)


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _begins(one: str, other: str) -> bool:
    short, long = sorted((one.casefold().rstrip("."), other.casefold()), key=len)
    return short.isalpha() and long[:1].isalpha() and len(long) >= 3 and long.startswith(short) and len(short) <= _LONG
