"""Reads one table from one place, in whatever format. The first bytes of a file say what it is."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.formats import read_excel, read_parquet, read_sql, without_secrets
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, Raw, finished
from fedlit.data.reading.text import read_text
from fedlit.errors import ConfigError, FedlitError

if TYPE_CHECKING:
    import pandas as pd

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
    rb"BZh[1-9]1AY&SY": "a bzip2 file. Unpack it",
    rb"\xfd7zXZ\0": "xz",
    rb"\x28\xb5\x2f\xfd": "a Zstandard file. Unpack it",
    rb"PK(?:\x03\x04|\x05\x06)": "zip",
    rb"PAR1\x15": "parquet",
    rb"ARROW1\0\0": "a Feather file",
    rb"SQLite format 3\0": "an SQLite database. Name it by a URL, sqlite:///path/to/file, and write query",
    rb"%PDF-": "a PDF",
    rb"\x89PNG": "a PNG picture",
    rb"\xff\xd8\xff": "a JPEG picture",
    rb"\xd0\xcf\x11\xe0": "an old Office file (.xls) or one with a password",
    rb".{257}ustar": "a tar archive",
    rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype html|html|\?xml|table|body|head|meta)": "a web page or XML",
    rb'(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{\s*"[^"]*"\s*:': "JSON",
}
"""How a file begins, and what it is, with what to do; anything else is text."""

OPENERS: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.open("rb"),
    "gzip": gzip.open,
    "xz": lzma.open,
    "zip": lambda path: _open_zip(path),
}
SUFFIXES = {
    ".gz": "gzip", ".xz": "xz", ".zip": "zip", ".parquet": "parquet", ".pq": "parquet",
    ".xlsx": "excel", ".xlsm": "excel",
}  # fmt: skip


def read_table(place: str | Path, options: ReadOptions, client: str) -> Raw:
    r"""Read a client's table. Types are not determined here.

    Args:
        place: a file (delimited text, also compressed; Parquet; Excel), or an SQLAlchemy URL. What a file is
            is seen from its first bytes. ``${NAME}`` in a URL stands for an environment variable.
        options: how the table is read.
        client: the name of the client, for messages.

    Returns:
        The table, and notes on it.

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
    text = str(place)
    if isinstance(place, str) and "://" in place:
        notes = Notes(f"client {client!r}, database {without_secrets(place[:300])}", options)
        with _one_message(notes, text):
            _check_options("sql", notes)
            frame = read_sql(text, notes)
    else:
        notes = Notes(f"client {client!r}, file {text if len(text) <= 300 else text[:100] + '…' + text[-60:]}", options)
        with _one_message(notes):
            frame = _read_file(text, notes)
    frame = finished(frame, notes)
    return Raw(frame, tuple(notes.texts), notes.where, notes.hint)


@contextmanager
def _one_message(notes: Notes, url: str = "") -> Iterator[None]:
    """Turn any error of the system or a library into a data error that shows no secret of the URL."""
    failure: FedlitError
    try:
        yield
        return
    except FedlitError:
        raise
    except ImportError as error:
        failure = ConfigError(f"{notes.where}: needs {error.name}. Run: pip install {error.name}")
    except OSError as error:
        failure = notes.error(f"cannot be read: {error.strerror or error}. Check path and rights, or fetch it again.")
    except Exception as error:  # each library has its own, and damage may raise any
        cause = getattr(error, "orig", None) or error
        message = without_secrets(" ".join(str(cause).split())[:300].rstrip("."), url or notes.where)
        failure = notes.error(f"cannot be read ({type(cause).__name__}: {message}). Is it damaged, or cut short?")
    raise failure from None  # what a driver raised may hold the URL


def _read_file(text: str, notes: Notes) -> pd.DataFrame:
    path = Path(text)
    if not text.strip() or "\0" in text or (path.exists() and not path.is_file()):
        raise notes.error("expected the path of a file, found none, a folder, a device or a pipe. Name a file.")
    kind = _kind_of(path)
    if kind not in (*OPENERS, *SUFFIXES.values()):
        what, _, advice = kind.partition(". ")
        advice = advice or "Save it as CSV, Parquet or .xlsx"
        raise notes.error(f"looks like {what}, expected a table. {advice}.")
    _check_options("text" if kind in OPENERS else kind, notes)
    if kind != SUFFIXES.get(path.suffix.lower(), "text"):
        notes.add(f"its name ends in {path.suffix or 'nothing'!r}, but it is read as what its first bytes say: {kind}.")
    if kind in OPENERS:
        return read_text(_content(path, kind, notes), notes)
    return read_excel(path, notes) if kind == "excel" else read_parquet(path, notes)


def _begins(head: bytes) -> str:
    """Return what a file is, judged by its first 4,096 bytes.

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
        if any(name.startswith("xl/worksheets/") for name in names):
            return "excel"
        if "[Content_Types].xml" in names or "mimetype" in names:
            return "an Office file other than .xlsx"
    return kind


def _content(path: Path, kind: str, notes: Notes) -> bytes:
    """Return the decompressed bytes; refuse them before they fill the memory."""
    content = io.BytesIO()
    with OPENERS[kind](path) as source:
        while piece := source.read(min(PIECE, notes.options.max_bytes + 1)):
            if not content.tell() and kind != "text" and (inside := _begins(piece)) != "text":
                what = inside.partition(". ")[0]
                raise notes.error(f"what is inside the {kind} file looks like {what}, expected a table. Unpack it.")
            content.write(piece)
            notes.check_size(0, content.tell())
    if not content.tell():
        raise notes.error("expected rows of data, found an empty file. Fetch or write the file again.")
    return content.getvalue()


def _check_options(kind: str, notes: Notes) -> None:
    given = notes.options.to_dict()
    for key, kinds in ONLY_FOR.items():
        if key in given and kind not in kinds:
            raise notes.error(f"{key}: expected no such key for this kind of table ({kind}). Leave it out.")


def _open_zip(path: Path) -> Any:
    archive = zipfile.ZipFile(path)
    infos = [own for own in archive.infolist() if not own.is_dir() and not own.filename.startswith("__MACOSX/")]
    if len(infos) != 1:
        names = ", ".join(repr(own.filename[:80]) for own in infos[:12])
        raise zipfile.BadZipFile(f"expected a zip of one file, found {len(infos)}: {names or 'none'}")
    return archive.open(infos[0])  # which says where a password or an unknown way of packing is in the way
