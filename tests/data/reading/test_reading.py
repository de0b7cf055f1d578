"""Reading: what comes back is what was written, and what is no table is refused by file, line and
key."""

import bz2
import csv
import datetime
import decimal
import gzip
import io
import lzma
import os
import pickle
import re
import sqlite3
import traceback
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl import Workbook

from fedlit.data.reading import Raw, ReadOptions, check_url, read_table
from fedlit.data.schema.schema import Schema
from fedlit.errors import ConfigError, DataError, FedlitError
from fedlit.score.files import read_rows

Rows = Sequence[Sequence[str | None]]


def read(place: str | Path, **options: Any) -> Raw:
    return read_table(place, ReadOptions(**options), "north")


def cells(raw: Raw) -> Rows:
    """Rows, None where a cell is missing."""
    return [
        [None if pd.isna(own) else own for own in row] for row in raw.frame.itertuples(index=False)
    ]


def check(path: Path, options: dict[str, Any], rows: Rows | None, word: str) -> None:
    """A table with these rows and a note that has the word, none if it is empty; or one message
    with the word."""
    if rows is None:
        with pytest.raises(DataError) as caught:
            read(path, **options)
        message = str(caught.value)
        assert (
            message.startswith("client 'north', file ")
            and "\n" not in message
            and len(message) < 1500
        )
        assert re.search(word, message), message
        return
    raw = read(path, **options)
    assert cells(raw) == rows and isinstance(raw.frame.index, pd.RangeIndex)
    assert all(note.startswith("client 'north', file ") for note in raw.notes)
    assert re.search(word, "\n".join(raw.notes)) if word else not raw.notes, raw.notes


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


# ---------------------------------------------------------------------- text

