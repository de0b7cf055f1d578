"""Formats tables and lists as text, at any width or at the terminal's."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 24
"""The maximum number of rows of a printed table."""

_NARROWEST = 20
"""The smallest width of text, in columns, even if a terminal reports fewer."""
_WIDEST = 100_000
"""More columns than a line can have."""

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
    return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)


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


def more(rows: Sequence[object], noun: str) -> list[str]:
    """Return a line that counts the rest of a list, which is cut at :data:`MOST_ROWS`."""
    rest = len(rows) - MOST_ROWS
    if rest <= 0:
        return []
    return [f"… and {rest} more {noun}"]


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    Example:
        >>> counted(1, "row"), counted(2000, "row")
        ('1 row', '2,000 rows')
    """
    if number == 1:
        return f"1 {one}"
    return f"{number:,} {many or f'{one}s'}"


def shorten(names: Sequence[str], most: int = 8) -> str:
    """Join the first names by commas, and count the rest."""
    return _counted_rest(names[:most], len(names))


def _counted_rest(first: Sequence[str], number: int) -> str:
    """Join the first items of a list, and add the number of all if there are more."""
    text = ", ".join(first)
    if number > len(first):
        text += f", … ({number})"
    return text


def in_rows(rows: Iterable[object], cells: Collection[object], most: int = 5) -> str:
    """List cells with the numbers of their rows, and count the rest.

    Args:
        rows: the number of each row.
        cells: the cell of each row.
        most: the maximum number of cells that are listed.

    Example:
        >>> in_rows([3, 7], ["1.2.3", float("nan")])
        "'1.2.3' in row 3, none in row 7"
    """
    texts = []
    for row, cell in itertools.islice(zip(rows, cells, strict=True), most):
        text = f"{cell:g}" if isinstance(cell, float) else repr(str(cell)[:60].strip())
        if text.strip("'") in ("", "nan", "None", "<NA>", "NaT"):
            text = "none"
        texts.append(f"{text} in row {row}")
    return _counted_rest(texts, len(cells))


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Return the number of columns of the terminal that a stream (standard output) writes to, as
    Rich finds it: ``COLUMNS`` if it is set, otherwise what the terminal reports. Return None for a
    pipe, a file or a notebook; lines are then not broken, so that logs keep tables whole.
    """
    if stream is None:
        stream = sys.stdout
    if not stream.isatty():
        return None
    from rich.console import Console

    return max(Console(file=stream).width, _NARROWEST)


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
        content = line.lstrip()
        indent = line.removesuffix(content)
        indent += "# " if content.startswith("# ") else "  "
        wrapped = textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines += wrapped or [""]
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
    column = 6
    if width >= 60:
        longest = max(len(term) for term, _ in pairs)
        column = min(longest + 4, 9 * width // 20)
    lines = []
    for term, text in pairs:
        meaning = textwrap.wrap(
            text, width - column, break_long_words=False, break_on_hyphens=False
        )
        if meaning and len(term) + 4 <= column:
            lines.append(f"  {term:{column - 2}}{meaning.pop(0)}")
        else:
            lines.append(wrap(f"  {term}", width))
        lines += [" " * column + line for line in meaning]
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
    from rich.console import Console

    console = Console(color_system=None, width=_WIDEST)
    blocks = []
    for table in tables(header, rows, width):
        with console.capture() as capture:
            console.print(table)
        lines = capture.get().splitlines()
        blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(blocks)


def tables(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> list[Table]:
    """Return a table in blocks that fit a width; see :func:`text_table`."""
    from rich.table import Table
    from rich.text import Text

    half = _WIDEST if width is None else width // 2 - 1
    columns = [_Column(name, cells, half) for name, *cells in zip(header, *rows, strict=True)]
    blocks = []
    for block in _blocks(columns, width):
        size = sum(column.width + 2 for column in block) - 2
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, width=size)
        for column in block:
            table.add_column(
                Text(column.name), justify=column.justify, width=column.width, overflow="fold"
            )
        for cells in zip(*(column.cells for column in block), strict=True):
            table.add_row(*map(Text, cells))
        blocks.append(table)
    return blocks


class _Column:
    """A column of a table.

    Args:
        name: its header.
        cells: its cells.
        half: the width at which text is broken.
    """

    def __init__(self, name: str, cells: Sequence[str], half: int) -> None:
        from rich.cells import cell_len

        self.name = name
        self.cells = cells
        numeric = right_aligned(cells)
        self.justify: Literal["left", "right"] = "right" if numeric else "left"
        widths = [min(cell_len(name), half)]
        for cell in cells:
            whole = numeric or isinstance(cell, Verbatim)
            widths.append(cell_len(cell) if whole else min(cell_len(cell), half))
        self.width = max(widths)


def _blocks(columns: list[_Column], width: int | None) -> list[list[_Column]]:
    """Split columns into blocks that fit the width, each with the first column."""
    if width is None:
        return [columns]
    blocks = [columns[:1]]
    for column in columns[1:]:
        block = [*blocks[-1], column]
        if len(blocks[-1]) > 1 and sum(part.width + 2 for part in block) > width + 2:
            blocks.append([columns[0], column])
        else:
            blocks[-1] = block
    return blocks
