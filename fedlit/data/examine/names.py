"""Compares names of columns that may mean the same."""

from __future__ import annotations

import re

__all__ = ["plain"]

_NO_MEANING = """
    years year yrs yr y days day d months month mo weeks mg dl mgdl kg g cm mm mmhg hg l ml mmol umol iu u percent pct
    in at of the value val
"""
_UNITS = frozenset(_NO_MEANING.split())
_SAME = {"gender": "sex"}


def plain(name: str) -> list[str]:
    """Return the words of a name without units and other words that do not change its meaning.

    Example:
        >>> plain("AGE_YEARS"), plain("Age"), plain("day"), plain("sysBP (mmHg)")
        (['age'], ['age'], ['day'], ['sys', 'bp'])
    """
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [word for word in re.split(r"[\W_]+", parted.casefold()) if word]
    return [_SAME.get(word, word) for word in words if word not in _UNITS] or words