TOWNS: Rows = [["1", "Köln"], ["2", "東京"]]
LONG = b"a,b\n" + b"1,2\n" * 5000
# name → content, options, rows (None: it is refused), and a word of the note or the message
TEXTS: dict[str, tuple[str | bytes, dict[str, Any], Rows | None, str]] = {
    **yaml.safe_load(Path(__file__).with_name("texts.yaml").read_text(encoding="utf-8")),
    "an open quote": (LONG + b'3,"4\n' + b"5,6\n" * 3000, {}, None, "line 5,002: .*3,001 lines"),
    "short": (LONG + b"1\n" + LONG, {}, None, "line 5,002: expected 2 fields .*found 1"),
    "long": (LONG + b'"1\n",2\n\n1,2,3\n' + LONG, {}, None, "line 5,005: expected 2 fields .*found "
        "3"),
    "UTF-16": ("nr;ort\n1;Köln\n2;東京\n".encode("utf-16"), {}, TOWNS, "read as utf-16"),
    "UTF-16 without a mark": ("nr,ort\n1,Koeln\n".encode("utf-16-be"), {}, None, "NUL bytes.* "
        "encoding"),
    "UTF-16, cut": ("nr,ort\n1,Köln\n".encode("utf-16")[:-1], {}, None, "expected text in "
        "utf-16.*truncated"),
    "UTF-16, said": ("nr,ort\n1,Köln\n2,東京\n".encode("utf-16-be"), {"encoding": "utf-16-be"}, TOWNS, ""),
    "Western": ("a,b\n5 µg,Genève\n".encode("cp1252"), {}, [["5 µg", "Genève"]], "cp1252, such as "
        "'µg'"),
    "Cyrillic": ("имя,город\nИван,Москва\n".encode("cp1251"), {}, [["Иван", "Москва"]], "cp1251"),
    "Japanese": ("名前,市\n太郎,東京都\n".encode("cp932"), {}, [["太郎", "東京都"]], "read as (cp932|shift_jis)"),
    "ASCII, said otherwise": ("a,b\n東京,1\n".encode("iso2022_jp"), {"encoding": "iso2022_jp"}, [["東京", "1"]], ""),
    "a mark, said": ("a,b\nÅsa,1\n".encode("utf-8-sig"), {"encoding": "utf-8-sig"}, [["Åsa", "1"]], ""),
    "no letter of it": ("é\n".encode("cp1252") * 300 + b"\x81\n", {}, [["é"]] * 299 + [["\x81"]], "latin-1"),
    "late": (LONG * 60 + "1,Müller\n".encode("latin-1"), {"max_rows": 9}, None, "max_rows"),
    "two encodings": (
        "a,b\nKöln,1\n".encode() + "Zürich,2\nBonn,3\n".encode("cp1252"),
        {},
        [["Köln", "1"], ["Zürich", "2"], ["Bonn", "3"]],
        "1 line is UTF-8 and 1 other line cp1252",
    ),
    "a wrong encoding": ("a,b\nMüller,1\n".encode("latin-1"), {"encoding": "utf-8"}, None, "encoding: "
        "expected"),
    "rows": (LONG, {"max_rows": 4999}, None, "max_rows"),
    "bytes": (LONG, {"max_bytes": len(LONG) - 1}, None, "max_bytes"),
    "old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\n\0", {}, None, r"old Excel.*save it as \.xlsx"),
    "R": (gzip.compress(b"RDX3\nX\n\0\0\0\3"), {}, None, "data of R .*write.csv"),
    "Access": (b"\0\1\0\0Standard ACE DB\0" + b"\1" * 99, {}, None, "Access .*mdb-export"),
    "NumPy": (b"\x93NUMPY\1\0v\0", {}, None, "array of NumPy.*to_csv"),
    "NumPy's archive": (zipped(**{"x.npy": b""}), {}, None, "npz.*'NAME'"),
    "DuckDB": (bytes(8) + b"DUCK" + bytes(9), {}, None, "DuckDB.*COPY"),
    "dBase": (b"\3\x7c\2\x1d" + bytes(40), {}, None, "dBase.*soffice"),
    "SPSS, portable": (b"ASCII SPSS PORT FILE  \n" * 9, {}, None, "read_por"),
    "Arrow, streamed": (b"\xff\xff\xff\xff\1\0", {}, None, "stream of Arrow.*parquet"),
    "PDF": (b"%PDF-1.7\n\0", {}, None, "PDF"),
    "a pickle": (pickle.dumps(Path("x"), 4), {}, None, "pickle .*read_pickle"),
    "binary Excel": (zipped(**{"xl/workbook.bin": b""}), {}, None, "xlsb.*soffice"),
    "a name like a format": (b"ORC,b\n1,2\n", {}, [["1", "2"]], ""),
    "packed by bzip2": (bz2.compress(b"a,b\n1,2\n"), {}, [["1", "2"]], ""),
    "a page": (b'<table border="1"><tr><td>x</td></tr></table>', {}, None, "a web page.*save it as "
        "CSV"),
    "JSON": (b'[{"a": 1}]', {}, None, "JSON"),
    "packed twice": (gzip.compress(gzip.compress(LONG)), {}, None, "NUL bytes"),
    "OpenDocument": (zipped(**{"mimetype": b"", "content.xml": b""}), {}, None, "found mimetype, "
        "content.xml"),
    "a zip of two": (zipped(a=LONG, b=LONG), {}, None, "found a, b"),
    "a bomb": (gzip.compress(LONG * 400), {"max_bytes": 200_000}, None, "max_bytes"),
    "a bomb in a zip": (zipped(a=LONG * 400), {"max_bytes": 200_000}, None, "max_bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, tmp_path: Path) -> None:
    content, options, rows, word = TEXTS[name]
    path = tmp_path / "north.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    tracemalloc.start()
    try:
        check(path, options, rows, word)
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


# A header that cannot be taken for data, and cells of any text that a file can hold.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8) | st.sampled_from(
    ["", " ", ' "', '" ', '", "', ' ,"', "007", "NA", "\r\n", "1,5", "\ufeff"]
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    table=st.integers(1, 4).flatmap(
        lambda width: st.lists(st.lists(text, min_size=width, max_size=width), min_size=1)
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    sep=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_table_of_text_comes_back(
    tmp_path: Path, table: list[list[str]], end: str, sep: str, quoting: int
) -> None:
    if end != "\r\n":  # the writer leaves the other line end without quotes
        quoting = csv.QUOTE_ALL
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=sep, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    header = [f"column {place}" for place in range(len(table[0]))]
    writer.writerows([header, *table])
    (tmp_path / "north.csv").write_bytes(written.getvalue().encode())
    raw = read(tmp_path / "north.csv", sep=sep)
    assert (
        cells(raw) == [[cell or None for cell in row] for row in table]
        and list(raw.frame) == header
    )


def test_long_lines_and_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "north.csv"
    names = [f"x{place}" for place in range(3_000)]
    path.write_text("\n".join([",".join(names), ",".join(map(str, range(3_000)))]))
    assert cells(read(path)) == [[str(place) for place in range(3_000)]]
    path.write_bytes(b"a,b\n1," + b"x" * 1_000_000 + b"\n")
    assert len(str(read(path).frame.loc[0, "b"])) == 1_000_000
    for line in (b"1," + b"x" * 9_000_000, b"1," * 500_000):
        path.write_bytes(b"a,b\n" + line + b"\n")
        check(path, {}, None, "line 2|expected a regular table")


def test_headers_inside_and_totals_are_left_out(tmp_path: Path) -> None:
    """Rows keep their places in the file. Without a sum, a word alone may be data."""
    header = "ward,age,outcome"
    total = "Summe,1.600,ill"
    lines = [header, *[f"w{n % 3},{n},ill" for n in range(40)], header, *["w1,20,well"] * 41]
    path = tmp_path / "north.csv"
    path.write_text("\n".join([*lines, total, "Mean, 19.75,"]))
    raw = read(path)
    assert raw.frame.index.tolist() == [*range(40), *range(41, 82)]
    assert [note.kind for note in raw.notes] == [
        "rows left out",
        "rows left out",
    ] and "row 40" in raw.notes[0]
    path.write_text("\n".join([header, "w1,1,ill", "\ufeff" + header, "w2,2,well"]))
    assert read(path).frame["ward"].tolist() == ["w1", "w2"]
    path.write_text("\n".join([*lines, "Total,31,ill"]))
    assert read(path).frame["ward"].iloc[-1] == "Total"
    assert read(path).notes[-1].alternatives == ({"footer": 1}, {"footer": 0})
    assert (
        read(path, footer=1).frame["ward"].iloc[-1] == "w1"
        and len(read(path, footer=0).frame) == 82
    )
    # a category, not a total
    path.write_text("\n".join(["kind,n", *["total,1", "half,2"] * 9, "total,18"]))
    assert len(read(path).frame) == 19 and not read(path).notes


# ---------------------------------------------------------------------- other formats

CONTENT = b"id,x\n007,1\n008,\n"
PACKED = {
    "north.csv.gz": gzip.compress(CONTENT),
    "north.csv.xz": lzma.compress(CONTENT),
    "north.zip": zipped(**{"north.csv": CONTENT, "__MACOSX/._north.csv": b"\0"}),
}


def test_of_a_long_text_the_first_whole_rows_are_read_on_request(tmp_path: Path) -> None:
    """init looks at no more; it is cut behind a row, not within a quoted cell of two lines."""
    path = tmp_path / "long.csv"
    lines = ["a,b", *(f'{row},"one\ntwo"' for row in range(200_000))]
    path.write_text("\n".join(lines))
    raw = read_table(path, ReadOptions(), "north", 2**20)
    assert (
        cells(raw)[-1] == [str(len(raw.frame) - 1), "one\ntwo"]
        and 50_000 < len(raw.frame) < 100_000
    )
    assert [note.kind for note in raw.notes if "first 1 MiB" in note] == ["sample"]
    assert len(read(path).frame) == 200_000


@pytest.mark.parametrize("name", PACKED)
def test_compression_is_seen_from_the_content(tmp_path: Path, name: str) -> None:
    rows: Rows = [["007", "1"], ["008", None]]
    (tmp_path / name).write_bytes(PACKED[name])
    check(tmp_path / name, {}, rows, "")
    (tmp_path / "north.txt").write_bytes(PACKED[name])
    check(tmp_path / "north.txt", {}, rows, "")
    (tmp_path / name).write_bytes(PACKED[name][:-12])
    check(tmp_path / name, {}, None, "cannot be read")


ARROW = {
    "whole": pa.array([1, 2, 3], pa.int16()),
    "gaps": pa.array([2**60 + 1, None, 3], pa.int64()),
    "unsigned": pa.array([2**63 + 1, None, 3], pa.uint64()),
    "real": pa.array([1.5, None, 3.0], pa.float32()),
    "truth": pa.array([True, None, False]),
    "text": pa.array(["007", None, ""]),
    "large": pa.array(["x", "y", None], pa.large_string()),
    "codes": pa.array(["m", "f", None]).dictionary_encode(),
    "price": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("3.00")]),
    "struct": pa.array([{"a": 1}, None, {"a": 2}]),
    "bytes": pa.array([b"\xff", None, b""]),
    "day": pa.array([datetime.date(2024, 1, 5), None, datetime.date(1, 1, 1)]),
    "moment": pa.array([0, None, 2**40], pa.timestamp("us", "Europe/Berlin")),
    "far": pa.array([-(10**10), None, 10**11], pa.timestamp("s")),
    "span": pa.array([1, None, 3], pa.duration("s")),
    "nothing": pa.nulls(3),
    "a.b": pa.array([1, 2, 3]),
    " blank ": pa.array([1, 2, 3]),
}


