"""Tables and lists as text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["MOST_ROWS", "more", "shorten", "text_table"]

MOST_ROWS = 64  # of a printed table


def more(listed: Sequence[Any], what: str) -> list[str]:
    """What is said of the rest of a list that is cut at :data:`MOST_ROWS`."""
    return [f"… and {len(listed) - MOST_ROWS} more {what}"] if len(listed) > MOST_ROWS else []


def shorten(words: Sequence[str], most: int = 8) -> str:
    """Words in a row, the rest counted."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown}, … ({len(words)})"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: text to the left, numbers to the right.

    Example:
        >>> print(text_table(["client", "rows"], [["comanche", "4,771"], ["neota", "386"]]))
        client     rows
        comanche  4,771
        neota       386
    """
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    numeric = [
        bool(rows) and all(row[column][:1].isdigit() or row[column] in ("–", "") for row in rows)
        for column in range(len(header))
    ]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join(lines)
