"""Delimited text, plain or compressed: strict, each cell as it is written."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.data.reading.encodings import as_utf8
from fedlit.data.reading.names import check_no_header
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.quotes import blanks_around_quotes, regular_quotes, without_blanks_around_quotes
from fedlit.data.reading.raw import Notes, counted
from fedlit.data.reading.recognise import kind_of, opened, refuse
from fedlit.data.reading.separator import found_separator
from fedlit.data.reading.texts import Header

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["read_text"]

PIECE = 2**22
SNIFFED = 2**18
MOST_IN_LINE = 2**23
CHUNK_CELLS = 200_000
SEP_LINE = re.compile(rb"sep=(.)(?:\r\n|\r|\n|\Z)", re.IGNORECASE)
LINE_END = re.compile(rb"\r\n|\r|\n")
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def read_text(path: Path, kind: str, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read delimited text. Arrow reads what is regular; where it is not, Python's reader goes row by row.

    Args:
        path: the file.
        kind: ``text``, or how it is compressed.
        options: how it is read.
        notes: takes what is found; whose file it is.

    Returns:
        One ``str`` column for each that is kept.

    Raises:
        DataError: naming the line, where the text is no regular table.
    """
    content = as_utf8(_content(path, kind, options, notes), options.encoding, notes)
    if b"\0" in content:
        line = _lines_in(content[: content.index(b"\0")]) + 1
        raise notes.error("holds NUL bytes, expected text. The file is damaged, or no text: write it again.", line)
    own = SEP_LINE.match(content)
    if own:
        notes.add(f"its first line, {own.group().decode().strip()!r}, is taken for the separator.")
    skipped = options.skiprows or bool(own)
    place = _behind(content, 0, skipped)
    if place is None:
        count = len(content.splitlines())
        raise notes.error(f"skiprows says {skipped:,}, but there are only {counted(count, 'line')}. Lower it.")
    sep = options.sep or (own and own.group(1).decode())
    if not sep:
        start, complete = content[place : place + SNIFFED].decode("utf-8", "ignore"), len(content) - place <= SNIFFED
        sep = found_separator(start, complete=complete, names=options.names, notes=notes)
    text = _Text(content, place, sep, skipped, options, notes)
    del content  # the columns hold their own copies
    return text.frame()


def _content(path: Path, kind: str, options: ReadOptions, notes: Notes) -> bytes:
    """The decompressed bytes, refused before they fill memory."""
    pieces, size, in_line, lines = list[bytes](), 0, 0, 0
    with opened(path, kind, notes) as source:
        while piece := source.read(min(PIECE, options.max_bytes + 1)):
            if not pieces and kind != "text" and (inside := kind_of(piece, suffix=".csv")) != "text":
                raise refuse(inside, notes, f"what is inside the {kind} file ")
            pieces.append(piece)
            size += len(piece)
            if size > options.max_bytes:
                raise notes.error(
                    f"expected at most {options.max_bytes:,} bytes of text (decompressed), found more. Raise max_bytes "
                    "if the table is meant to be that large, or save it as Parquet."
                )
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
            in_line = len(piece) - end - 1 if end >= 0 else in_line + len(piece)
            lines += _lines_in(piece)
            if in_line > MOST_IN_LINE:
                raise notes.error(
                    f"expected lines of at most {MOST_IN_LINE:,} bytes, found more, with {piece.count(b','):,} commas "
                    "in the last of them: are separators or line ends missing?",
                    lines + 1,
                )
    return b"".join(pieces)


def _lines_in(piece: bytes) -> int:
    r"""How many lines end in a piece of text: by LF, CR or both.

    >>> _lines_in(b"a\nb\r\nc\rd")
    3
    """
    returns = piece.count(b"\r")
    return piece.count(b"\n") + returns - (piece.count(b"\r\n") if returns else 0)


def _behind(content: bytes, place: int, lines: int) -> int | None:
    """The place behind a number of lines; None where there are fewer."""
    for _ in range(lines):
        found = LINE_END.search(content, place)
        if found is None:
            return None
        place = found.end()
    return place


