"""One table from one place, whatever it is kept as."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlit.data.reading.arrow import read_feather, read_parquet
from fedlit.data.reading.excel import read_excel
from fedlit.data.reading.names import renamed
from fedlit.data.reading.options import ReadOptions
from fedlit.data.reading.raw import Notes, Raw
from fedlit.data.reading.recognise import COMPRESSED, expected_kind, kind_of, refuse, told
from fedlit.data.reading.sql import read_sql, shown_url
from fedlit.data.reading.text import read_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_table"]

ONLY_FOR = {
    "sheet": ("excel",),
    "query": ("sql",),
    "sep": ("text",),
    "encoding": ("text",),
    "names": ("text", "excel"),
    "skiprows": ("text", "excel"),
}
"""Options that say nothing of other kinds of files."""


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
        with told(text, notes):
            frame = _read_file(text, options, notes, types)
    if not len(frame):
        raise notes.error("expected rows of data, found none. Fetch or write the file again.")
    frame.columns = renamed(list(frame.columns), options, notes)
    return Raw(frame, tuple(notes.texts), notes.where, notes.hint)


def _read_file(text: str, options: ReadOptions, notes: Notes, types: Mapping[str, Any] | None) -> pd.DataFrame:
    if not text.strip() or "\0" in text:
        raise notes.error("expected the path of a file. Write one.")
    path = Path(text)
    kind = _recognise(path, notes)
    _check_options("text" if kind in COMPRESSED else kind, options, notes)
    if kind == "parquet":
        return read_parquet(path, options, notes)
    if kind == "feather":
        return read_feather(path, options, notes)
    if kind == "excel":
        return read_excel(path, options, notes)
    if kind == "text" or kind in COMPRESSED:
        return read_text(path, kind, options, notes, types)
    raise refuse(kind, notes)


def _recognise(path: Path, notes: Notes) -> str:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise notes.error("is a device or a pipe, expected a file. Save it as a file.")
    with path.open("rb") as file:
        head = file.read(4096)
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        tail = file.read(8)
    if not head:
        raise notes.error("expected rows of data, found an empty file. Fetch or write the file again.")
    kind = kind_of(head, tail, path.suffix.lower())
    if kind == "zip":
        kind = _kind_of_zip(path)
    readable = ("text", "parquet", "feather", "excel", *COMPRESSED)
    if kind in readable and kind != expected_kind(path):
        notes.add(f"its name ends in {path.suffix or 'nothing'!r}, but it is read as what its first bytes say: {kind}.")
    return kind


def _kind_of_zip(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if "[Content_Types].xml" in names:
        if any(name.startswith("xl/worksheets/") for name in names):
            return "excel"
        return "an Office file other than .xlsx"
    return "an OpenDocument file" if "mimetype" in names and "content.xml" in names else "zip"


def _check_options(kind: str, options: ReadOptions, notes: Notes) -> None:
    given = options.to_dict()
    for key, kinds in ONLY_FOR.items():
        if key in given and kind not in kinds and kind in ("text", "excel", "parquet", "feather", "sql"):
            raise notes.error(f"{key} says nothing of this kind of table ({kind}). Leave it out.")
