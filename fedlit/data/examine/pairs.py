"""Which value of one client may mean which value of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedlit.data.schema.cells import true_or_false

_MOST_VALUES = 12


def recodings(ones: Sequence[Any], others: Sequence[Any]) -> list[dict[str, str]]:
    """Return how values could be written as those of another client: one mapping if the words show
    it, both mappings if there are two values each.

    Args:
        ones: the values as they should be written.
        others: the values to write otherwise.

    Example:
        >>> recodings(["no", "yes"], [0, 1]), recodings(["male", "female"], ["M", "F"])
        ([{'0': 'no', '1': 'yes'}], [{'M': 'male', 'F': 'female'}])
        >>> recodings(["M", "F"], [1, 2])
        [{'1': 'M', '2': 'F'}, {'1': 'F', '2': 'M'}]
        >>> recodings(["a", "b", "c"], ["x", "y"])
        []
    """
    if max(len(ones), len(others)) > _MOST_VALUES:
        return []
    by_meaning = {true_or_false(value): value for value in ones}
    meanings = [true_or_false(value) for value in others]
    if {*by_meaning} == {*meanings} == {True, False}:
        pairs = zip(others, meanings, strict=True)
        return [{str(value): str(by_meaning[meaning]) for value, meaning in pairs}]
    matches = list[str]()
    for value in others:
        candidates = [str(one) for one in ones if _may_be_short(str(one), str(value))]
        if len(candidates) == 1:
            matches += candidates
    if len(matches) == len(others) == len({*matches}):
        texts = zip(map(str, others), matches, strict=True)
        return [{text: match for text, match in texts if text != match}]
    if len(ones) == len(others) == 2:
        first, second = map(str, others)
        one, two = map(str, ones)
        return [{first: one, second: two}, {first: two, second: one}]
    return []


def _may_be_short(one: str, other: str) -> bool:
    """Return whether two words are the same, or one is the beginning of the other."""
    first = "".join(one.casefold().split())
    second = "".join(other.casefold().split())
    is_short = first.isalpha() and second.isalpha()
    return first == second or (is_short and (first.startswith(second) or second.startswith(first)))
