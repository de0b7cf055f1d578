"""The seeds of a study, as they are written and as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fedlit.errors import ConfigError

Seeds = int | str | list[int]
"""Seeds as a study writes them: a number, ``a:b`` (both ends included), ``1,2,5``, or a list."""


def parse_seeds(text: int | str | Iterable[int], key: str = "seeds") -> list[int]:
    """Return the seeds in ``a:b`` (both ends included), in numbers separated by commas, or in both.

    Args:
        text: the seeds as they are written.
        key: the key of the seeds, for messages.

    Raises:
        ConfigError: the text is of another form, or there is no seed, or one occurs twice.

    Example:
        >>> parse_seeds("8:10,20")
        [8, 9, 10, 20]
    """
    if isinstance(text, int):
        seeds = [text]
    elif isinstance(text, str):
        seeds = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d+)\s*(?::\s*(\d+)\s*)?", part)
            if not match:
                raise ConfigError(
                    f"{key}: expected such as 8:28 (both ends included) or 1,2,5, found {text!r}"
                )
            first = int(match[1])
            last = int(match[2] or match[1])
            seeds += range(first, last + 1)
    else:
        seeds = list(text)
    if (
        not seeds
        or len(set(seeds)) < len(seeds)
        or not all(type(s) is int and 0 <= s < 2**32 for s in seeds)
    ):
        raise ConfigError(
            f"{key}: expected at least one, none twice, from 0 to 2**32 - 1, found {text!r}"
        )
    return seeds


def seed_words(seeds: Sequence[int]) -> str:
    """Return ``8:17`` for consecutive numbers, otherwise the numbers.

    Example:
        >>> seed_words([8, 9, 10]), seed_words([1, 5])
        ('8:10', '1, 5')
    """
    ordered = sorted(seeds)
    if len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}:{ordered[-1]}"
    return ", ".join(map(str, ordered))