def test_typed_files(tmp_path: Path) -> None:
    def write(table: pa.Table) -> Path:
        path = tmp_path / "north.parquet"
        pq.write_table(table, path)
        return path

    raw = read(write(pa.table(ARROW)))
    assert list(raw.frame) == [name.strip() for name in ARROW]
    for name, column in ARROW.items():
        held = [
            own
            for own in raw.frame[name.strip()].tolist()
            if own is not None and not np.all(pd.isna(own))
        ]
        kept = [own for own in column.to_pylist() if own is not None]
        assert len(held) == len(kept) and (held == kept or name in ("far", "span", "moment")), name
    dtypes = raw.frame.dtypes.astype(str)
    assert dtypes[["gaps", "whole", "real", "codes", "truth"]].tolist() == [
        "Int64", "int16", "float32", "category", "boolean"
    ]  # fmt: skip
    path = write(pa.table({name: np.arange(1000.0) for name in ("a", "b", "c")}))
    raw = read(path, rename={"c": "d"})
    assert list(raw.frame) == ["a", "b", "d"] and raw.frame["d"].tolist() == list(range(1000))
    for options, word in (({"max_rows": 999}, "max_rows"), ({"max_bytes": 23_999}, "max_bytes")):
        check(path, options, None, word)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    check(path, {}, None, "cannot be read")
    path = tmp_path / "north.csv"
    path.write_bytes(write(pa.table({"a": ["x"]})).read_bytes())
    check(path, {}, [["x"]], "")
    check(write(pa.table({"a": pa.array([], pa.int64())})), {}, None, "found none")
    assert read(write(pa.table({f"x{n}": [n] for n in range(500)}))).frame.iloc[0].tolist() == list(
        range(500)
    )


