"""Which cells say that there is no value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

__all__ = ["LABEL_TOKENS", "TOKENS", "are_days", "as_text", "blank", "plain_text", "suspects"]

LABEL_TOKENS = frozenset({"", "?", "na", "n/a", "#n/a", "nan", "null", "<na>", "\\n"})
"""Of labels: any other word may be a class."""

TOKENS = LABEL_TOKENS | frozenset(
    {
        *(".", "..", "-", "--", "---", "–", "—", "*", "**", "???", "??"),
        *(
            "n.a.",
            "n. a.",
            "k.a.",
            "k. a.",
            "nil",
            "none",
            "nul",
            "missing",
            "unknown",
            "unk",
            "undefined",
            "not available",
        ),
        *("not applicable", "not known", "no data", "keine", "keine angabe", "unbekannt", "fehlt", "inconnu"),
        *(
            "desconocido",
            "sconosciuto",
            "#div/0!",
            "#value!",
            "#ref!",
            "#name?",
            "#num!",
            "#null!",
            "#error!",
            "1.#qnan",
        ),
        *("-nan", "1.#ind", "-1.#ind", "-1.#qnan", "#n/a n/a", "nat", "(null)", "(none)", "(blank)"),
    }
)
"""In lower case; in a column of text such a word may be a category too, so it is said how many there are."""

_SPACES = re.compile(r"\s+")


def plain_text(values: pd.Series) -> pd.Series:
    r"""Text (n,) without outer blanks, with single plain blanks inside; missing stays missing.

    Example:
        >>> plain_text(pd.Series([" a\u00a0 b", None])).tolist()
        ['a b', nan]
    """
    codes, texts = pd.factorize(values)
    plain = np.array(
        [*(_SPACES.sub(" ", as_text(text).replace("\ufeff", "")).strip() for text in texts), np.nan], object
    )
    return pd.Series(plain[codes], index=values.index, name=values.name, dtype=object)


def as_text(cell: object) -> str:
    """A cell as a file would have it: a whole number has no decimals.

    Example:
        >>> as_text(1.0), as_text(2.5), as_text("1.0")
        ('1', '2.5', '1.0')
    """
    return str(int(cell)) if isinstance(cell, float | np.floating) and float(cell).is_integer() else str(cell)


def _spellings(word: str | float) -> list[str]:
    if isinstance(word, str):
        return [word]
    whole = [str(int(word)), f"{int(word)}.0"] if float(word).is_integer() else []
    return [*whole, f"{word:g}", repr(float(word))]


def blank(values: pd.Series, further: Iterable[str | float] = (), tokens: frozenset[str] = TOKENS) -> pd.Series:
    """Which plain texts (n,) are missing, or stand for it: bool.

    Args:
        values: see :func:`plain_text`.
        further: words (in lower case) and numbers that stand for it too.
        tokens: words in lower case.

    Example:
        >>> blank(pd.Series(["12", "Unknown", "-9", None]), [-9.0]).tolist()
        [False, True, True, True]
    """
    known = tokens | {text for own in further for text in _spellings(own)}
    codes, texts = pd.factorize(values)
    found = np.array([*(str(text).casefold() in known for text in texts), True])
    return pd.Series(found[codes], index=values.index)


def are_days(numbers: np.ndarray) -> bool:
    """Whether all numbers (n,) are days such as 20240131.

    Example:
        >>> are_days(np.array([20240131.0, 20240229.0])), are_days(np.array([20240231.0]))
        (True, False)
    """
    if not ((numbers >= 19000101) & (numbers <= 21001231) & (numbers % 1 == 0)).all():
        return False
    days = pd.Series(numbers[:1000]).astype(np.int64).astype(str)
    return bool(pd.to_datetime(days, format="%Y%m%d", errors="coerce").notna().all())


_ODD = frozenset(float(sign * own) for own in (9, 99, 999, 9999, 99999, 999999, 88, 888, 8888) for sign in (-1, 1)) | {
    -1.0
}


def suspects(values: np.ndarray) -> Sequence[float]:
    """Numbers that may stand for a missing value: -999, 999, 9999 and the like, at the edge of a column (n,) and
    further from the next value than all others are from each other.

    Example:
        >>> suspects(np.array([40.0, 51.0, 60.0, 999.0, 999.0, np.nan])), suspects(np.array([7.0, 8.0, 9.0]))
        ([999.0], [])
    """
    if not {float(np.nanmin(values)), float(np.nanmax(values))} & _ODD:  # nearly always, and without sorting
        return []
    own = np.unique(values[np.isfinite(values)])
    found: list[float] = []
    while len(own) > 2:
        edges = [value for value in (own[0], own[-1]) if value in _ODD]
        far = [value for value in edges if _is_far(own, value) or _is_heap(values, value)]
        if not far:
            break
        found.append(float(far[0]))
        own = own[own != far[0]]
    return found


def _is_heap(values: np.ndarray, value: float) -> bool:
    """Whether a value is more than three times as frequent as any other."""
    _, counts = np.unique(values[np.isfinite(values) & (values != value)], return_counts=True)
    return bool((values == value).sum() > max(3, 3 * counts.max()))


def _is_far(own: np.ndarray, value: float) -> bool:
    others = own[own != value]
    if value in (-1.0, -9.0, -99.0) and others[0] >= 0:  # below everything else that is counted or measured
        return len(others) > (10 if value == -1.0 else 2)
    return bool(np.abs(others - value).min() > others[-1] - others[0])
