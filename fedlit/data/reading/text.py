"""Delimited text, plain or compressed: strict, each cell as it is written."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.names import Header, check_no_header
from fedlit.data.reading.options import Notes, ReadOptions, one_line
from fedlit.show.text import counted

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_utf8", "read_text"]

SNIFFED = 2**18
MOST_IN_LINE = 2**23
ONE_BYTE = ["cp1252", "cp1250", "cp1254", "cp1257", "mac_roman", "cp850"]
WESTERN = re.compile(
    rb"[\x80\x85\x91-\x97\xa0\xa7\xab\xb0\xb2\xb3\xb5\xbb\xc0-\xd6\xd8-\xf6\xf8-\xff]*"
)  # letters, a few signs
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SEP_LINE = re.compile(rb"sep=(.)(?:\r\n|\r|\n|\Z)", re.IGNORECASE)
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\r|\n))*")


def read_text(
    content: bytes, options: ReadOptions, notes: Notes, types: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Read delimited text by pyarrow. Python's strict reader checks quotes, and finds the line at fault.

    Args:
        content: the bytes of the file, decompressed.
        options: how it is read.
        notes: takes what is found; whose file it is.
        types: column → NumPy type; pyarrow finds the type of a column that is not among them. None keeps all as text.

    Returns:
        One column for each that is kept.

    Raises:
        DataError: naming the line, where the text is no regular table.
    """
    content = as_utf8(content, options.encoding, notes)
    if b"\0" in content:
        line = _lines_in(content[: content.index(b"\0")]) + 1
        raise notes.error("holds NUL bytes, expected text. The file is damaged, or no text: write it again.", line)
    own = SEP_LINE.match(content)
    if own:
        notes.add(f"its first line, {own.group().decode().strip()!r}, is taken for the separator.")
    skipped = options.skiprows + (own is not None and not options.skiprows)
    above = list(itertools.islice(LINE.finditer(content), skipped))
    if len(above) < skipped:
        count = counted(len(content.splitlines()), "line")
        raise notes.error(f"skiprows says {skipped:,}, but there are only {count}. Lower it.")
    place = above[-1].end() if above else 0
    blank = BLANK_LINES.match(content, place)
    assert blank is not None  # it fits the empty text
    skipped, content = skipped + _lines_in(blank.group()), content[blank.end() :]
    sep = options.sep or (own and own.group(1).decode()) or _separator(content, options.names, notes)
    tidied = without_blanks_around_quotes(content, sep)
    if tidied != content:
        notes.add("blanks between quotes and separators are left out.")
    text = _Text(tidied, sep, skipped, options, notes)
    del content, tidied  # the columns hold their own copies
    return text.frame(_lines_in(blank.group()), types)


def as_utf8(content: bytes, declared: str | None, notes: Notes) -> bytes:
    """A text as UTF-8 without a byte order mark; what was found is noted.

    Raises:
        DataError: it is not encoded as declared.
    """
    found = declared or _marked(content)
    try:
        text = content.decode(found)
    except UnicodeError as error:
        if declared:
            raise notes.error(
                f"expected text encoded as {declared}, found something else ({one_line(error)}). Save it as UTF-8, or "
                "write its encoding."
            ) from error
        # the first lines that are more than ASCII: the others would drown them
        telling = (line for line in content.splitlines(keepends=True) if not line.isascii())
        found = _likely(b"".join(itertools.islice(telling, 200))[: 2**15])
        text = content.decode(found, "replace")
    if found == "utf-8":
        return content.removeprefix(codecs.BOM_UTF8)
    if not declared:
        word = re.search(r"\w*[^\x00-\x7f\ufeff]+\w*", text)
        such = f", such as {word.group()!r}" if word else ""
        notes.add(
            f"it is not UTF-8 and is read as {found}{such}. If letters look wrong, write encoding.", encoding=found
        )
    return text.removeprefix("\ufeff").encode()


def _marked(content: bytes) -> str:
    """The encoding that a byte order mark or the pattern of NUL bytes gives away.

    >>> _marked(b"a,b"), _marked("a,b".encode("utf-16-le"))
    ('utf-8', 'utf-16-le')
    """
    for mark, name in MARKS.items():
        if content.startswith(mark):
            return name
    odd, even = content[1:2000:2].count(b"\0"), content[:2000:2].count(b"\0")
    if 5 * (odd + even) > 2 * len(content[:2000]) and not (odd and even):
        return "utf-16-le" if odd else "utf-16-be"
    return "utf-8"