def test_texts_kept_once_are_bounded_as_they_would_be_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    column = pa.DictionaryArray.from_arrays(np.zeros(100_000, "int32"), ["x" * 9999])
    pq.write_table(pa.table({"a": column}), path, store_schema=False)  # 1 GB of text
    assert path.stat().st_size < 200_000
    check(path, {"max_bytes": 2**26}, None, "max_bytes")
    pd.DataFrame({"a": [1, 2]}, index=[5, 6]).to_parquet(path)
    assert list(read(path).frame) == ["a"]  # row numbers of pandas are no column


DAY = datetime.datetime(2024, 1, 5)
AB: list[list[Any]] = [["a", "b"], [1, 2]]
# sheets, merged cells → as for text
SHEETS: dict[str, tuple[list[list[list[Any]]], str, dict[str, Any], Rows | None, str]] = {
    "cells": (
        [[["id", "x", "day"], ["007", 1.0, DAY], [8, 0.1 + 0.2, DAY.replace(hour=3)], [True, "#DIV/0!"]]], "", {},
        [["007", "1", "2024-01-05"], ["8", "0.3", "2024-01-05T03:00:00"], ["TRUE", "#DIV/0!", None]], "",
    ),
    "several": ([AB, [["c"], [3]]], "", {}, [["1", "2"]], "'sheet 0', 'sheet 1'.*sheet chooses"),
    "by place": ([AB, [["c"], [3]]], "", {"sheet": 1}, [["3"]], ""),
    "by name": ([AB, [["c"], [3]]], "", {"sheet": "sheet 1"}, [["3"]], ""),
    "no such sheet": ([AB, AB], "", {"sheet": "shet 1"}, None, "sheet: .*Did you mean 'sheet 1'"),
    "a title": ([[["Report"], ["a", "b"], [1, 2], [3]]], "", {}, [["1", "2"], ["3", None]], "above the header"),
    "a title, skipped": ([[["Report"], *AB]], "", {"skiprows": 1}, [["1", "2"]], ""),
    "merged": ([[["a", "b"], [1, None]]], "A2:B2", {}, [["1", None]], "merged cells"),
    "a cell too many": ([[*AB, [1, 2, 3]]], "", {}, None, "line 3: expected 2 fields"),
    "empty rows": ([[*AB, [], [None, ""], [3]]], "", {}, [["1", "2"], ["3", None]], ""),
    "nothing": ([[]], "", {}, None, "found none"),
    "no header": ([[[1, 2], [3, 4]]], "", {"names": ["a", "b"]}, [["1", "2"], ["3", "4"]], ""),
    "bytes": ([[["a"], ["x" * 30_000]]], "", {"max_bytes": 20_000}, None, "max_bytes"),
    "not computed": ([[["a", "b"], [1, "=A2+1"]]], "", {}, [["1", None]], "no computed value"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*SHEETS, "far"])
