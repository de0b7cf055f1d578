"""Formats tables and lists as text, at any width or at the terminal's."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, TextIO

MOST_ROWS = 24  # of a printed table

_NARROWEST = 20  # columns; a terminal that says less is written to as if it had these

_NUMBER = re.compile(r"[-+−]?\d|[–·]?$")


class Verbatim(str):
    """A path or a command. It is never broken into lines, however narrow the terminal, so that it
    can be copied.
    """


def printable(text: str) -> str:
    r"""Make text from elsewhere safe to print. Characters that are not printable (escape sequences
    of terminals, marks that reverse the direction) become question marks; line breaks stay.

    Example:
        >>> printable("\x1b[31mred\nnext \u202eline")
        '?[31mred\nnext ?line'
    """
    return "".join(own if own.isprintable() or own == "\n" else "?" for own in text)


# The last two would begin links.
_OF_MARKDOWN = re.compile(r"([\\`*{}\[\]<>|~&$#@]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.)", re.I)


def in_markdown(text: object) -> str:
    r"""Write text from elsewhere into Markdown, so that it is shown as it is: on one line, without
    characters that are not printable, and with a backslash before each character that Markdown or
    HTML would interpret.

    Example:
        >>> print(in_markdown("<script>a|b</script>\n# [x](y)"))
        \<script\>a\|b\</script\> \# \[x\](y)
    """
    return _OF_MARKDOWN.sub(r"\\\1", " ".join(printable(" ".join(str(text).split())).split()))


def more(listed: Sequence[Any], what: str) -> list[str]:
    """Return a line that counts the rest of a list, which is cut at :data:`MOST_ROWS`."""
    return [f"… and {len(listed) - MOST_ROWS} more {what}"] if len(listed) > MOST_ROWS else []


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "row"), counted(2000, "row")
        ('1 row', '2,000 rows')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def shorten(words: Sequence[str], most: int = 8) -> str:
    """Join the first words by commas, and count the rest."""
    shown = ", ".join(words[:most])
    return shown if len(words) <= most else f"{shown}, … ({len(words)})"


def in_rows(rows: Iterable[Any], cells: Sequence[Any] | Any, most: int = 5) -> str:
    """List cells with the numbers of their rows, and count the rest.

    Args:
        rows: the number of each row.
        cells: a sized iterable, such as a Series.
        most: as many are listed.

    Example:
        >>> in_rows([3, 7], ["1.2.3", float("nan")])
        "'1.2.3' in row 3, none in row 7"
    """
    shown = []
    for row, cell in itertools.islice(zip(rows, cells, strict=True), most):
        text = f"{cell:g}" if isinstance(cell, float) else repr(str(cell)[:60].strip())
        empty = text.strip("'") in ("", "nan", "None", "<NA>", "NaT")
        shown.append(f"none in row {row}" if empty else f"{text} in row {row}")
    listed = ", ".join(shown)
    return listed if len(cells) <= most else f"{listed}, … ({len(cells)})"


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the number of columns of the terminal that a stream (standard output) writes to:
    ``COLUMNS`` if it is set, otherwise what the terminal reports. Return None for a pipe, a file, a
    notebook, or a terminal that reports no width; lines are then not broken, so that logs keep
    tables whole.
    """
    stream = sys.stdout if stream is None else stream
    try:
        if not stream.isatty():
            return None
        columns = (
            int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(stream.fileno()).columns
        )
    except (AttributeError, ValueError, OSError):
        return None
    return max(columns, _NARROWEST) if columns > 0 else None


def wrap(text: str, width: int | None = None) -> str:
    """Break sentences into lines between words, with continuation lines indented by two more
    columns. A word that is longer than the width, such as a path, stays whole. A YAML comment
    continues as a comment.

    Example:
        >>> print(wrap("Note: wine: the same value in all training rows: ash", 30))
        Note: wine: the same value in
          all training rows: ash
    """
    if width is None or isinstance(text, Verbatim):
        return text
    lines = []
    for line in text.split("\n"):
        own = line.lstrip()
        indent = line[: len(line) - len(own)] + ("# " if own.startswith("# ") else "  ")
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def definitions(pairs: Iterable[tuple[str, str]], width: int | None = None) -> str:
    """Format words on the left with their meanings on the right, or below each other if the width
    is small.

    Args:
        pairs: pairs (word, meaning).
        width: the width of the lines; if None, the terminal's, or 80 in a pipe or file.
    """
    width = max(width or shutil.get_terminal_size().columns, _NARROWEST)
    pairs = list(pairs)
    column = min(max(len(word) for word, _ in pairs) + 4, 9 * width // 20) if width >= 60 else 6
    lines = []
    for word, text in pairs:
        told = textwrap.wrap(text, width - column, break_long_words=False, break_on_hyphens=False)
        beside = told.pop(0) if told and len(word) + 4 <= column else ""
        lines.append(f"  {word:{column - 2}}{beside}" if beside else wrap(f"  {word}", width))
        lines += [" " * column + line for line in told]
    return "\n".join(lines)


def right_aligned(column: Sequence[str]) -> bool:
    """Return whether a column of a table (without its header) holds numbers."""
    return bool(column) and all(_NUMBER.match(cell) for cell in column)


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> str:
    """Align columns: text to the left, numbers to the right.

    A table that is wider than ``width`` is printed in blocks below each other, each with the first
    column. Text is broken into lines at half the width; numbers are never broken, and nothing is
    left out.

    Args:
        header: one word for each column.
        rows: rows with one cell for each column.
        width: the largest width of a line, in columns; unlimited if None.

    Example:
        >>> rows = [["comanche", "4,771", "30"], ["neota", "386", "12"]]
        >>> print(text_table(["client", "rows", "features"], rows))
        client     rows  features
        comanche  4,771        30
        neota       386        12
        >>> print(text_table(["client", "rows", "features"], rows, width=20))
        client     rows
        comanche  4,771
        neota       386
        <BLANKLINE>
        client    features
        comanche        30
        neota           12
    """
    numeric = [right_aligned([row[place] for row in rows]) for place in range(len(header))]
    most = width // 2 - 1 if width is not None else None
    cells = [
        [
            _lines(cell, None if right and number else most)
            for cell, right in zip(row, numeric, strict=True)
        ]
        for number, row in enumerate((header, *rows))
    ]
    widths = [
        max(len(line) for row in cells for line in row[place]) for place in range(len(header))
    ]
    blocks = [[0]]
    for place in range(1, len(header)):
        if (
            width is not None
            and len(blocks[-1]) > 1
            and sum(widths[own] + 2 for own in [*blocks[-1], place]) > width + 2
        ):
            blocks.append([0])
        blocks[-1].append(place)
    return "\n\n".join(
        "\n".join(
            _aligned([(row[place], widths[place], numeric[place]) for place in own])
            for row in cells
        )
        for own in blocks
    )


def _lines(cell: str, most: int | None) -> list[str]:
    if most is None or isinstance(cell, Verbatim):
        return [cell]
    return textwrap.wrap(
        cell, most, subsequent_indent="  ", break_on_hyphens=False, expand_tabs=False
    ) or [""]


def _aligned(row: Sequence[tuple[list[str], int, bool]]) -> str:
    """Join cells of several lines each, side by side."""
    lines = zip_longest(*(lines for lines, _, _ in row), fillvalue="")
    return "\n".join(
        "  ".join(
            part.rjust(width) if right else part.ljust(width)
            for part, (_, width, right) in zip(line, row, strict=True)
        ).rstrip()
        for line in lines
    )
