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
MOST_LINES = 100  # of a quoted cell, where a text is cut
OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}


@dataclass(frozen=True)
class Raw:
    """A table as it was read, before its types are known.

    Attributes:
        frame: the rows without repeated headers and totals, numbered from 0 as in the file; names
            of columns are text, each once. Of delimited text and Excel every cell is text as it was
            written, and missing only where the cell is empty. Parquet and SQL keep types.
        notes: what was detected or is doubtful; each note names the client.
        where: the client and the file; the beginning of messages.
    """

    frame: pd.DataFrame
    notes: tuple[Note, ...]
    where: str


def read_table(
    place: str | Path, options: ReadOptions, client: str, first: int | None = None
) -> Raw:
    r"""Read a client's table. Types are not determined here.

    Args:
        place: a file (delimited text, also compressed; Parquet; Feather; Excel; SPSS, Stata or
            SAS), or an SQLAlchemy URL. What a file is is seen from its first bytes. ``${NAME}`` in
            a URL stands for an environment variable.
        options: how the table is read.
        client: the name of the client, for messages.
        first: the number of bytes, decompressed, after which no more of delimited text is read; a
            note says so.

    Returns:
        The table, and notes on it.

    Raises:
        DataError: if the file is absent, unreadable, damaged, no table, larger than the options
            allow, or lacks what they name.
        ConfigError: if an extra is not installed.

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
    text = str(place)
    is_url = isinstance(place, str) and "://" in place
    if is_url:
        check_url(text)
    where = f"client {client!r}, {'database' if is_url else 'file'} {text[:300]}"
    notes = list[Note]()

    def add(
        said: str, kind: str = "", alternatives: Sequence[Mapping[str, Any]] = (), **fix: Any
    ) -> None:
        notes.append(
            Note(said, "read" if fix else kind, fix=fix, alternatives=alternatives, head=where)
        )

    failure: FedlitError
    try:
        frame = read_sql(text, options) if is_url else _read_file(Path(text), options, add, first)
        return Raw(_finished(frame, options, add), tuple(notes), where)
    except FedlitError as error:
        failure = type(error)(f"{where}: {error}")
    except ImportError as error:
        failure = ConfigError(f"{where}: {needs(str(error.name))}")
    except Exception as error:  # each library has its own, and damage may raise any
        cause = getattr(error, "orig", None) or error
        said = " ".join(str(cause).split())
        for secret in [os.environ.get(name) or name for name in VARIABLE.findall(text)]:
            said = said.replace(secret, "***").replace(quote(secret, safe=""), "***")
        told = f"cannot be read ({type(cause).__name__}: {said[:300].rstrip('.')})"
        failure = DataError(
            f"{where}: {told}. Check the path and its rights. Is it damaged, or cut short?"
        )
    raise failure from None  # what a driver raised may hold the URL


def _read_file(path: Path, options: ReadOptions, add: Add, first: int | None) -> pd.DataFrame:
    expect(options.query is None, "query", "the URL of a database", Told("a file"), kind=DataError)
    plain = path.is_file() or not path.exists()  # which says itself that there is none
    expect(plain, "path", "a file", Told("a folder, a device or a pipe"), "name a file", DataError)
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(b"PAR1\x15"):
        return read_parquet(path, options)
    if head.startswith(ARROW):
        return read_arrow(path, options)
    program = program_of(head)
    if program is not None:
        return read_statistics(path, program, options, add)
    is_markup = head.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"<", b"{", b"[{", b"[\n"))
    told = Told("a web page, XML or JSON, whatever it is called")
    advice = "save it as CSV, Parquet or .xlsx"
    expect(not is_markup, "content", "a table", told, advice, DataError)
    opener = next(
        (own for magic, own in OPENERS.items() if head.startswith(magic)),
        lambda path: path.open("rb"),
    )
    if head.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
        refuse_archive(members)
        if any(name.startswith("xl/worksheets/") for name in members):
            return read_excel(path, options, add)
        opener = _open_zip
    content = io.BytesIO()
    with opener(path) as source:
        start = source.read(len(head))
        refuse_unread(start)
        content.write(start)
        options.check_size(size=content.tell())
        while piece := source.read(min(PIECE, options.max_bytes + 1)):
            content.write(piece)
            options.check_size(size=content.tell())  # before it fills the memory
            # UTF-16 has other line ends
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
        own
        for own in archive.namelist()
        if not own.endswith("/") and not own.startswith("__MACOSX/")
    ]
    expect(len(names) == 1, "zip", "one file in it", Told(shorten(names)), "unpack it", DataError)
    # which says where a password or an unknown way of packing is in the way
    return archive.open(names[0])


def _finished(frame: pd.DataFrame, options: ReadOptions, add: Add) -> pd.DataFrame:
    """Leave out rows that are no data, and name the columns: with single blanks between words,
    ``unnamed_N`` without a name, and as ``rename`` says.
    """
    expect(
        len(frame) > 0,
        "table",
        "rows of data",
        Told("none"),
        "fetch or write the file again",
        DataError,
    )
    names = [" ".join(INVISIBLE.sub("", str(own)).split()) for own in frame.columns]
    frame = without_extra_rows(frame, names, options, add)
    expect(
        len(frame) > 0,
        "table",
        "rows of data",
        Told("headers and totals"),
        "fetch the file again",
        DataError,
    )
    if places := [place for place, name in enumerate(names, 1) if not name]:
        add(
            f"columns without a name are called {shorten([f'unnamed_{place}' for place in places])}"
        )
    names = [name or f"unnamed_{place}" for place, name in enumerate(names, 1)]
    rename = options.rename or {}
    for old in rename:
        expect(
            old in names,
            "rename",
            f"a column among {shorten([own[:80] for own in names])}",
            old,
            "",
            DataError,
            names,
        )
    names = [rename.get(name, name) for name in names]
    name, times = Counter(names).most_common(1)[0]
    advice = "rename all but one, or write skiprows: 1 and names"
    expect(
        times == 1,
        "header",
        "each name once",
        Told(f"{times} columns called {name!r}"),
        advice,
        DataError,
    )
    frame.columns = names
    return frame