def test_excel(name: str, tmp_path: Path) -> None:
    sheets, merge, options, rows, word = SHEETS.get(name, ([AB], "", {}, None, "line 1,048,576"))
    book = Workbook()
    book.remove(book.active)
    for number, content in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number}")
        for row in content:
            sheet.append(row)
        if merge:
            sheet.merge_cells(merge)
    if name == "far":  # which costs nothing
        sheet["XFD1048576"] = 1
    book.save(tmp_path / "north.xlsx")
    check(tmp_path / "north.xlsx", options, rows, word)


def test_excel_shows_zeros_and_hidden_rows(tmp_path: Path) -> None:
    """A number is read as Excel shows it; a row that a filter hides is a row."""
    book = Workbook()
    sheet = book.active
    for row in (["town", "x"], [123, 1], [45678, 2]):
        sheet.append(row)
        sheet.cell(sheet.max_row, 1).number_format = "00000"
    sheet.row_dimensions[3].hidden = True
    book.save(tmp_path / "north.xlsx")
    rows: Rows = [["00123", "1"], ["45678", "2"]]
    check(tmp_path / "north.xlsx", {}, rows, "1 hidden row is read like the others")


def test_excel_under_another_name_damaged_or_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "north.csv"
    pd.DataFrame({"a": [1], "b": [2]}).to_excel(tmp_path / "north.xlsx", index=False)
    content = (tmp_path / "north.xlsx").read_bytes()
    path.write_bytes(content)
    check(path, {}, [["1", "2"]], "")
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        path.write_bytes(
            zipped(
                **{
                    name: old.read(name)[: -30 * ("sheet1" in name) or None]
                    for name in old.namelist()
                }
            )
        )
    check(path, {}, None, "cannot be read")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ConfigError, match=r"openpyxl.*pip install '\.\[excel\]'"):
        read(path)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "absent.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    for place in (
        tmp_path,
        "x" * 5000 + ".csv",
        "",
        " ",
        "a\0b",
        *(tmp_path / f"{own}.csv" for own in ("no", "link")),
    ):
        check(place, {}, None, "cannot be read|expected a file")  # type: ignore[arg-type]
    for name in ("loop", "pipe"):
        check(tmp_path / f"{name}.csv", {}, None, "cannot be read|expected a file")


def test_options_are_checked() -> None:
    wrong: dict[str, Any]
    for wrong in (
        {"sep": ";;"}, {"sep": '"'}, {"decimal": ";"}, {"decimal": ",", "thousands": ","}, {"encoding": "utf-9"},
        {"encoding": "base64"}, {"names": []}, {"names": "ab"}, {"names": [1]}, {"skiprows": -1},
        {"skiprows": True}, {"sheet": -1}, {"missing": "NA"}, {"missing": [None]}, {"rename": {"a": 1}},
        {"max_rows": 0}, {"max_bytes": "4 GB"}, {"query": " "}, {"max_rows": None},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"^here: {list(wrong)[-1]}: expected"):
            ReadOptions.from_dict(wrong, "here")
    with pytest.raises(ConfigError, match="Did you mean 'rename'"):
        ReadOptions.from_dict({"renames": {}}, "here")
    options = {
        "sep": "\t",
        "missing": {"age": [-999, "?"], "bmi": -1},
        "rename": {"a": "b"},
        "max_rows": 5,
    }
    assert ReadOptions.from_dict(options, "here").to_dict() == options
    assert ReadOptions(sep=r"\t").to_dict() == {"sep": "\t"} and ReadOptions().to_dict() == {}


# ---------------------------------------------------------------------- databases


