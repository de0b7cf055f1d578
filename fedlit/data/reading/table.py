"""One table from one place, whatever it is kept as: what a file is, its first bytes say."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.excel import read_excel
from fedlit.data.reading.names import renamed
from fedlit.data.reading.options import Notes, Raw, ReadOptions, one_line
from fedlit.data.reading.sql import read_sql, shown_url
from fedlit.data.reading.text import read_text
from fedlit.data.reading.typed import read_feather, read_parquet

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["first_line", "read_table"]

PIECE = 2**20
ONLY_FOR = {
    "sheet": ("excel",),
    "query": ("sql",),
    "sep": ("text",),
    "encoding": ("text",),
    "names": ("text", "excel"),
    "skiprows": ("text", "excel"),
}
"""Options that say nothing of other kinds of files."""

MAGIC = {
    rb"\x1f\x8b": "gzip",
    rb"BZh[1-9]1AY&SY": "bzip2",
    rb"\xfd7zXZ\0": "xz",
    rb"\x28\xb5\x2f\xfd": "zstd",
    rb"PK(?:\x03\x04|\x05\x06)": "zip",
    rb"PAR1\x15": "parquet",
    rb"ARROW1\0\0": "feather",
    rb"SQLite format 3\0": "an SQLite database. Name it by a URL, sqlite:///path/to/file, and write query",
    rb"%PDF-": "a PDF",
    rb"\x89PNG": "a PNG picture",
    rb"\xff\xd8\xff": "a JPEG picture",
    rb"\xd0\xcf\x11\xe0": "an old Office file (.xls) or one with a password",
    rb".{257}ustar": "a tar archive",
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype html|html|\?xml|table|body|head|meta)": "a web page or XML",
    rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"]*"\s*:': "JSON",
}
"""How a file begins, and what it is; anything else is text."""

OPENERS: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.open("rb"),
    "gzip": gzip.open,
    "bzip2": bz2.open,
    "xz": lzma.open,
    "zstd": lambda path: _open_zstd(path),
    "zip": lambda path: _open_zip(path),
}
SUFFIXES = {
    ".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zip": "zip", ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".xlsx": "excel", ".xlsm": "excel",
}  # fmt: skip
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def read_table(place: str | Path, options: ReadOptions, client: str, types: Mapping[str, Any] | None = None) -> Raw:
    r"""Read a client's table. Nothing is decided of types.

    Args:
        place: a file (delimited text, also compressed; Parquet; Feather; Excel), or an SQLAlchemy URL. What a file is
            is seen from its first bytes. ``${NAME}`` in a URL stands for an environment variable.
        options: how it is read.
        client: whose table it is; messages name it, unless it is empty.
        types: of delimited text whose columns are known: column → NumPy type, or ``str``. Types of columns that are not
            among them are found by pyarrow. None keeps every cell as text.

    Returns:
        The table, and what there is to say of it.

    Raises:
        DataError: if the file is absent, unreadable, damaged, no table, larger than the options allow, or lacks what
            they name.
        ConfigError: if an option does not fit this kind of file, or an extra is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "north.csv")
        ...     _ = path.write_text("id;age\n007;55,3\n")
        ...     raw = read_table(path, ReadOptions(), "north")
        >>> raw.frame.to_dict("records")
        [{'id': '007', 'age': '55,3'}]
        >>> len(raw.notes)  # the separator is a semicolon
        1
    """
    whose = f"client {client!r}, " if client else ""
    if isinstance(place, str) and "://" in place:
        notes = Notes(f"{whose}database {shown_url(place)}")
        _check_options("sql", options, notes)
        frame = read_sql(place, options, notes)
    else:
        text = str(place)
        notes = Notes(f"{whose}file {text if len(text) <= 300 else text[:100] + '…' + text[-60:]}")
        with _told(text, notes):
            frame = _read_file(text, options, notes, types)
    if not len(frame):
        raise notes.error("expected rows of data, found none. Fetch or write the file again.")
    frame.columns = renamed(list(frame.columns), options, notes)
    return Raw(frame, tuple(notes.texts), notes.where, notes.hint)


def _read_file(text: str, options: ReadOptions, notes: Notes, types: Mapping[str, Any] | None) -> pd.DataFrame:
    path = Path(text)
    if not text.strip() or "\0" in text:
        raise notes.error("expected the path of a file. Write one.")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise notes.error("is a device or a pipe, expected a file. Save it as a file.")
    kind = _kind_of(path)
    _check_options("text" if kind in OPENERS else kind, options, notes)
    if kind not in (*OPENERS, *SUFFIXES.values()):
        raise notes.error(f"looks like {kind}, expected a table. Save it as CSV, Parquet, Feather or .xlsx.")
    if kind != SUFFIXES.get(path.suffix.lower(), "text"):
        notes.add(f"its name ends in {path.suffix or 'nothing'!r}, but it is read as what its first bytes say: {kind}.")
    if kind in OPENERS:
        return read_text(_content(path, kind, options, notes), options, notes, types)
    return {"parquet": read_parquet, "feather": read_feather, "excel": read_excel}[kind](path, options, notes)


def _begins(head: bytes) -> str:
    """Return what a file is, by its first 4,096 bytes.

    >>> _begins(b"a,b"), _begins(bytes([31, 139, 8])), _begins(b"PAR1,PAR2")
    ('text', 'gzip', 'text')
    """
    return next((kind for magic, kind in MAGIC.items() if re.match(magic, head, re.IGNORECASE | re.DOTALL)), "text")


def _kind_of(path: Path) -> str:
    with path.open("rb") as file:
        kind = _begins(file.read(4096))
    if kind == "zip":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        if "[Content_Types].xml" in names:
            sheets = any(name.startswith("xl/worksheets/") for name in names)
            return "excel" if sheets else "an Office file other than .xlsx"
        return "an OpenDocument file" if "mimetype" in names and "content.xml" in names else "zip"
    return kind


def _content(path: Path, kind: str, options: ReadOptions, notes: Notes) -> bytes:
    """The decompressed bytes, refused before they fill memory."""
    content = bytearray()
    with OPENERS[kind](path) as source:
        while piece := source.read(min(PIECE, options.max_bytes + 1)):
            if not content and kind != "text" and (inside := _begins(piece)) != "text":
                raise notes.error(f"what is inside the {kind} file looks like {inside}, expected a table. Unpack it.")
            content += piece
            if len(content) > options.max_bytes:
                raise notes.error(
                    f"expected at most {options.max_bytes:,} bytes of text (decompressed), found more. Raise max_bytes "
                    "if the table is meant to be that large, or save it as Parquet."
                )
    if not content:
        raise notes.error("expected rows of data, found an empty file. Fetch or write the file again.")
    return bytes(content)


def first_line(path: Path) -> str:
    """The first line with anything in it of a text; "" of another file, or one that cannot be read."""
    try:
        kind = _kind_of(path)
        if kind not in OPENERS:
            return ""
        with OPENERS[kind](path) as source:
            start = source.read(2**16).decode("latin-1").removeprefix("ï»¿")
    except (OSError, ValueError, *DAMAGED):  # the reader says it better
        return ""
    return next((own for own in re.split(r"\r\n|\r|\n", start) if own.strip()), "")


def _check_options(kind: str, options: ReadOptions, notes: Notes) -> None:
    given = options.to_dict()
    for key, kinds in ONLY_FOR.items():
        if key in given and kind not in kinds and kind in (*SUFFIXES.values(), "text", "sql"):
            raise notes.error(f"{key} says nothing of this kind of table ({kind}). Leave it out.")


@contextmanager
def _told(path: str, notes: Notes) -> Iterator[None]:
    """What the operating system or a library that decompresses raises is told as an error of the data."""
    try:
        yield
    except MemoryError as error:
        raise notes.error("does not fit into memory. Keep fewer columns, or lower max_bytes.") from error
    except (OSError, *DAMAGED) as error:
        number = getattr(error, "errno", None)
        if number is None:  # of a library that decompresses
            raise notes.error(f"is cut short or damaged ({one_line(error)}). Fetch or write the file again.") from error
        reason = "is a folder, expected a file" if os.path.isdir(path) else f"cannot be read: {os.strerror(number)}"
        raise notes.error(f"{reason}. Check path and rights.") from error


def _open_zstd(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(str(path), compression="zstd")


def _open_zip(path: Path) -> Any:
    archive = zipfile.ZipFile(path)
    infos = [own for own in archive.infolist() if not own.is_dir() and not own.filename.startswith("__MACOSX/")]
    if len(infos) != 1:
        names = ", ".join(repr(own.filename[:80]) for own in infos[:12])
        raise zipfile.BadZipFile(f"expected a zip of one file, found {len(infos)}: {names or 'none'}")
    return archive.open(infos[0])  # which says where a password or an unknown way of packing is in the way
