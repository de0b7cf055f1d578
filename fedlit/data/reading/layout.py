"""Finds out where the table begins in a text, and what separates its fields."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from fedlit.data.reading.options import MISSING, Add, ReadOptions
from fedlit.errors import DataError
from fedlit.show.text import shorten

SNIFFED = 2**18
_LINES = 100
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
NUMBER = re.compile(r"[-+−]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?")
_EXCEL = re.compile(rb"sep=([\x20-\x7e\t])[ \t]*(?:\r\n|\r|\n)")
_BLANKS = re.compile(rb"(?<![ \t])[ \t]+")
_NEAR_ENDS = re.compile(rb"(?:(?<=[\r\n])|^) | (?=[\r\n]|$)")


@dataclass(frozen=True)
class Layout:
    """A text from the header of its table on.

    Attributes:
        content: the text in UTF-8.
        line: the number of its first line in the file.
        sep: the character between two fields.
    """

    content: bytes
    line: int
    sep: str

    @property
    def start(self) -> str:
        """The beginning of the text."""
        return self.content[:SNIFFED].decode("utf-8", "ignore")

    def after(self, lines: int) -> Layout:
        """Return the layout of the text below some lines, and blank lines that follow them."""
        above = re.match(
            rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}(?:[ \t]*(?:\r\n|\r|\n))*" % lines, self.content
        )
        if above is None:
            raise DataError(f"skiprows: expected fewer lines than the file has, found {lines:,}.")
        skipped = len(re.findall(rb"\r\n|\r|\n", above.group()))
        return replace(self, content=self.content[above.end() :], line=self.line + skipped)


def layout_of(content: bytes, options: ReadOptions, add: Add, sep: str | None = None) -> Layout:
    r"""Find the header of a table and its separator.

    Args:
        content: The text in UTF-8, without a byte order mark.
        options: How the text is read.
        add: Called with each note.
        sep: The separator; if None, it comes from the options or is detected.

    Raises:
        DataError: ``skiprows`` leaves nothing, or several separators fit.

    Example:
        >>> text = b"Report\n\na;b\n1;2\n"
        >>> layout_of(text, ReadOptions(), lambda *note, **fix: print(*note, fix))
        fields are separated by a semicolon {'sep': ';'}
        1 line above the header is left out: 'Report' {'skiprows': 1}
        Layout(content=b'a;b\n1;2\n', line=3, sep=';')
    """
    sep = sep or options.sep
    layout = Layout(content, 1, sep or ",").after(options.skiprows)
    excel_line = None if options.skiprows else _EXCEL.match(layout.content)
    if excel_line is not None and sep in (None, excel_line[1].decode()):
        sep = excel_line[1].decode()
        add(f"its first line says that fields are separated by {sep!r}", sep=sep, skiprows=1)
        layout = replace(layout.after(1), sep=sep)
    if sep is None:
        layout = replace(layout, sep=_separator(layout, options.names, add))
    if layout.sep == " " and b'"' not in layout.content:
        single = _BLANKS.sub(b" ", layout.content)
        layout = replace(layout, content=_NEAR_ENDS.sub(b"", single))
    if options.names is None and not options.skiprows and excel_line is None:
        layout = _below_titles(layout, add)
    if options.names:
        return layout
    return _with_last_name(layout, add)


def names_if_none(header: Sequence[str], add: Add) -> list[str] | None:
    """Return names for the columns if a first line is a row of numbers, and None if it holds the
    names. Different whole numbers, such as 2019 and 2020, may be names.
    """
    labels = [cell.strip() for cell in header if cell.strip().casefold() not in MISSING]
    numbers = sum(NUMBER.fullmatch(label) is not None for label in labels)
    may_be_names = len({*labels}) == len(labels) and all(label.isdecimal() for label in labels)
    if 0 < len(labels) == numbers and not may_be_names:
        names = [f"c{position}" for position in range(1, len(header) + 1)]
        note = (
            "its first line is numbers, so it has no header; its columns are called c1 to "
            f"{names[-1]}. Else write names"
        )
        add(note, names=names)
        return names
    if 2 * numbers > len(labels):
        add(
            f"most names of columns are numbers ({shorten(labels)}). If there is no header, write "
            "names"
        )
    return None


# ---------------------------------------------------------------------- the first lines


def _first_rows(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of lines to the end of each of the first rows, and its cells."""
    reader = csv.reader(io.StringIO(layout.start, newline=""), delimiter=layout.sep)
    for row in itertools.islice(reader, _LINES):
        yield reader.line_num, row


