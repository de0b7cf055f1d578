"""Delimited text, plain or compressed: strict, cell by cell as written, in chunks."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.cells import TextTable
from fedlit.data.reading.names import check_no_header
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.quotes import regular_quotes, without_blanks_around_quotes
from fedlit.data.reading.raw import Notes, counted, one_line
from fedlit.data.reading.recognise import kind_of, opened, refuse
from fedlit.data.reading.separator import found_separator
from fedlit.data.reading.utf8 import (
    MAX_LINE,
    PIECE,
    BlanksAroundQuotes,
    Lines,
    Watch,
    found_encoding,
    lines_in,
    marked_encoding,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_delimited"]

CHUNK_CELLS = 50_000
SNIFFED = 2**18
CHUNK_BYTES = 2**24
SEP_LINE = re.compile(r"sep=(.)(?:\r\n|\r|\n|\Z)", re.IGNORECASE)
LINE_END = re.compile(r"\r\n|\r|\n")


def read_delimited(path: Path, kind: str, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read delimited text.

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
    # The module's own limit of 131,072 characters a cell is for all readers of a process; lines are bounded elsewhere.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    encoding, said, tidied = options.encoding, len(notes.texts), False
    while True:
        try:
            with opened(path, kind, notes) as source:
                head = _filled(source)
                inside = kind_of(head, suffix=".csv")
                if kind != "text" and inside != "text":
                    raise refuse(inside, notes, f"what is inside the {kind} file ")
                return _read(source, head, encoding, options, notes, tidied=tidied)
        except BlanksAroundQuotes:
            tidied = True
        except UnicodeError as error:
            if encoding is not None:
                raise notes.error(
                    f"expected text encoded as {encoding}, found something else ({one_line(error)}). Save it as UTF-8, "
                    f"or write its encoding."
                ) from error
            encoding = found_encoding(_telling(head) + _telling(getattr(error, "object", b"")))
        del notes.texts[said:]


def _filled(source: Any) -> bytes:
    pieces: list[bytes] = []
    while sum(map(len, pieces)) < PIECE and (piece := source.read(PIECE)):
        pieces.append(piece)
    return b"".join(pieces)


def _telling(piece: object) -> bytes:
    """The first lines that are more than ASCII: the others would drown them."""
    lines = piece.splitlines(keepends=True) if isinstance(piece, bytes) else []
    return b"".join(itertools.islice((line for line in lines if not line.isascii()), 200))[: 2**15]


def _read(
    source: Any, head: bytes, encoding: str | None, options: ReadOptions, notes: Notes, *, tidied: bool
) -> pd.DataFrame:
    encoding, mark = _agreed_encoding(head, encoding)
    head = head[mark:]
    complete = len(head) <= SNIFFED
    if options.encoding is None and encoding != "utf-8":
        notes.add(f"it is not UTF-8 and is read as {encoding}. If letters look wrong, write encoding.")
    start = head[:SNIFFED].decode(encoding, "strict" if complete else "ignore")
    own = SEP_LINE.match(start)
    skipped = options.skiprows or bool(own)
    if own:
        notes.add(f"its first line, {own.group().strip()!r}, is taken for the separator.")
    sep = options.sep or (own and own.group(1))
    if not sep:
        text = io.StringIO(start, newline="")
        for _ in range(skipped):
            text.readline()
        sep = found_separator(text.read(), complete=complete, names=options.names, notes=notes)
    watch = Watch(notes, options.max_bytes, sep, tidied=tidied)
    lines = Lines(source, head, encoding, watch)
    given = iter(lines)
    for line in range(skipped):
        if next(given, None) is None:
            raise notes.error(f"skiprows says {skipped:,}, but there are only {counted(line, 'line')}. Lower it.")
    if tidied:
        given = without_blanks_around_quotes(given, sep)
        notes.add("blanks between quotes and separators are left out.")
    return _Rows(lines, given, sep, skipped, options, notes).frame(tidied=tidied)


def _agreed_encoding(head: bytes, given: str | None) -> tuple[str, int]:
    """What to decode with, and the length of the byte order mark that fits it."""
    found, mark = marked_encoding(head)
    if given is None:
        return found, mark
    name = codecs.lookup(given).name.removesuffix("-sig")
    if found.startswith(name):  # utf-16 says nothing of the order, the mark does
        return found, mark
    return (f"{name}-le" if name in ("utf-16", "utf-32") else name), 0


class _Rows:
    """The rows of one text, checked one by one against its header."""

    def __init__(
        self, lines: Lines, given: Iterator[str], sep: str, skipped: int, options: ReadOptions, notes: Notes
    ) -> None:
        self._lines, self._sep = lines, sep
        self._reader = csv.reader(given, delimiter=sep, strict=True)
        self._skipped, self._options, self._notes = skipped, options, notes
        self._spare = False
        self._expected = ""
        self._blank = self._broken = self._longest = 0

    @property
    def _line(self) -> int:
        """The last line that was read, counted from 1."""
        return self._skipped + self._reader.line_num

    def frame(self, *, tidied: bool) -> pd.DataFrame:
        """Read all of them."""
        names = self._options.names
        header = names if names is not None else self._one(2)
        if header is None:
            raise self._notes.error("expected a header and rows of data, found none. Fetch or write the file again.")
        self._expected = "names" if names is not None else f"the header (line {self._line:,})"
        first = self._one(len(header))
        if first is None:
            raise self._notes.error("expected rows of data, found none. Fetch or write the file again.")
        before = self._line - _lines_of(first)
        if names is not None:
            check_no_header(first, names, self._notes, f"line {self._line:,}")
        self._spare = len(first) == len(header) + 1 and not first[-1].strip()
        width = len(header) + self._spare
        self._regular([first], width, before)
        table = TextTable(header, self._options, self._notes, spare=self._spare)
        table.add([first])
        if not tidied:
            self._read_plain(table)
        size = 1000
        while (rows := self._chunk(size, width)) is not None:
            table.add(rows)
            size = max(1, min(CHUNK_CELLS // width, CHUNK_BYTES * table.rows // self._lines.watch.seen))
        self._say()
        return table.frame()

    def _read_plain(self, table: TextTable) -> None:
        """Let Arrow read lines up to the first that are not regular: it is faster, and reads these the same."""
        while block := self._lines.block():
            ended = block if block.endswith((b"\n", b"\r")) else block + b"\n"
            quoted = b'"' in block
            read = None
            if not quoted or (self._sep.isascii() and regular_quotes(block, self._sep)):
                read = table.parsed(ended, self._sep, lines_in(ended), quoted=quoted)
            if read is None:
                self._lines.give_back(block)
                return
            table.take(read)
            self._skipped += read.num_rows

    def _one(self, width: int) -> list[str] | None:
        """The next line that is not blank."""
        while True:
            before = self._line
            try:
                row = next(self._reader, None)
            except csv.Error as error:
                raise self._unreadable(error, before + 1) from error
            if row is None or not _blank(row, width):
                if row is not None and self._line - before > 1:
                    self._count_line_ends([row])
                return row
            self._blank += 1

    def _chunk(self, size: int, width: int) -> list[list[str]] | None:
        before = self._line
        rows: list[list[str]] = []
        try:
            rows.extend(itertools.islice(self._reader, size))
        except csv.Error as error:  # what was read before it stays in the list
            start = before + sum(map(_lines_of, rows)) + 1
            raise self._unreadable(error, start) from error
        if not rows:
            return None
        if self._line - before != len(rows):
            self._count_line_ends(rows)
        return self._regular(rows, width, before)

    def _regular(self, rows: list[list[str]], width: int, before: int) -> list[list[str]]:
        """The rows without blank lines; each has the header's number of fields."""
        if set(map(len, rows)) == {width} and not (self._spare and any(row[-1].strip() for row in rows)):
            if self._spare:
                for row in rows:
                    row[-1] = ""
            return rows
        kept, line = [], before + 1
        for row in rows:
            if _blank(row, width):
                self._blank += 1
            elif len(row) != width or (self._spare and row[-1].strip()):
                raise self._ragged(len(row), width - self._spare, line)
            else:
                kept.append(row)
            line += _lines_of(row)
        return kept

    def _ragged(self, found: int, expected: int, line: int) -> Exception:
        if found < expected:
            do = "The file may be cut short, or a separator is missing: fetch it again, or correct that line."
        else:
            do = "A separator too many, or a text that holds one without quotes: correct that line."
            if found == expected + 1 and line <= self._skipped + 3:
                do += " If the first column numbers the rows and has no name, write skiprows: 1 and names."
        if expected == 1 or line <= self._skipped + 3:
            do += " If lines of text stand above the header, write skiprows; if the separator is another one, sep."
        return self._notes.error(
            f"expected {counted(expected, 'field')} as in {self._expected}, found {found:,}. {do}", line
        )

    def _unreadable(self, error: csv.Error, start: int) -> Exception:
        swallowed = self._line - start + 1
        reach = f" (it swallows {counted(swallowed, 'line')})" if swallowed > 1 else ""
        if "expected after" in str(error):
            found = f"a quote that ends in the middle of a cell{reach}"
        else:
            found = f"a quote that is never closed{reach}"
        return self._notes.error(
            f"expected quotes in pairs around whole cells, found {found}. Correct the row that begins in this line; a "
            f"quote inside a quoted cell is written twice.",
            start,
        )

    def _count_line_ends(self, rows: Sequence[Sequence[str]]) -> None:
        lines = [_lines_of(row) for row in rows]
        self._broken += sum(own > 1 for own in lines)
        self._longest = max(self._longest, *lines)

    def _say(self) -> None:
        if self._broken:
            self._notes.add(
                f"{counted(self._broken, 'row holds', 'rows hold')} quoted cells with line ends; the longest takes "
                f"{self._longest:,} lines. Were lines swallowed by a quote too many?"
            )
        if self._blank:
            self._notes.add(f"{counted(self._blank, 'blank line was', 'blank lines were')} skipped.")


def _blank(row: Sequence[str], width: int) -> bool:
    # In a table of one column, blanks are a cell.
    return not row or (width > 1 and len(row) == 1 and not row[0].strip())


def _lines_of(row: Sequence[str]) -> int:
    return 1 + sum(len(LINE_END.findall(cell)) for cell in row if "\n" in cell or "\r" in cell)