def _likely(sample: bytes) -> str:
    """The likely encoding of bytes that are not UTF-8; cp1252 where all letters are Western, or nothing is known.

    >>> _likely("Müller,Köln".encode("latin-1"))
    'cp1252'
    """
    from charset_normalizer import from_bytes

    apart = re.search(rb"[\x80-\xff]{2}", sample) is None
    if apart and WESTERN.fullmatch(re.sub(rb"[\x00-\x7f]", b"", sample)):
        return "cp1252"
    best = from_bytes(sample, cp_isolation=ONE_BYTE if apart else None).best()
    # Short texts are taken for those of a Macintosh, and hardly any is.
    return "cp1252" if best is None or best.encoding.startswith("mac") else str(best.encoding)


def _lines_in(piece: bytes) -> int:
    r"""Return how many lines end in a piece of text, by LF, CR or both.

    >>> _lines_in(b"a\nb\r\nc\rd")
    3
    """
    returns = piece.count(b"\r")
    return piece.count(b"\n") + returns - (piece.count(b"\r\n") if returns else 0)


def without_blanks_around_quotes(content: bytes, sep: str) -> bytes:
    r"""The text without blanks between a quoted cell and a separator, or a line's end.

    >>> without_blanks_around_quotes(b'a, "b, c" ,d\n "e" ,"f, ""g"\n', ",")
    b'a,"b, c",d\n"e","f, ""g"\n'
    """
    if not any(own in content for own in (b' "', b'" ', b'\t"', b'"\t')):
        return content
    blank = b" *" if sep == "\t" else b"\t*" if sep == " " else rb"[ \t]*"
    end = rb"[\r\n" + re.escape(sep.encode()) + rb"]"
    quoted = rb'"[^"]*(?:""[^"]*)*"'
    cell = re.compile(rb"(\A|" + end + rb")" + blank + rb"(" + quoted + rb")" + blank + rb"(?=" + end + rb"|\Z)")
    return cell.sub(rb"\1\2", content)


def _separator(content: bytes, names: Sequence[str] | None, notes: Notes) -> str:
    """The separator that gives the first lines one number of fields, or the one that fits most of them."""
    shares = {sep: _share(content[:SNIFFED], sep, names) for sep in SEPARATORS}
    fit = [sep for sep, share in shares.items() if share == 1]
    if len(fit) > 1:
        found = " and ".join(map(repr, fit))
        raise notes.error(f"fields may be separated by {found}: the first lines fit both. Write sep.")
    best = max(shares, key=lambda sep: shares[sep])
    if shares[best] <= 0.5:
        if names is None or len(names) > 1:
            notes.add("no separator was found: it is read as one column. If there are more, write sep.")
        return ","
    if best != ",":
        notes.add(f"fields are separated by a {SEPARATORS[best]}.", sep=best)
    return best


def _share(start: bytes, sep: str, names: Sequence[str] | None) -> float:
    """The share of lines with the most common number of fields, 1 only where the header has it, too."""
    text = without_blanks_around_quotes(start, sep).decode("utf-8", "ignore")
    try:
        rows = itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=sep), 101)
        widths = [len(row) for row in rows if any(map(str.strip, row))]
    except csv.Error:
        return 0
    if len(start) == SNIFFED and 1 < len(widths) <= 100:
        widths.pop()  # it may be cut
    header, body = (len(names), widths) if names else ((widths[:1] or [0])[0], widths[1:] or widths)
    if not body:
        return 0
    usual, times = Counter(body).most_common(1)[0]
    return 0 if usual < 2 else times / len(body) * (1 if header == usual else 0.95 if header == usual - 1 else 0.9)


