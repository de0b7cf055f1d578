"""Delimited text: what comes back is what was written, and what is no table is refused by its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from read_files import read, refused

from fedlit.data.files import RemoteFile
from fedlit.data.reading import Raw
from fedlit.data.sources.heart import Heart


def made(tmp_path: Path, content: str | bytes, name: str = "north.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def cells(raw: Raw) -> list[list[str | None]]:
    """Rows, None where a cell is missing."""
    return [[None if pd.isna(own) else own for own in row] for row in raw.frame.itertuples(index=False)]


def noted(raw: Raw) -> str:
    assert all(note.startswith("client 'north', file ") for note in raw.notes)
    return "\n".join(raw.notes)


# A header that cannot be taken for data, and cells of any text that a file can hold.
letters = st.characters(codec="utf-8", exclude_characters="\0")
text = st.text(letters, max_size=8) | st.sampled_from(
    ["", " ", ' "', '" ', '", "', ' ,"', "007", "NA", "\r\n", "1,5", "\ufeff"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(text, min_size=width, max_size=width), min_size=1)),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    sep=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_any_table_of_text_comes_back(tmp_path: Path, table: list[list[str]], end: str, sep: str, quoting: int) -> None:
    if end != "\r\n":  # the writer leaves the other line end without quotes
        quoting = csv.QUOTE_ALL
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=sep, lineterminator=end, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow([f"column {place}" for place in range(len(table[0]))])
    writer.writerows(table)
    raw = read(made(tmp_path, written.getvalue()), sep=sep)
    assert cells(raw) == [[cell or None for cell in row] for row in table]
    assert list(raw.frame.columns) == [f"column {place}" for place in range(len(table[0]))]


def test_text_stays_text_and_costs_little(tmp_path: Path) -> None:
    raw = read(made(tmp_path, "id,note,sex\n007, a ,m\n1e5,NA,\n"))
    assert cells(raw) == [["007", " a ", "m"], ["1e5", "NA", None]]
    assert isinstance(raw.frame.index, pd.RangeIndex) and not raw.notes
    many = read(made(tmp_path, "sex\n" + "male\nfemale\n" * 50_000))
    assert many.frame.memory_usage(deep=True)["sex"] < 20 * len(many.frame)


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_separators_are_found(tmp_path: Path, sep: str) -> None:
    raw = read(made(tmp_path, f"a{sep}b{sep}c\n1{sep}x y{sep}3\n4{sep}z{sep}6\n"))
    assert cells(raw) == [["1", "x y", "3"], ["4", "z", "6"]]
    assert ("separated by" in noted(raw)) == (sep != ",")


def test_decimal_commas_do_not_mislead(tmp_path: Path) -> None:
    assert cells(read(made(tmp_path, "a;b\n1,5;2,5\n3,5;4,5\n"))) == [["1,5", "2,5"], ["3,5", "4,5"]]
    path = made(tmp_path, "1,5;2,5\n3,5;4,5\n")
    assert cells(read(path, names=["a", "b"])) == [["1,5", "2,5"], ["3,5", "4,5"]]
    assert "Write sep" in refused(made(tmp_path, "a,b;c\n1,2;3\n"))


def test_a_sep_line_is_obeyed_and_said(tmp_path: Path) -> None:
    raw = read(made(tmp_path, "sep=;\r\na;b\r\n1;2\r\n"))
    assert cells(raw) == [["1", "2"]] and "sep=;" in noted(raw)
    assert "line 4" in refused(made(tmp_path, "sep=;\na;b\n1;2\n1\n"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('a, "b, c" ,d\n1, "2, 3" , "4"\n', [["1", "2, 3", " 4"]]),
        ('a,b\n1,"x\ny"\n2,z\n', [["1", "x\ny"], ["2", "z"]]),
        ('a,b\n1,"say ""hi"""\n', [["1", 'say "hi"']]),
        ('a,b\n1,5" pipe\n', [["1", '5" pipe']]),
    ],
)
def test_quotes(tmp_path: Path, content: str, expected: list[list[str]]) -> None:
    found = cells(read(made(tmp_path, content)))
    assert [[(cell or "").strip() for cell in row] for row in found] == [
        [cell.strip() for cell in row] for row in expected
    ]