def _separator(layout: Layout, names: Sequence[str] | None, add: Add) -> str:
    """Return the separator that splits most of the first lines into as many fields, and into one
    for each name.
    """
    shares = dict[str, float]()
    for sep in SEPARATORS:
        rows = [row for _, row in _first_rows(replace(layout, sep=sep))]
        widths = Counter(len(row) for row in rows if any(map(str.strip, row)))
        allowed = {len(names)} if names else {*widths}
        most_rows = max((widths[width] for width in allowed - {1}), default=0)
        shares[sep] = most_rows / max(1, widths.total())
    best = [sep for sep, share in shares.items() if share == max(shares.values())]
    if shares[best[0]] <= 0.5:
        if _are_blanks_between(layout, names):
            add("fields are separated by blanks", sep=" ")
            return " "
        if names is None or len(names) > 1:
            add("no separator was found: it is read as one column. If there are more, write sep")
        return ","
    if len(best) > 1:
        raise DataError(
            f"sep: expected one separator that fits the first lines, found {best}. Write sep."
        )
    if best != [","]:
        add(f"fields are separated by a {SEPARATORS[best[0]]}", sep=best[0])
    return best[0]


def _are_blanks_between(layout: Layout, names: Sequence[str] | None) -> bool:
    """Return whether blanks split all of the first lines into as many fields, and at least two."""
    lines = [line for line in layout.start.splitlines()[:_LINES] if line.strip()]
    widths = {len(line.split()) for line in lines}
    allowed = {len(names)} if names else widths
    return len(lines) > 2 and len(widths) == 1 and widths == allowed and widths != {1}


def _below_titles(layout: Layout, add: Add) -> Layout:
    """Leave out lines above the header: each has a single cell, and the header a name for each
    column.
    """
    rows = [(line, row) for line, row in _first_rows(layout) if any(map(str.strip, row))]
    if not rows:
        return layout
    width, _ = Counter(len(row) for _, row in rows).most_common(1)[0]
    titles = list[str]()
    lines = 0
    for line, row in rows:
        if not _is_title(row, width):
            is_header = len(row) == width and all(map(_is_name, row))
            if not titles or not is_header:
                return layout
            break
        titles.append(row[0].strip())
        lines = line
    if not titles or width < 2:
        return layout
    subject = "line above the header is" if lines == 1 else "lines above the header are"
    add(f"{lines:,} {subject} left out: {shorten([*map(repr, titles)])}", skiprows=lines)
    return layout.after(lines)


def _is_title(row: Sequence[str], width: int) -> bool:
    """Return whether a row has a cell of text alone, as a title has."""
    is_single = len(row) == 1 or (width > 2 and not any(map(str.strip, row[1:])))
    return is_single and _is_name(row[0])


def _is_name(cell: str) -> bool:
    return bool(cell.strip()) and NUMBER.fullmatch(cell.strip()) is None


def _with_last_name(layout: Layout, add: Add) -> Layout:
    """Add a separator to a header if all rows but the header end with one."""
    rows = [(line, row) for line, row in _first_rows(layout) if any(map(str.strip, row))]
    if len(rows) < 2 or rows[0][0] > 1:
        return layout
    (_, header), *data = rows
    if any(len(row) != len(header) + 1 or row[-1].strip() for _, row in data):
        return layout
    add("each row ends with a separator, and the header does not", "converted")
    line = re.match(rb"[^\r\n]*", layout.content)
    end = line.end() if line else 0
    content = layout.content[:end] + layout.sep.encode() + layout.content[end:]
    return replace(layout, content=content)
