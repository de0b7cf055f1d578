"""Words that differ only in large and small letters: one value, spelt in several ways."""

from __future__ import annotations

from collections.abc import Iterable

from fedlit.show.text import shorten

__all__ = ["spellings", "told_of_spellings"]


def spellings(texts: Iterable[str]) -> dict[str, list[str]]:
    """Each text in small letters → how it is spelt, in the order of the texts.

    Example:
        >>> spellings(["yes", "no", "Yes"])
        {'yes': ['yes', 'Yes'], 'no': ['no']}
    """
    found: dict[str, list[str]] = {}
    for text in map(str, texts):
        found.setdefault(text.casefold(), []).append(text)
    return found


def told_of_spellings(found: dict[str, list[str]]) -> str:
    """Those that are spelt in several ways, for a person; empty if none is.

    Example:
        >>> told_of_spellings(spellings(["yes", "no", "Yes"]))
        "'yes' = 'Yes'"
    """
    return shorten([" = ".join(map(repr, own)) for own in found.values() if len(own) > 1])
