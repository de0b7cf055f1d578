"""Reads one table from one place, in whatever format. The first bytes of a file say what it is."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from fedlit.data.note import Note
from fedlit.data.reading.binary import ARROW, program_of, refuse_archive, refuse_unread
from fedlit.data.reading.extra_rows import without_extra_rows
from fedlit.data.reading.formats import (
    VARIABLE,
    check_url,
    read_arrow,
    read_excel,
    read_parquet,
    read_sql,
)
from fedlit.data.reading.options import INVISIBLE, Add, ReadOptions
from fedlit.data.reading.statistics import read_statistics
from fedlit.data.reading.text import read_text
from fedlit.errors import ConfigError, DataError, FedlitError, Told, expect
from fedlit.extras import needs
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

PIECE = 2**20
MOST_LINES = 100
"""The largest number of lines of a quoted cell at the place where a text is cut."""
OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before its types are known.

    Attributes:
        frame: The rows without repeated headers and totals, numbered from 0 as in the file; names
            of columns are text, each once. In delimited text and Excel every cell is text as it was
            written, and missing only where the cell is empty. Parquet and SQL keep types.
        notes: What was detected or is doubtful; each note names the client.
        head: The client and the file, with which messages begin.
    """

    frame: pd.DataFrame
    notes: tuple[Note, ...]
    head: str


def read_table(
    source: str | Path, options: ReadOptions, client: str, first: int | None = None
) -> Raw:
    r"""Read a client's table. Types are not determined here.

    Args:
        source: A file (delimited text, also compressed; Parquet; Feather; Excel; SPSS, Stata or
            SAS), or an SQLAlchemy URL. The first bytes of a file show its format. ``${NAME}`` in a
            URL stands for an environment variable.
        options: How the table is read.
        client: The name of the client, for messages.
        first: The number of bytes, decompressed, after which no more of delimited text is read; a
            note says so.

    Returns:
        The table, and notes on it.

    Raises:
        DataError: The file is absent, unreadable, damaged, no table, larger than the options
            allow, or lacks what they name.
        ConfigError: An extra is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "north.csv")
        ...     _ = path.write_text("id;age\n007;55,3\n")
        ...     raw = read_table(path, ReadOptions(), "north")
        >>> raw.frame.to_dict("records")
        [{'id': '007', 'age': '55,3'}]
        >>> [note.text for note in raw.notes]
        ['fields are separated by a semicolon']
    """
    text = str(source)
    is_url = isinstance(source, str) and "://" in source
    if is_url:
        check_url(text)
    noun = "database" if is_url else "file"
    head = f"client {client!r}, {noun} {text[:300]}"
    notes = list[Note]()

    def add(
        text: str, kind: str = "", alternatives: Sequence[Mapping[str, Any]] = (), **fix: Any
    ) -> None:
        if fix:
            kind = "read"
        notes.append(Note(text, kind, fix=fix, alternatives=alternatives, head=head))

    failure: FedlitError
    try:
        frame = read_sql(text, options) if is_url else _read_file(Path(text), options, add, first)
        return Raw(_finished(frame, options, add), tuple(notes), head)
    except FedlitError as error:
        failure = type(error)(f"{head}: {error}")
    except ImportError as error:
        failure = ConfigError(f"{head}: {needs(str(error.name))}")
    except Exception as error:  # Each library has its own, and a damaged file may raise any.
        cause = getattr(error, "orig", None) or error
        message = " ".join(str(cause).split())
        for secret in [os.environ.get(name) or name for name in VARIABLE.findall(text)]:
            message = message.replace(secret, "***").replace(quote(secret, safe=""), "***")
        problem = f"cannot be read ({type(cause).__name__}: {message[:300].rstrip('.')})"
        failure = DataError(
            f"{head}: {problem}. Check the path and its rights. Is it damaged, or cut short?"
        )
    raise failure from None  # The error of a driver may hold the URL.