class _Text:
    """The rows of one text, each of which must have the header's number of fields.

    Args:
        content: UTF-8.
        place: where the header begins.
        sep: the separator.
        skipped: how many lines stand above it.
        options: how it is read.
        notes: whose text it is.
    """

    def __init__(self, content: bytes, place: int, sep: str, skipped: int, options: ReadOptions, notes: Notes) -> None:
        self._content, self._place, self._sep = content, place, sep
        self._skipped, self._options, self._notes = skipped, options, notes
        self._blank = self._broken = self._longest = self._start = 0
        lines: Iterator[str] = (found.group().decode() for found in LINE.finditer(content, place))
        self._tidied = blanks_around_quotes(content, sep)
        if self._tidied:
            lines = without_blanks_around_quotes(lines, sep)
            notes.add("blanks between quotes and separators are left out.")
        # The reader's own limit of 131,072 characters a cell is for all of a process; lines are bounded above.
        csv.field_size_limit(max(csv.field_size_limit(), MOST_IN_LINE))
        self._reader = csv.reader(lines, delimiter=sep, strict=True)

    def frame(self) -> pd.DataFrame:
        names = self._options.names
        header = names if names is not None else self._next(2)
        if header is None:
            raise self._notes.error("expected a header and rows of data, found none. Fetch or write the file again.")
        expected = "names" if names is not None else f"the header (line {self._line:,})"
        begin = self._reader.line_num
        first = self._next(len(header))
        if first is None:
            raise self._notes.error("expected rows of data, found none. Fetch or write the file again.")
        if names is not None:
            check_no_header(first, names, self._notes, f"line {self._line:,}")
        spare = len(first) == len(header) + 1 and not first[-1].strip()
        own = Header(header, self._options, self._notes, spare=spare)
        found = None if self._tidied else self._by_arrow(_behind(self._content, self._place, begin), own)
        if found is None:
            found = own.table(self._rows(first, own, expected))
        if self._broken:
            self._notes.add(
                f"{counted(self._broken, 'row holds', 'rows hold')} quoted cells with line ends; the longest takes "
                f"{self._longest:,} lines. Were lines swallowed by a quote too many?"
            )
        if self._blank:
            self._notes.add(f"{counted(self._blank, 'blank line was', 'blank lines were')} skipped.")
        del self._reader, self._content
        return own.frame(found)

    @property
    def _line(self) -> int:
        """The last line that was read, counted from 1."""
        return self._skipped + self._reader.line_num

    def _by_arrow(self, place: int | None, header: Header) -> pa.Table | None:
        """What Arrow reads in regular lines; None where a line is no row as the header has it."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        body = memoryview(self._content)[place or 0 :]
        if bytes(body[:3]) == codecs.BOM_UTF8 or not self._sep.isascii():  # Arrow would leave the mark out
            return None
        quoted = self._content.find(b'"', place or 0) >= 0
        if quoted and not all(regular_quotes(block, self._sep) for block in _blocks(body)):
            return None
        try:
            table = arrow.read_csv(
                pa.BufferReader(pa.py_buffer(body)),
                arrow.ReadOptions(column_names=header.names, block_size=max(MOST_IN_LINE, PIECE), use_threads=False),
                arrow.ParseOptions(delimiter=self._sep, quote_char='"' if quoted else False),
                arrow.ConvertOptions(
                    column_types=dict.fromkeys(header.kept, pa.large_string()),
                    include_columns=header.kept,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if header.spare and header.names[-1] in header.kept and table.column(header.names[-1]).null_count < len(table):
            return None
        self._blank += _lines_in(bytes(body)) + (bytes(body[-1:]) not in (b"\n", b"\r")) - len(table)
        return table

    def _next(self, width: int) -> list[str] | None:
        """The next row that is no blank line."""
        while True:
            before = self._line
            try:
                row = next(self._reader, None)
            except csv.Error as error:
                raise self._unreadable(error, before + 1) from error
            # In a table of one column, blanks are a cell.
            if row is not None and (not row or (width > 1 and len(row) == 1 and not row[0].strip())):
                self._blank += 1
                continue
            self._start = before + 1
            if row is not None and self._line - before > 1:
                self._broken += 1
                self._longest = max(self._longest, self._line - before)
            return row

    def _rows(self, first: list[str], header: Header, expected: str) -> Iterator[list[list[str]]]:
        """All rows, in chunks."""
        width, row = len(header.names), first
        rows = list[list[str]]()
        while row:
            if len(row) != width or (header.spare and row[-1].strip()):
                raise self._ragged(len(row), width - header.spare, self._start, expected)
            if header.spare:
                row[-1] = ""
            rows.append(row)
            if len(rows) * width >= CHUNK_CELLS:
                yield rows
                rows = []
            row = self._next(width) or []
        yield rows

    def _ragged(self, found: int, width: int, line: int, expected: str) -> Exception:
        if found < width:
            do = "The file may be cut short, or a separator is missing: fetch it again, or correct that line."
        else:
            do = "A separator too many, or a text that holds one without quotes: correct that line."
            if found == width + 1 and line <= self._skipped + 3:
                do += " If the first column numbers the rows and has no name, write skiprows: 1 and names."
        if width == 1 or line <= self._skipped + 3:
            do += " If lines of text stand above the header, write skiprows; if the separator is another one, sep."
        return self._notes.error(f"expected {counted(width, 'field')} as in {expected}, found {found:,}. {do}", line)

    def _unreadable(self, error: csv.Error, start: int) -> Exception:
        swallowed = self._line - start + 1
        reach = f" (it swallows {counted(swallowed, 'line')})" if swallowed > 1 else ""
        ends = "expected after" in str(error)
        found = f"a quote that {'ends in the middle of a cell' if ends else 'is never closed'}{reach}"
        return self._notes.error(
            f"expected quotes in pairs around whole cells, found {found}. Correct the row that begins in this line; a "
            "quote inside a quoted cell is written twice.",
            start,
        )


def _blocks(body: memoryview) -> Iterator[bytes]:
    """Whole lines, some MB at once."""
    place = 0
    while place < len(body):
        block = bytes(body[place : place + PIECE])
        end = max(block.rfind(b"\n"), block.rfind(b"\r", 0, -1)) + 1
        block = block if place + PIECE >= len(body) else block[:end] if end else bytes(body[place:])
        place += len(block)
        yield block
