"""Reads delimited text strictly and keeps each cell as it is written."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.options import MISSING, Add, ReadOptions
from fedlit.errors import DataError
from fedlit.show.text import counted, shorten

if TYPE_CHECKING:
    import pandas as pd

SNIFFED = 2**18
MOST_IN_LINE = 2**23
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
NUMBER = re.compile(r"[-+−]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?")
_SIGN = rb"[\x80\x85\x91-\x97\xa0\xa7\xab\xb0\xb2\xb3\xb5\xbb\xc0-\xd6\xd8-\xf6\xf8-\xff]"
# letters and a few signs of cp1252
WESTERN = re.compile(rb"(?:[\x00-\x7f]|" + _SIGN + rb"(?![\x80-\xff]))*")


def read_text(
    content: bytes, options: ReadOptions, add: Add, sep: str | None = None
) -> pd.DataFrame:
    """Read delimited text with pyarrow. Python's strict csv reader checks quotes and finds the line
    of an error.

    Args:
        content: the bytes of the file, decompressed.
        options: how the text is read.
        add: takes the notes.
        sep: the separator; if None, it comes from the options or is detected.

    Returns:
        One ``str`` column for each; an empty cell is missing.

    Raises:
        DataError: naming the line, where the text is no regular table.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    # The reader's own limit of 131,072 characters a cell is for all of a process.
    csv.field_size_limit(max(csv.field_size_limit(), MOST_IN_LINE))
    content = _as_utf8(content, options, add)
    above = re.match(
        rb"(?:[^\r\n]*(?:\r\n|\r|\n)){%d}(?:[ \t]*(?:\r\n|\r|\n))*" % options.skiprows, content
    )
    if above is None:
        raise DataError(
            f"skiprows: expected fewer lines than the file has, found {options.skiprows:,}."
        )
    content = content[above.end() :]
    line = len(re.findall(rb"\r\n|\r|\n", above.group())) + 1
    sep = sep or options.sep or _separator(content[:SNIFFED], options.names, add)
    first = [row for _, _, row in itertools.islice(_rows(content, sep, line), 2)]
    names = options.names
    header = first[0] if first else []
    if names and 2 * sum(cell.strip() in names for cell in header) > len(names):
        raise DataError(
            "names are for a file without a header, but it has one. Leave out names, or write "
            "skiprows: 1."
        )
    names = names or _names_if_none(header, add)
    if len(first) < (1 if names else 2):
        raise DataError("expected rows of data, found none. Fetch or write the file again.")
    width = len(names or header)
    if quoted := b'"' in content:
        _check(content, sep, line, width, add)
    places = [str(place) for place in range(width)]
    try:
        table = arrow.read_csv(
            pa.BufferReader(content),
            arrow.ReadOptions(
                column_names=places,
                skip_rows_after_names=int(not names),
                block_size=MOST_IN_LINE,
                use_threads=False,
            ),
            arrow.ParseOptions(
                delimiter=sep,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
                invalid_row_handler=lambda row: "error" if row.text.strip() else "skip",
            ),
            arrow.ConvertOptions(
                column_types=dict.fromkeys(places, pa.large_string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        _check(content, sep, line, width, add)
        raise DataError(f"expected a regular table, found: {error}. Correct the file.") from error
    options.check_size(len(table))
    del content  # the columns hold their own copies
    made: pd.DataFrame = table.to_pandas(
        types_mapper={pa.large_string(): text_dtype()}.get, split_blocks=True, self_destruct=True
    )
    return made.set_axis(names or header, axis=1)


def _names_if_none(header: Sequence[str], add: Add) -> list[str] | None:
    """Return names for the columns if a first line is a row of numbers, and None if it holds the
    names. Different whole numbers, such as 2019 and 2020, may be names.
    """
    held = [cell.strip() for cell in header if cell.strip().casefold() not in MISSING]
    numbers = sum(NUMBER.fullmatch(own) is not None for own in held)
    may_be_names = len({*held}) == len(held) and all(own.isdecimal() for own in held)
    if 0 < len(held) == numbers and not may_be_names:
        names = [f"c{place}" for place in range(1, len(header) + 1)]
        said = (
            "its first line is numbers, so it has no header; its columns are called c1 to "
            f"{names[-1]}"
        )
        add(f"{said}. Else write names", names=names)
        return names
    if 2 * numbers > len(held):
        add(
            f"most names of columns are numbers ({shorten(held)}). If there is no header, write "
            "names"
        )
    return None


def _rows(content: bytes, sep: str, line: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield, for each row that is not empty, the line where it begins, its number of lines, and its
    cells; ``line`` is the number of the first line.
    """
    reader = csv.reader(
        io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""), delimiter=sep, strict=True
    )
    before = 0
    try:
        for row in reader:
            if row:
                yield line + before, reader.line_num - before, row
            before = reader.line_num
    except csv.Error as error:
        raise DataError(
            f"line {line + before:,}: expected quotes in pairs around whole cells, found a cell of "
            f"{counted(reader.line_num - before, 'line')} ({error}). "
            "Correct the row that begins here; a quote inside a quoted cell is written twice."
        ) from error


def _check(content: bytes, sep: str, line: int, width: int, add: Add) -> None:
    """Refuse the first line that is not a valid row."""
    longest = 1
    for start, taken, row in _rows(content, sep, line):
        longest = max(longest, taken)
        if len(row) != width and not (len(row) == 1 and row[0].isspace()):
            raise DataError(
                f"line {start:,}: expected {counted(width, 'field')} as in the header, found "
                f"{len(row):,}. Correct that line. If lines of text stand above the header, write "
                "skiprows; if the separator is another one, sep; if the first column has no name, "
                "skiprows: 1 and names."
            )
    if longest > 1:
        add(
            f"quoted cells hold line ends; the longest row takes {longest:,} lines. Were lines "
            "swallowed by a quote?"
        )
    # a search from each of many blanks takes long
    first = rb"(?<! ) " if sep == " " else re.escape(sep.encode())
    if re.search(first + rb' ++"(?!")', content):
        add(
            "blanks stand before quotes, which are then read as a part of the cell. Remove the "
            "blanks"
        )


def _as_utf8(content: bytes, options: ReadOptions, add: Add) -> bytes:
    """Return a text as UTF-8 without a byte order mark; note the encoding if it was detected."""
    declared = options.encoding
    found = declared or (
        "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    )
    if found == "utf-8" and b"\0" in content:
        advice = (
            "Unpack it, or save it as CSV, Parquet or .xlsx; if it is UTF-16, write encoding; "
            "a database has a URL"
        )
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        found = f"found NUL bytes, as pictures, archives and old Excel files have, in line {line:,}"
        raise DataError(f"expected text, {found}. {advice}.")
    if found != "utf-8" or not content.isascii():
        try:
            text = content.decode(found)
        except UnicodeError as error:
            if declared or found == "utf-16":
                raise DataError(
                    f"encoding: expected text in {found}, found another: {error}."
                ) from error
            found = _likely(content)
            text = content.decode(found)
        if found != "utf-8":
            content = text.encode()
            if not declared:
                word = re.search(r"(?<!\w)\w*[^\x00-\x7f\ufeff]+\w*", text)
                such = f", such as {word.group()!r}" if word else ""
                add(
                    f"is not UTF-8 and is read as {found}{such}. Else write encoding",
                    encoding=found,
                )
    return content.removeprefix(codecs.BOM_UTF8)


def _likely(content: bytes) -> str:
    """Return the likely encoding of a text that is not UTF-8: cp1252 if all letters are Western, no
    two of them in a row, or if nothing better is found; latin-1, in which each byte is a letter, if
    that does not fit all of the text.

    >>> _likely("Müller,Köln".encode("latin-1"))
    'cp1252'
    """
    from charset_normalizer import from_bytes

    # The first lines that are more than ASCII: the others would drown them.
    telling = itertools.islice((line for line in content.splitlines() if not line.isascii()), 200)
    sample = b"\n".join(telling)[: 2**15]
    best = None if WESTERN.fullmatch(sample) else from_bytes(sample).best()
    # Short texts are taken for those of a Macintosh, and hardly any is.
    for likely in (
        [] if best is None or best.encoding.startswith("mac") else [str(best.encoding)]
    ) + ["cp1252"]:
        with suppress(UnicodeError):
            content.decode(likely)
            return likely
    return "latin-1"


def _separator(start: bytes, names: Sequence[str] | None, add: Add) -> str:
    """Return the separator that splits most of the first lines into as many fields, and into one
    for each name.
    """
    text = start.decode("utf-8", "ignore")
    shares = dict[str, float]()
    for sep in SEPARATORS:
        rows = itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=sep), 100)
        widths = Counter(len(row) for row in rows if any(map(str.strip, row)))
        fine = {len(names)} if names else {*widths}
        shares[sep] = max((widths[own] for own in fine - {1}), default=0) / max(1, widths.total())
    best = [sep for sep, share in shares.items() if share == max(shares.values())]
    if shares[best[0]] <= 0.5:
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


def text_dtype() -> Any:
    """Return the dtype of text that Arrow stores, in which NaN means missing."""
    import numpy as np
    import pandas as pd

    return pd.StringDtype("pyarrow", na_value=np.nan)
