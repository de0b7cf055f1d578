"""Tells binary formats apart by their first bytes: formats that are read, and formats for which the
error names a command that converts them.
"""

from __future__ import annotations

from typing import NoReturn

from fedlit.errors import DataError, Told, expect

ARROW = b"ARROW1"
"""The first bytes of Feather files, and of all files of Arrow's."""

_OLD_STATA = bytes(range(102, 116))
_STATISTICS: tuple[tuple[bytes, str], ...] = (
    (b"$FL2", "sav"),
    (b"$FL3", "sav"),
    (b"<stata_dta>", "dta"),
    (bytes(12) + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf\xbd\x92\x08\x00\x09\xc7\x31\x8c", "sas7bdat"),
    (b"HEADER RECORD*******LIB", "xport"),
)
"""First bytes → the format of a statistics program, by its name in
:mod:`fedlit.data.reading.statistics`."""

_READ = "a format that is read, such as CSV, Parquet or .xlsx"
_PANDAS = "in Python: pandas.read_{0}('FILE').to_parquet('FILE.parquet')"
_R = "in R: write.csv(readRDS('FILE'), 'FILE.csv', row.names = FALSE)"
_R_DATA = (
    "in R: load('FILE'), and for one table in it write.csv(TABLE, 'FILE.csv', row.names = FALSE)"
)
_NUMPY = "in Python: pandas.DataFrame(numpy.load('FILE')).to_csv('FILE.csv', index=False)"
_ACCESS = "with mdbtools: mdb-export FILE TABLE > TABLE.csv"
_SHEET = "with LibreOffice: soffice --convert-to xlsx FILE"
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "an old Excel file (.xls)",
        f"save it as .xlsx, or {_SHEET}",
    ),
    (b"RDX", "data of R (.RData)", _R_DATA),
    (b"RDA", "data of R (.RData)", _R_DATA),
    (b"X\n\0\0\0", "data of R (.rds)", _R),
    (b"\0\1\0\0Standard ACE DB", "an Access database (.accdb)", _ACCESS),
    (b"\0\1\0\0Standard Jet DB", "an Access database (.mdb)", _ACCESS),
    (b"SQLite format 3\0", "an SQLite database", "write path: sqlite:///FILE and query: TABLE"),
    (b"FEA1", "an old Feather file", _PANDAS.format("feather")),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", _PANDAS.format("hdf")),
    (b"ORC", "an ORC file", _PANDAS.format("orc")),
    (b"Obj\1", "an Avro file", "in Python: polars.read_avro('FILE').write_parquet('FILE.parquet')"),
    (b"MATLAB ", "data of MATLAB (.mat)", "in MATLAB: writetable(TABLE, 'FILE.csv')"),
    (b"\x28\xb5\x2f\xfd", "a file packed by Zstandard", "unpack it with zstd -d FILE"),
    (b"Rar!", "a RAR archive", "unpack it"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it"),
    (
        b"\xff\xff\xff\xff",
        "a stream of Arrow",
        "in Python: polars.read_ipc_stream('FILE').write_parquet('FILE.parquet')",
    ),
    (b"\x93NUMPY", "an array of NumPy", _NUMPY),
    (b"PARE", "an encrypted Parquet file", "write it without encryption"),
    (b"\x0b\x0e\x0a\x0c", "data of R (.qs)", _R.replace("readRDS", "qs::qread")),
    (b"\xff\xff\0\0", "data of JMP (.jmp)", "in JMP: File, Export, Text (.csv)"),
    (b"%PDF-", "a PDF document", "get the table as CSV from whoever wrote it"),
    (b"\x89PNG", "a picture", "get the table as CSV from whoever wrote it"),
    (b"\xff\xd8\xff", "a picture", "get the table as CSV from whoever wrote it"),
)
"""First bytes, what such a file is, and the command that converts it to a format that is read."""

_FURTHER: tuple[tuple[int, bytes, str, str], ...] = (
    (8, b"DUCK", "a DuckDB database", "in DuckDB: COPY TABLE TO 'FILE.parquet'"),
    (257, b"ustar", "an archive (.tar)", "unpack it"),
)
"""Offset, bytes that stand there, what such a file is, and the command that converts it."""

_PORTABLE = b"SPSS PORT FILE"
_DBASE = (b"\x03", b"\x30", b"\x31", b"\x83", b"\x8b", b"\xf5")

_IN_ZIP: tuple[tuple[str, str, str], ...] = (
    ("xl/workbook.bin", "a binary Excel file (.xlsb)", f"save it as .xlsx, or {_SHEET}"),
    ("META-INF/manifest.xml", "an OpenDocument file (.ods)", f"save it as .xlsx, or {_SHEET}"),
    ("Index/Document.iwa", "a file of Numbers", "in Numbers: File, Export To, Excel"),
    ("word/document.xml", "a Word document", "get the table as CSV from whoever wrote it"),
)
"""A member of a ZIP archive, what such an archive is, and the command that converts it."""


def program_of(head: bytes) -> str | None:
    """Return the format of a statistics program, given a file's first bytes; None for other files.

    Example:
        >>> program_of(b"$FL2@(#) SPSS DATA FILE"), program_of(b"age,sex")
        ('sav', None)
    """
    for magic, program in _STATISTICS:
        if head.startswith(magic):
            return program
    # Old files of Stata begin with their version, the order of bytes, and the kind of file.
    is_old = len(head) > 3 and head[0] in _OLD_STATA and head[1] in (1, 2) and head[2:4] == b"\1\0"
    return "dta" if is_old else None


def refuse_unread(head: bytes) -> None:
    """Refuse a format that is not read.

    Args:
        head: the first bytes of the file, decompressed.

    Raises:
        DataError: The format is not read; the message names it, and a command that converts it.
    """
    if _PORTABLE in head[:400]:
        line = "in Python: pyreadstat.read_por('FILE')[0].to_parquet('FILE.parquet')"
        _refuse("a portable file of SPSS (.por)", line)
    if b"\0" not in head:  # It is a table whose first column happens to be called ORC.
        return
    for magic, content, line in _OTHERS:
        if head.startswith(magic):
            _refuse(content, line)
    for offset, magic, content, line in _FURTHER:
        if head[offset:].startswith(magic):
            _refuse(content, line)
    # The third and fourth byte of dBase files are the month and day when they were written.
    has_date = len(head) > 32 and 1 <= head[2] <= 12 and 1 <= head[3] <= 31
    if head.startswith(_DBASE) and has_date:
        _refuse("a dBase file (.dbf)", "with LibreOffice: soffice --convert-to csv FILE")
    # A pickle of protocol 2 or later begins with the protocol, then a frame or an import.
    is_pickle = head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5")
    line = f"convert it, if it is your own, because it can run code: {_PANDAS.format('pickle')}"
    expect(not is_pickle, "content", _READ, Told("a pickle of Python"), line, DataError)


def _refuse(content: str, line: str) -> NoReturn:
    raise DataError(f"content: expected {_READ}, found {content}; convert it: {line}")


def refuse_archive(names: list[str]) -> None:
    """Refuse a ZIP archive that is a document of a format that is not read.

    Args:
        names: the names of its members.

    Raises:
        DataError: The format is not read; the message names it, and a command that converts it.
    """
    for member, content, line in _IN_ZIP:
        if member in names:
            _refuse(content, line)
    if names and all(name.endswith(".npy") for name in names):
        array = _NUMPY.replace("load('FILE')", "load('FILE')['NAME']")
        _refuse("arrays of NumPy (.npz)", array)