def _read_file(path: Path, options: ReadOptions, add: Add, first: int | None) -> pd.DataFrame:
    expect(options.query is None, "query", "the URL of a database", Told("a file"), kind=DataError)
    if path.exists() and not path.is_file():
        raise DataError("path: expected a file, found a folder, a device or a pipe; name a file")
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(b"PAR1\x15"):
        return read_parquet(path, options)
    if head.startswith(ARROW):
        return read_arrow(path, options)
    program = program_of(head)
    if program is not None:
        return read_statistics(path, program, options, add)
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"<", b"{", b"[{", b"[\n")):
        raise DataError(
            "content: expected a table, found a web page, XML or JSON, whatever it is called; "
            "save it as CSV, Parquet or .xlsx"
        )
    opener = _opener(head)
    if head.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        refuse_archive(members)
        if any(name.startswith("xl/worksheets/") for name in members):
            return read_excel(path, options, add)
        opener = _open_zip
    return _read_stream(path, opener, head, options, add, first)


def _opener(head: bytes) -> Callable[[Path], Any]:
    """Return the function that opens a file of text, plain or compressed."""
    for magic, opener in OPENERS.items():
        if head.startswith(magic):
            return opener
    return lambda path: path.open("rb")


def _read_stream(
    path: Path,
    opener: Callable[[Path], Any],
    head: bytes,
    options: ReadOptions,
    add: Add,
    first: int | None,
) -> pd.DataFrame:
    """Read delimited text piece by piece, and check its size before it fills the memory."""
    content = io.BytesIO()
    with opener(path) as source:
        start = source.read(len(head))
        refuse_unread(start)
        content.write(start)
        options.check_size(size=content.tell())
        while piece := source.read(min(PIECE, options.max_bytes + 1)):
            content.write(piece)
            options.check_size(size=content.tell())
            # UTF-16 has other line ends, so it is read to its end.
            if first is not None and content.tell() >= first and b"\0" not in head:
                add(f"only its first {first // 2**20} MiB were looked at", "sample")
                return read_text(_whole_rows(content.getvalue()), options, add)
    return read_text(content.getvalue(), options, add)


def _whole_rows(content: bytes) -> bytes:
    """Return the rows that are whole in the beginning of a text: a line may end inside quotes."""
    end = content.rfind(b"\n") + 1
    for _ in range(MOST_LINES):
        if content.count(b'"', 0, end) % 2 == 0:
            break
        end = content.rfind(b"\n", 0, end - 1) + 1
    return content[:end]


def _open_zip(path: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(path)
    names = [
        name
        for name in archive.namelist()
        if not name.endswith("/") and not name.startswith("__MACOSX/")
    ]
    expect(len(names) == 1, "zip", "one file in it", Told(shorten(names)), "unpack it", DataError)
    # Its error says so if a password or an unknown compression is in the way.
    return archive.open(names[0])


def _finished(frame: pd.DataFrame, options: ReadOptions, add: Add) -> pd.DataFrame:
    """Leave out rows that are no data, and name the columns: with single blanks between words,
    ``unnamed_N`` without a name, and as ``rename`` says.
    """
    if not len(frame):
        raise DataError("table: expected rows of data, found none; fetch or write the file again")
    names = [" ".join(INVISIBLE.sub("", str(column)).split()) for column in frame.columns]
    frame = without_extra_rows(frame, names, options, add)
    if not len(frame):
        raise DataError(
            "table: expected rows of data, found headers and totals; fetch the file again"
        )
    if "" in names:
        unnamed = [f"unnamed_{position}" for position, name in enumerate(names, 1) if not name]
        add(f"columns without a name are called {shorten(unnamed)}")
    names = [name or f"unnamed_{position}" for position, name in enumerate(names, 1)]
    rename = options.rename or {}
    expected = f"a column among {shorten([name[:80] for name in names])}"
    for old in rename:
        expect(old in names, "rename", expected, old, "", DataError, names)
    names = [rename.get(name, name) for name in names]
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise DataError(
            f"header: expected each name once, found {times} columns called {name!r}; "
            "rename all but one, or write skiprows: 1 and names"
        )
    frame.columns = names
    return frame
