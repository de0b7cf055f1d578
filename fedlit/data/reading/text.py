"""Reads delimited text strictly and keeps each cell as it is written."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.options import MISSING
from fedlit.data.reading.raw import Notes, mostly_numbers, named
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

SNIFFED = 2**18
MOST_IN_LINE = 2**23
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SEP_LINE = re.compile(rb"sep=(.)(?:\r\n|\r|\n|\Z)", re.IGNORECASE)
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
BLANK_LINES = re.compile(rb"(?:[ \t]*(?:\r\n|\r|\n))*")
WESTERN = re.compile(
    rb"[\x80\x85\x91-\x97\xa0\xa7\xab\xb0\xb2\xb3\xb5\xbb\xc0-\xd6\xd8-\xf6\xf8-\xff]*"
)  # letters and a few signs of cp1252


def read_text(content: bytes, notes: Notes, sep: str | None = None) -> pd.DataFrame:
    """Read delimited text with pyarrow. Python's strict csv reader checks quotes and finds the line of an error.

    Args:
        content: the bytes of the file, decompressed.
        notes: the reading options; collects the notes.
        sep: the separator; if None, it comes from the options or is detected.

    Returns:
        One ``str`` column for each; an empty cell is missing.

    Raises:
        DataError: naming the line, where the text is no regular table.
    """
    options = notes.options
    content = _as_utf8(content, notes)
    sep_line = SEP_LINE.match(content)
    if sep_line:
        notes.add(
            f"its first line, {sep_line.group().decode().strip()!r}, is treated as the definition of the separator."
        )
    start = 0
    for _ in range(options.skiprows or sep_line is not None):
        if (above := LINE.match(content, start)) is None:
            raise notes.error(f"skiprows: expected fewer lines than the file has, found {options.skiprows:,}.")
        start = above.end()
    if blank := BLANK_LINES.match(content, start):
        start = blank.end()
    sep = options.sep or sep or (sep_line and sep_line.group(1).decode())
    text = _Text(content[start:], _lines_in(content[:start]), sep, notes)
    del content
    return text.frame()


class _Text:
    """Text that begins with its header. Each row must have as many fields as the header.

    Args:
        content: UTF-8.
        above: the number of lines above it.
        sep: the separator; detected if None.
        notes: the reading options; collects the notes.
    """

    def __init__(self, content: bytes, above: int, sep: str | None, notes: Notes) -> None:
        self.notes, self.above, names = notes, above, notes.options.names
        self.sep = sep or _separator(content, notes)
        self.content = _without_blanks_around_quotes(content, self.sep)
        if self.content != content:
            notes.add("blanks between quotes and separators are left out.")
        rows = (row for _, _, row in self.rows())
        header = names or next(rows, [])
        if not names and _is_data(header):
            names = [f"c{place}" for place in range(1, len(header) + 1)]
            said = f"its first line is numbers, so it has no header; its columns are called c1 to {names[-1]}"
            notes.add(f"{said}. Else write names.", names=names)
            notes.hint = " Its first line is numbers, so it has no header: write names."
        self.has_header = not names
        first = next((row for row in rows if not _is_blank(row, len(header))), None)
        if first is None:
            raise notes.error("expected rows of data, found none. Fetch or write the file again.")
        given = notes.options.names
        if given and 2 * sum(cell.strip() in given for cell in first) > len(given):
            raise notes.error("names are for a file without a header, but it has one. Leave out names, or skiprows: 1.")
        self.width, self.spare = len(header), len(first) == len(header) + 1 and not first[-1].strip()
        self.names = named([*(names or header), *[""] * self.spare], notes)
        if self.has_header and mostly_numbers(self.names):
            notes.add(f"most names of columns are numbers ({shorten(self.names)}). If there is no header, write names.")

    def frame(self) -> pd.DataFrame:
        """Return the columns as a data frame."""
        import pyarrow as pa
        from pyarrow import csv as arrow

        quoted = b'"' in self.content
        blank = self.check() if quoted else None
        try:
            table = arrow.read_csv(
                pa.BufferReader(self.content),
                arrow.ReadOptions(
                    column_names=self.names,
                    skip_rows_after_names=int(self.has_header),
                    block_size=MOST_IN_LINE,
                    use_threads=False,
                ),
                arrow.ParseOptions(
                    delimiter=self.sep,
                    quote_char='"' if quoted else False,
                    newlines_in_values=quoted,
                    invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
                ),
                arrow.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.large_string()),
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            self.check()
            raise self.notes.error(f"expected a regular table, found: {error}. Correct the file.") from error
        if self.spare and table.column(self.names[-1]).null_count < len(table):
            self.check()
        self.notes.check_size(len(table))
        if blank is None:
            blank = _lines_in(self.content) - len(table) - self.has_header
            blank += not self.content.endswith((b"\n", b"\r"))
        if blank:
            self.notes.add(f"{counted(blank, 'blank line was', 'blank lines were')} skipped.")
        self.content = b""  # the columns hold their own copies
        made: pd.DataFrame = table.to_pandas(
            types_mapper={pa.large_string(): text_dtype()}.get, split_blocks=True, self_destruct=True
        )
        return made

    def rows(self) -> Iterator[tuple[int, int, list[str]]]:
        """Yield, for each row, the line where it begins (counted from 1), its number of lines, and its cells."""
        # The reader's own limit of 131,072 characters a cell is for all of a process.
        csv.field_size_limit(max(csv.field_size_limit(), MOST_IN_LINE))
        lines = io.TextIOWrapper(io.BytesIO(self.content), "utf-8", newline="")
        reader = csv.reader(lines, delimiter=self.sep, strict=True)
        before = 0
        try:
            for row in reader:
                yield self.above + before + 1, reader.line_num - before, row
                before = reader.line_num
        except csv.Error as error:
            raise self.notes.error(
                "expected quotes in pairs around whole cells, found a cell of "
                f"{counted(reader.line_num - before, 'line')} ({error}). "
                "Correct the row that begins here; a quote inside a quoted cell is written twice.",
                self.above + before + 1,
            ) from error

    def check(self) -> int:
        """Refuse the first line that is not a valid row; otherwise return the number of blank lines."""
        blank, several = 0, list[int]()
        header = self.has_header
        for line, taken, row in self.rows():
            if taken > 1:
                several.append(taken)
            if _is_blank(row, self.width):
                blank += 1
            elif not header and (len(row) != self.width + self.spare or (self.spare and row[-1].strip())):
                raise self.notes.error(
                    f"expected {counted(self.width, 'field')} as in the header, found {len(row):,}. Correct that line. "
                    "If lines of text stand above the header, write skiprows; if the separator is another one, sep; if "
                    "the first column has no name, skiprows: 1 and names.",
                    line,
                )
            header = False
        if several:
            self.notes.add(
                f"{counted(len(several), 'row holds', 'rows hold')} quoted cells with line ends; the longest takes "
                f"{max(several):,} lines. Were lines swallowed by a quote too many?"
            )
        return blank


def _is_data(header: Sequence[str]) -> bool:
    """Return whether a first line is a row of numbers rather than names. Different whole numbers, such as 2019 and
    2020, may be names.

    >>> _is_data(["63.0", "1", "?"]), _is_data(["age", "63"]), _is_data(["2019", "2020"]), _is_data(["1", "1"])
    (True, False, False, True)
    """
    held = [cell.strip() for cell in header if cell.strip().casefold() not in MISSING]
    names = len({*held}) == len(held) and all(own.isdecimal() for own in held)
    return bool(held) and all(mostly_numbers([own]) for own in held) and not names


def _is_blank(row: Sequence[str], width: int) -> bool:
    """Return whether a line is blank. In a table of one column, blanks are a cell."""
    return not row or (width > 1 and len(row) == 1 and not row[0].strip())


def _lines_in(piece: bytes) -> int:
    """Count the line ends in a piece of text: LF, CR or both."""
    returns = piece.count(b"\r")
    return piece.count(b"\n") + returns - (piece.count(b"\r\n") if returns else 0)


def _as_utf8(content: bytes, notes: Notes) -> bytes:
    """Return a text as UTF-8 without a byte order mark; note the encoding if it was detected."""
    declared = notes.options.encoding
    found = declared or ("utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8")
    if found != "utf-8" or not content.isascii():
        try:
            text = content.decode(found)
        except UnicodeError as error:
            if declared:
                raise notes.error(f"encoding: expected text in {declared}, found another: {error}.") from error
            found = _likely(content)
            text = content.decode(found)
        if found != "utf-8":
            content = text.encode()
            if not declared:
                word = re.search(r"\w*[^\x00-\x7f\ufeff]+\w*", text)
                such = f", such as {word.group()!r}" if word else ""
                notes.add(f"is not UTF-8 and is read as {found}{such}. Else write encoding.", encoding=found)
    if (nul := content.find(b"\0")) >= 0:
        line = _lines_in(content[:nul]) + 1
        raise notes.error("expected text, found NUL bytes. Save it anew; if it is UTF-16, write encoding.", line)
    return content.removeprefix(codecs.BOM_UTF8)


def _likely(content: bytes) -> str:
    """Return the likely encoding, which decodes all of a text that is not UTF-8: cp1252 if all letters are Western or
    nothing better is found.

    >>> _likely("Müller,Köln".encode("latin-1"))
    'cp1252'
    """
    from charset_normalizer import from_bytes

    # The first lines that are more than ASCII: the others would drown them.
    telling = itertools.islice((line for line in content.splitlines() if not line.isascii()), 200)
    sample, likely = b"\n".join(telling)[: 2**15], ["cp1252"]
    if re.search(rb"[\x80-\xff]{2}", sample) or not WESTERN.fullmatch(re.sub(rb"[\x00-\x7f]", b"", sample)):
        best = from_bytes(sample).best()
        if best is not None:  # short texts are taken for those of a Macintosh, and hardly any is
            likely.insert(1 if best.encoding.startswith("mac") else 0, str(best.encoding))
    for found in likely:
        try:
            content.decode(found)
            return found
        except UnicodeError:
            continue
    return "latin-1"  # in which every byte is a letter of its own


def _without_blanks_around_quotes(content: bytes, sep: str) -> bytes:
    r"""Remove blanks between a quoted cell and a separator or the end of a line.

    >>> _without_blanks_around_quotes(b'a, "b, c" ,d\n "e" ,"f, ""g"\n', ",")
    b'a,"b, c",d\n"e","f, ""g"\n'
    """
    if not any(own in content for own in (b' "', b'" ', b'\t"', b'"\t')):
        return content
    blank = b" *" if sep == "\t" else rb"[ \t]*"
    end = rb"[\r\n" + re.escape(sep.encode()) + rb"]"
    cell = rb"(\A|" + end + rb")" + blank + rb'("[^"]*(?:""[^"]*)*")' + blank + rb"(?=" + end + rb"|\Z)"
    return re.sub(cell, rb"\1\2", content)


def _separator(content: bytes, notes: Notes) -> str:
    """Return the separator that splits all the first lines into one number of fields, or the one that
    fits most lines.
    """
    names = notes.options.names
    shares = {sep: _share(content[:SNIFFED], sep, names) for sep in SEPARATORS}
    if list(shares.values()).count(1) > 1:
        fit = [sep for sep, share in shares.items() if share == 1]
        raise notes.error(f"sep: expected one separator that fits the first lines, found {fit}. Write sep.")
    best = max(shares, key=lambda sep: shares[sep])
    if shares[best] <= 0.5:
        if names is None or len(names) > 1:
            notes.add("no separator was found: it is read as one column. If there are more, write sep.")
        return ","
    if best != ",":
        notes.add(f"fields are separated by a {SEPARATORS[best]}.", sep=best)
    return best


def _share(start: bytes, sep: str, names: Sequence[str] | None) -> float:
    """Return the share of lines with the most common number of fields; it is 1 only if the header has
    that number, too.
    """
    text = _without_blanks_around_quotes(start, sep).decode("utf-8", "ignore")
    try:
        rows = itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=sep), 101)
        widths = [len(row) for row in rows if any(map(str.strip, row))]
    except csv.Error:
        return 0
    if len(start) == SNIFFED and 1 < len(widths) <= 100:
        widths.pop()  # it may be cut
    if not widths:
        return 0
    header, body = (len(names), widths) if names else (widths[0], widths[1:] or widths)
    usual, times = Counter(body).most_common(1)[0]
    return 0 if usual < 2 else times / len(body) * (1 if header == usual else 0.95 if header == usual - 1 else 0.9)


def text_dtype() -> Any:
    """Return the dtype of text that Arrow stores, in which NaN means missing."""
    import numpy as np
    import pandas as pd

    return pd.StringDtype("pyarrow", na_value=np.nan)