class _Text:
    """The rows of one text, each of which must have the header's number of fields.

    Args:
        content: UTF-8, from the header on.
        sep: the separator.
        skipped: how many lines stand above it.
        options: how it is read.
        notes: whose text it is.
    """

    def __init__(self, content: bytes, sep: str, skipped: int, options: ReadOptions, notes: Notes) -> None:
        self._content, self._sep, self._skipped, self._notes = content, sep, skipped, notes
        self._names = options.names
        rows = self._rows()
        line, _, header = (0, 0, options.names) if options.names is not None else next(rows, (0, 0, None))
        if header is None:
            raise notes.error("expected a header and rows of data, found none. Fetch or write the file again.")
        self._expected = "names" if options.names is not None else f"the header (line {line:,})"
        line, _, first = next((own for own in rows if not _blank(own[2], len(header))), (0, 0, None))
        if first is None:
            raise notes.error("expected rows of data, found none. Fetch or write the file again.")
        if options.names is not None:
            check_no_header(first, options.names, notes, f"line {line:,}")
        self._header = Header(header, options, notes, spare=len(first) == len(header) + 1 and not first[-1].strip())

    def frame(self, blank: int, types: Mapping[str, Any] | None) -> pd.DataFrame:
        """The columns; ``blank`` lines were skipped before."""
        quotes = self._content.count(b'"')
        table = self._table(quotes > 0, types)
        lines = _lines_in(self._content) + (self._content[-1:] not in (b"\n", b"\r"))
        more = lines - len(table) - (self._names is None)
        # Where each line is a row, no quote swallowed a line.
        blank += self._check() if quotes % 2 or (quotes and (more or self._text_behind_quotes())) else more
        if blank:
            self._notes.add(f"{counted(blank, 'blank line was', 'blank lines were')} skipped.")
        self._content = b""  # the columns hold their own copies
        return self._header.frame(table)

    def _text_behind_quotes(self) -> bool:
        """Return whether a closing quote is followed by text, which Arrow would append to the cell."""
        sep = re.escape(self._sep.encode())
        cell = rb"(?:\A|[\r\n]|" + sep + rb')"[^"\r\n]*(?:""[^"\r\n]*)*"'
        return re.search(cell + rb'(?!["\r\n]|' + sep + rb"|\Z)", self._content) is not None

    def _table(self, quoted: bool, types: Mapping[str, Any] | None) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow

        own = self._header
        known = dict.fromkeys(own.kept, str) if types is None else types
        try:
            table = arrow.read_csv(
                pa.BufferReader(self._content),
                arrow.ReadOptions(
                    column_names=own.names,
                    skip_rows_after_names=int(self._names is None),
                    block_size=MOST_IN_LINE,
                    use_threads=False,
                ),
                arrow.ParseOptions(
                    delimiter=self._sep,
                    quote_char='"' if quoted else False,
                    newlines_in_values=quoted,
                    invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
                ),
                arrow.ConvertOptions(
                    column_types={
                        name: pa.large_string() if kind is str else pa.from_numpy_dtype(kind)
                        for name, kind in known.items()
                    },
                    include_columns=own.kept,
                    null_values=["", *own.missing] if types is not None else [""],
                    strings_can_be_null=True,
                ),
                # Arrow's own pool keeps what is freed: where columns become NumPy's, none of it is used again.
                memory_pool=None if types is None else pa.system_memory_pool(),
            )
        except pa.ArrowInvalid as error:
            self._check()
            raise self._notes.error(f"expected a regular table, found: {one_line(error)}. Correct the file.") from error
        if own.spare and own.names[-1] in own.kept and table.column(own.names[-1]).null_count < len(table):
            self._check()
        return table

    def _rows(self) -> Iterator[tuple[int, int, list[str]]]:
        """The line where each row begins, counted from 1; how many lines it takes; its cells."""
        # The reader's own limit of 131,072 characters a cell is for all of a process.
        csv.field_size_limit(max(csv.field_size_limit(), MOST_IN_LINE))
        text = io.TextIOWrapper(io.BytesIO(self._content), "utf-8", newline="")
        reader = csv.reader(text, delimiter=self._sep, strict=True)
        before = 0
        while True:
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise self._unreadable(error, self._skipped + before + 1, reader.line_num - before) from error
            if row is None:
                return
            yield self._skipped + before + 1, reader.line_num - before, row
            before = reader.line_num

    def _check(self) -> int:
        """Refuse the first line that is no row; the number of blank lines otherwise."""
        spare, width = self._header.spare, len(self._header.names)
        blank, several = 0, list[int]()
        header = self._names is None
        for line, taken, row in self._rows():
            if _blank(row, width):
                blank += 1
            elif not header and (len(row) != width or (spare and row[-1].strip())):
                raise self._ragged(len(row), width - spare, line)
            elif taken > 1:
                several.append(taken)
            header = False
        if several:
            self._notes.add(
                f"{counted(len(several), 'row holds', 'rows hold')} quoted cells with line ends; the longest takes "
                f"{max(several):,} lines. Were lines swallowed by a quote too many?"
            )
        return blank

    def _ragged(self, found: int, width: int, line: int) -> Exception:
        do = "Correct that line: a separator is missing, or a text that holds one has no quotes."
        if width == 1 or line <= self._skipped + 3:
            do += (
                " If lines of text stand above the header, write skiprows; if the separator is another one, sep; if the"
                " first column has no name, skiprows: 1 and names."
            )
        expected = f"expected {counted(width, 'field')} as in {self._expected}"
        return self._notes.error(f"{expected}, found {found:,}. {do}", line)

    def _unreadable(self, error: csv.Error, line: int, taken: int) -> Exception:
        reach = f", and the cell goes on for {counted(taken, 'line')}" if taken > 1 else ""
        return self._notes.error(
            f"expected quotes in pairs around whole cells, found a quote that is never closed, or closed within a cell "
            f"({one_line(error)}{reach}). Correct the row that begins in this line; a quote inside a quoted cell is "
            "written twice.",
            line,
        )


def _blank(row: Sequence[str], width: int) -> bool:
    """Return whether a line is blank. In a table of one column, blanks are a cell."""
    return not row or (width > 1 and len(row) == 1 and not row[0].strip())