def test_swallowed_lines_are_counted_or_refused(tmp_path: Path) -> None:
    raw = read(made(tmp_path, 'a,b\n1,"x\n2,y\n3,z"\n4,w\n'))
    assert len(raw.frame) == 2 and "1 row holds quoted cells with line ends; the longest takes 3 lines" in noted(raw)
    message = refused(made(tmp_path, "a,b\n" + "1,2\n" * 2000 + '3,"4\n' + "5,6\n" * 3000))
    assert "line 2,002" in message and "3,001 lines" in message
    assert "line 3" in refused(made(tmp_path, 'a,b\n1,2\n"x,3\n"y",4\n'))
    assert "line 2,002" in refused(made(tmp_path, "a,b\n" + '1,"2"\n' * 2000 + '3,"x"y\n' + '5,"6"\n' * 3000))


@pytest.mark.parametrize("rows", [3, 5000])
def test_ragged_lines_are_refused_by_number(tmp_path: Path, rows: int) -> None:
    good = 'a,b\n"1\n",2\n\n' + "1,2\n" * rows
    for bad, found in (("1\n", "found 1"), ("1,2,3\n", "found 3")):
        message = refused(made(tmp_path, good + bad + "1,2\n" * 3000))
        assert f"line {rows + 5:,}" in message and found in message and "expected 2 fields" in message


def test_a_separator_too_many_at_each_end(tmp_path: Path) -> None:
    for header in ("a,b", "a,b,"):
        raw = read(made(tmp_path, f"{header}\n1,2,\n3,4,\n"))
        assert list(raw.frame.columns) == ["a", "b"] and cells(raw) == [["1", "2"], ["3", "4"]]
        assert "1 column without name and values was left out" in noted(raw)
    assert "line 3" in refused(made(tmp_path, "a,b\n1,2,\n3,4,5\n"))


def test_headers(tmp_path: Path) -> None:
    raw = read(made(tmp_path, " a ,b\n1,2\n"))
    assert list(raw.frame.columns) == ["a", "b"] and "blanks around 1 name" in noted(raw)
    assert list(read(made(tmp_path, "\ufeff\ufeffa,b\n1,2\n")).frame.columns) == ["a", "b"]
    assert "2 columns are called 'a'" in refused(made(tmp_path, "a, a\n1,2\n"))
    raw = read(made(tmp_path, ",a\n1,2\n"))
    assert list(raw.frame.columns) == ["unnamed_1", "a"] and "drop: [unnamed_1]" in noted(raw)
    assert list(read(made(tmp_path, ",a\n1,2\n"), drop=["unnamed_1"]).frame.columns) == ["a"]
    assert "only empty cells" in refused(made(tmp_path, ",,\n1,2,3\n"))
    assert "write names" in noted(read(made(tmp_path, "63.0,1\n64.0,0\n")))


def test_names_for_a_file_without_header(tmp_path: Path) -> None:
    path = made(tmp_path, "007,1\n8,2\n")
    assert cells(read(path, names=["id", "x"])) == [["007", "1"], ["8", "2"]]
    assert "expected 3 fields as in names, found 2" in refused(path, names=["a", "b", "c"])
    assert "Leave out names" in refused(made(tmp_path, "id,x\n1,2\n"), names=["id", "x"])
    assert cells(read(made(tmp_path, "A report\nof two lines\na,b\n1,2\n"), skiprows=2)) == [["1", "2"]]
    assert "skiprows" in refused(made(tmp_path, "A report\na,b\n1,2\n3,4\n"))
    assert "Lower it" in refused(path, skiprows=9)


def test_blank_lines_and_empty_rows_are_said(tmp_path: Path) -> None:
    raw = read(made(tmp_path, "\na,b\n\n1,2\n   \n,\n"))
    assert cells(raw) == [["1", "2"], [None, None]]
    assert "3 blank lines were skipped" in noted(raw) and "1 row holds no value" in noted(raw)


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n", "a,b", " "])
def test_a_file_without_rows_is_refused(tmp_path: Path, content: str) -> None:
    assert "found" in refused(made(tmp_path, content))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_is_recognised(tmp_path: Path, encoding: str) -> None:
    content = "Größe;Stadt\n1;Köln\n2;東京\n"
    raw = read(made(tmp_path, content.encode(encoding)))
    assert list(raw.frame.columns) == ["Größe", "Stadt"] and cells(raw) == [["1", "Köln"], ["2", "東京"]]
    assert ("not UTF-8" in noted(raw)) == (encoding != "utf-8-sig")
    given = read(made(tmp_path, content.encode(encoding)), encoding=encoding)
    assert given.frame.equals(raw.frame) and "not UTF-8" not in noted(given)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [("name,stadt\nMüller,Köln\n", "latin-1"), ("a,b\n5 µg,1\n", "cp1252"), ("имя,город\nИван,Москва\n", "cp1251")],
)
@pytest.mark.parametrize("late", [False, True])
def test_other_encodings_are_found_and_said(tmp_path: Path, content: str, encoding: str, late: bool) -> None:
    if late:  # the first bytes that are no UTF-8 come far behind what is looked at first
        content = "a,b\n" + "x,1\n" * 300_000 + content
    raw = read(made(tmp_path, content.encode(encoding)))
    assert raw.frame.iloc[-1].tolist() == content.splitlines()[-1].split(",") and "If letters look wrong" in noted(raw)