@pytest.fixture
def url(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "north.db") as database:
        database.execute("create table visits (id text, age integer, bmi real, mixed)")
        rows = [(f"{number:03}", 2**60 + number, number / 2, number) for number in range(3000)]
        database.executemany("insert into visits values (?, ?, ?, ?)", rows)
        database.execute("insert into visits values ('x', null, null, 'text')")
    return f"sqlite:///{tmp_path / 'north.db'}"


def test_tables_and_queries(url: str, tmp_path: Path) -> None:
    raw = read(url, query="visits")
    frame = raw.frame
    assert (
        frame["age"].dtype == "Int64"
        and frame["age"][2999] == 2**60 + 2999
        and frame["id"][7] == "007"
    )
    assert (
        frame["bmi"].dtype == "float64"
        and frame["mixed"][3] == 3
        and frame["mixed"][3000] == "text"
    )
    assert raw.head.startswith("client 'north', database sqlite:///")
    raw = read(
        url, query="select id as a, '12:30' as b, ' :x %s' as c from visits where age is null;"
    )
    assert cells(raw) == [["x", "12:30", " :x %s"]]
    assert list(read(url, query="select bmi from visits", rename={"bmi": "x"}).frame) == ["x"]
    for options, word in (
        ({"query": "visit"}, "no such table"),
        ({"query": "select 1 as a, 2 as a"}, "2 columns called 'a'"),
        ({"query": "delete from visits"}, "readonly"),
        ({"query": "visits", "max_rows": 3000}, "max_rows"),
        ({"query": "visits", "max_bytes": 50_000}, "max_bytes"),
        ({"query": "select * from visits where 0"}, "found none"),
        ({}, "query: expected"),
    ):
        with pytest.raises(FedlitError, match=word):
            read(url, **options)
    assert len(read(url, query="visits").frame) == 3001
    with pytest.raises(DataError, match="no such file"):
        read(f"sqlite:///{tmp_path / 'absent.db'}", query="visits")
    assert not (tmp_path / "absent.db").exists()
    check(tmp_path / "north.db", {}, None, "sqlite:///FILE")


def test_new_rows_of_a_run_that_read_a_database_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_bytes(CONTENT)
    run: Any = SimpleNamespace(
        schema=Schema({}, {"query": "visits", "missing": [-9]}), client="north", columns=()
    )
    assert list(read_rows(tmp_path / "new.csv", run).frame) == ["id", "x"]


@pytest.mark.parametrize(
    ("place", "good"),
    [
        ("postgresql://reader:hunter2@host/cohort", False),
        ("postgresql+psycopg://reader:hunter2${X}@host/cohort", False),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BUID%3Dreader%3BPWD%3Dhunter2", False),
        ("postgresql://host/cohort?user=reader&password=hunter2", False),
        ("databricks://token:hunter2@host", False),
        ("postgresql://reader:${PASSWORD}@host/cohort", True),
        ("postgresql://reader@host:5432/cohort?sslmode=require", True),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BPWD%3D${PASSWORD}", True),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(place: str, good: bool) -> None:
    if good:
        check_url(place)
        return
    with pytest.raises(ConfigError) as caught:
        read(place, query="visits")
    assert "${NAME}" in str(caught.value) and "hunter2" not in "".join(
        traceback.format_exception(caught.value)
    )


def test_variables_are_read_late_and_never_shown(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    raw = read("sqlite:///${FOLDER}/north.db", query="visits")
    assert len(raw.frame) == 3001 and str(tmp_path) not in raw.head
    monkeypatch.setenv("FOLDER", str(tmp_path / "s3cr3t"))
    with pytest.raises(DataError) as caught:
        read("sqlite:///file:${FOLDER}/north.db?mode=ro&uri=true", query="visits")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    monkeypatch.delenv("FOLDER")
    with pytest.raises(ConfigError, match="variable FOLDER: expected"):
        read("sqlite:///${FOLDER}/north.db", query="visits")
    monkeypatch.setenv("PASSWORD", "hunter2")
    for place, word in (
        ("oracle+oracledb://reader:${PASSWORD}@host/cohort", "pip install oracledb"),
        ("nosuchthing://reader:${PASSWORD}@host/cohort", "nosuchthing"),
    ):
        with pytest.raises(FedlitError, match=word) as refused:
            read(place, query="visits")
        assert "hunter2" not in "".join(traceback.format_exception(refused.value))
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with pytest.raises(ConfigError, match=r"sqlalchemy.*pip install '\.\[sql\]'"):
        read(url, query="visits")
