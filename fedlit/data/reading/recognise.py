"""What a file is, by its first bytes, and its content as a stream of decompressed bytes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedlit.data.reading.raw import Notes, one_line
from fedlit.errors import DataError

__all__ = ["COMPRESSED", "expected_kind", "kind_of", "opened", "refuse", "told"]

MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"ARROW1\0\0", "feather"),
    (b"SQLite format 3\0", "sqlite"),
    (b"%PDF-", "a PDF"),
    (b"\x89PNG\r\n", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF87a", "a GIF picture"),
    (b"GIF89a", "a GIF picture"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (.xls) or one with a password"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"Obj\x01", "an Avro file"),
    (b"$FL2", "an SPSS file"),
    (b"\x7fELF", "a program"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04\x95", "a Python pickle"),
    (b"\x80\x05\x95", "a Python pickle"),
)
COMPRESSED = ("gzip", "bzip2", "xz", "zstd", "zip")
SUFFIXES = {
    ".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zip": "zip", ".parquet": "parquet", ".pq": "parquet",
    ".feather": "feather", ".arrow": "feather", ".xlsx": "excel", ".xlsm": "excel",
}  # fmt: skip
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile)


def expected_kind(path: Path) -> str:
    """What a file's name says that it is."""
    return SUFFIXES.get(path.suffix.lower(), "text")


def kind_of(head: bytes, tail: bytes = b"", suffix: str = "") -> str:
    """What a file is: ``text``, a kind that is read, or what it looks like.

    Args:
        head: its first 512 bytes or more.
        tail: its last 8 bytes, where known.
        suffix: how its name ends.

    Returns:
        The kind.

    Example:
        >>> kind_of(b"a,b"), kind_of(bytes([31, 139, 8])), kind_of(b"PAR1,PAR2")
        ('text', 'gzip', 'text')
    """
    for magic, kind in MAGIC:
        if head.startswith(magic):
            return kind
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return "bzip2"
    # Letters alone: a header could begin so too.
    for magic, kind, suffixes in (
        (b"PAR1", "parquet", (".parquet", ".pq")),
        (b"FEA1", "a Feather file of version 1", (".feather",)),
    ):
        if head.startswith(magic) and (tail.endswith(magic) or suffix in suffixes):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:200].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<?xml", b"<table", b"<body", b"<head", b"<meta")):
        return "a web page or XML"
    if start.startswith((b'{"', b'[{"', b"{\n", b"[\n")) and suffix not in (".csv", ".tsv", ".txt"):
        return "JSON"
    if start.startswith((b'{"', b'[{"')) and b'":' in start:
        return "JSON"
    return "text"


def refuse(kind: str, notes: Notes, inside: str = "") -> DataError:
    """The error for a kind that cannot be read as it is."""
    if kind == "sqlite":
        return notes.error(
            f"{inside}looks like an SQLite database. Name it by a URL, sqlite:///path/to/file, and write query."
        )
    known = {"parquet": "a Parquet file", "feather": "a Feather file", "excel": "an Excel file"}
    look = known.get(kind, f"a file compressed by {kind}" if kind in COMPRESSED else kind)
    do = "Unpack it." if inside else "Save it as CSV, Parquet, Feather or .xlsx."
    return notes.error(f"{inside}looks like {look}, expected a table. {do}")


@contextmanager
def told(path: str, notes: Notes) -> Iterator[None]:
    """What the operating system or a library that decompresses raises is told as an error of the data."""
    try:
        yield
    except DataError:
        raise
    except DAMAGED as error:
        raise notes.error(f"is cut short or damaged ({one_line(error)}). Fetch or write the file again.") from error
    except OSError as error:
        if error.errno is None:  # bz2 and zstd say so that the data are no such file
            raise notes.error(f"is cut short or damaged ({one_line(error)}). Fetch or write the file again.") from error
        reason = "is a folder, expected a file" if os.path.isdir(path) else f"cannot be read: {error.strerror or error}"
        raise notes.error(f"{reason}. Check path and rights.") from error
    except MemoryError as error:
        raise notes.error("does not fit into memory. Keep fewer columns, or lower max_bytes.") from error


def opened(path: Path, kind: str, notes: Notes) -> Any:
    """The decompressed content of a file as a binary stream.

    Args:
        path: the file.
        kind: ``text``, or how it is compressed.
        notes: whose file it is.

    Returns:
        An object with ``read`` and ``close``.

    Raises:
        DataError: if an archive holds not exactly one file.
    """
    openers: dict[str, Callable[[Path], Any]] = {
        "text": lambda path: path.open("rb"),
        "gzip": gzip.open,
        "bzip2": bz2.open,
        "xz": lzma.open,
        "zstd": _open_zstd,
        "zip": lambda path: _open_zip(path, notes),
    }
    return openers[kind](path)


def _open_zstd(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(str(path), compression="zstd")


def _open_zip(path: Path, notes: Notes) -> Any:
    archive = zipfile.ZipFile(path)
    infos = [own for own in archive.infolist() if not own.is_dir() and not own.filename.startswith("__MACOSX/")]
    if len(infos) != 1:
        names = ", ".join(repr(own.filename[:80]) for own in infos[:12]) + (" …" if len(infos) > 12 else "")
        raise notes.error(f"expected a zip of one file, found {len(infos)}: {names or 'none'}. Unpack it.")
    if infos[0].flag_bits & 1:
        raise notes.error("the zip has a password. Unpack it.")
    try:
        return archive.open(infos[0])
    except NotImplementedError as error:
        raise notes.error(f"the zip is packed in a way that is not known ({one_line(error)}). Unpack it.") from error