def test_a_wrong_encoding_is_refused(tmp_path: Path) -> None:
    assert "utf-8" in refused(made(tmp_path, "a,b\nMüller,1\n".encode("latin-1")), encoding="utf-8")


def test_nul_bytes_are_refused_by_line(tmp_path: Path) -> None:
    assert "line 3: holds NUL bytes" in refused(made(tmp_path, b"a,b\n1,2\n3,\0\n"))


def test_many_columns_and_long_lines(tmp_path: Path) -> None:
    names = [f"x{place}" for place in range(10_000)]
    line = ",".join(map(str, range(10_000)))
    raw = read(made(tmp_path, ",".join(names) + "\n" + f"{line}\n" * 5), keep=["x1", "x99*"])
    assert list(raw.frame.columns) == [
        "x1",
        "x99",
        *(name for name in names if name.startswith("x99") and len(name) > 3),
    ]
    assert read(made(tmp_path, ",".join(names) + f"\n{line}\n")).frame.shape == (1, 10_000)
    long = made(tmp_path, "a,b\n1," + "x" * 1_000_000 + "\n")
    assert len(read(long).frame.loc[0, "b"]) == 1_000_000
    long.write_bytes(b"a,b\n1," + b"x" * 70_000_000 + b"\n")
    assert "line 2" in refused(long)
    long.write_bytes(b"a,b\n" + b"1," * 5_000_000 + b"\n")
    assert "line 2: expected 2 fields" in refused(long)


def test_bounds(tmp_path: Path) -> None:
    path = made(tmp_path, "a\n" + "1\n" * 5000)
    assert "max_rows" in refused(path, max_rows=4999) and "max_bytes" in refused(path, max_bytes=10_001)
    assert len(read(path, max_rows=5000, max_bytes=10_002).frame) == 5000


def test_choosing_and_renaming(tmp_path: Path) -> None:
    path = made(tmp_path, "age,visit_1,visit_2,dose [mg]\n1,2,3,4\n")

    def columns(**options: object) -> list[str]:
        return list(read(path, **options).frame.columns)

    assert columns(keep=["visit_*", "dose [mg]"], drop=["visit_2"]) == ["visit_1", "dose [mg]"]
    assert columns(rename={"age": "years", "visit_1": "age"}) == ["years", "age", "visit_2", "dose [mg]"]
    assert "Did you mean 'visit_1'" in refused(path, drop=["visit1"])
    assert "Did you mean 'age'" in refused(path, keep=["agee"])
    assert "Did you mean 'age'" in refused(path, rename={"agee": "years"})
    assert "no column" in refused(path, drop=["*"])
    assert "2 columns called 'age'" in refused(path, rename={"visit_1": "age"})


def heart(name: str) -> RemoteFile:
    return next(file for file in Heart.files() if file.path == f"heart/{name}")


def test_bare_carriage_returns_in_a_real_file(real_file: Callable[[RemoteFile], Path]) -> None:
    path = real_file(heart("framingham.csv"))
    raw = read(path)
    expected = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert raw.frame.shape == (4240, 16) and (raw.frame.fillna("") == expected).to_numpy().all()


def test_a_real_file_without_header(real_file: Callable[[RemoteFile], Path]) -> None:
    raw = read(real_file(heart("cleveland.data")), names=[f"x{place}" for place in range(14)])
    assert raw.frame.shape == (303, 14) and (raw.frame == "?").to_numpy().sum() == 6


def test_western_letters_are_those_that_were_written(tmp_path: Path) -> None:
    for towns in (["Zürich", "Genève"], ["Genève", "Münster", "Besançon", "Coruña"]):
        raw = read(made(tmp_path, ("town,x\n" + "".join(f"{town},1\n" for town in towns)).encode("latin-1")))
        assert raw.frame["town"].tolist() == towns and repr(towns[0]) in noted(raw)
