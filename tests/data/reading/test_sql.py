"""Databases are read as typed, within bounds, and their passwords stand nowhere."""

from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path

import pytest
from read_files import read

from fedlit.data.reading import check_url
from fedlit.errors import ConfigError, DataError


@pytest.fixture
def url(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "north.db") as database:
        database.execute("create table visits (id text, age integer, bmi real, mixed)")
        rows = [(f"{number:03}", 2**60 + number, number / 2, number) for number in range(3000)]
        database.executemany("insert into visits values (?, ?, ?, ?)", rows)
        database.execute("insert into visits values ('x', null, null, 'text')")
        database.execute('create table "odd name" (" a ")')
    return f"sqlite:///{tmp_path / 'north.db'}"


def test_tables_and_queries(url: str) -> None:
    frame = read(url, query="visits").frame
    assert list(frame.columns) == ["id", "age", "bmi", "mixed"] and len(frame) == 3001
    assert frame["age"].dtype == "Int64" and frame["age"][2999] == 2**60 + 2999 and frame["id"][7] == "007"
    assert frame["bmi"].dtype == "float64" and frame["mixed"][3] == 3 and frame["mixed"][3000] == "text"
    raw = read(url, query="select id as a, '12:30' as b, ' :x %s' as c from visits where age is null;")
    assert raw.frame.to_numpy().tolist() == [["x", "12:30", " :x %s"]]
    assert raw.where.startswith("client 'north', database sqlite:///")
    assert list(read(url, query="visits", keep=["bmi"], rename={"bmi": "x"}).frame.columns) == ["x"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"query": "visit"}, "no such table"),
        ({"query": "select 1 as a, 2 as a"}, "2 columns are called 'a'"),
        ({"query": "delete from visits"}, "readonly"),
        ({"query": "visits", "max_rows": 3000}, "max_rows"),
        ({"query": "visits", "max_bytes": 50_000}, "max_bytes"),
        ({"query": "select * from visits where 0"}, "found none"),
        ({"query": "visits", "sep": ";"}, "sep"),
    ],
)
def test_what_cannot_be_read(url: str, options: dict[str, object], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read(url, **options)
    assert len(read(url, query="visits").frame) == 3001


def test_a_query_is_asked_for_and_a_file_is_not_made(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected query"):
        read(url)
    with pytest.raises(DataError, match="no such file"):
        read(f"sqlite:///{tmp_path / 'absent.db'}", query="visits")
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://reader:hunter2@host/cohort",
        "postgresql+psycopg://reader:hunter2${X}@host/cohort",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BUID%3Dreader%3BPWD%3Dhunter2",
        "postgresql://host/cohort?user=reader&password=hunter2",
        "databricks://token:hunter2@host",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(bad, query="visits")
    assert "${NAME}" in str(caught.value) and "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "good",
    [
        "postgresql://reader:${PASSWORD}@host/cohort",
        "postgresql://reader@host:5432/cohort?sslmode=require",
        "mssql+pyodbc:///?odbc_connect=DRIVER%3DX%3BPWD%3D${PASSWORD}",
        "sqlite:///north.db",
    ],
)
def test_other_urls_may_be_saved(good: str) -> None:
    check_url(good)


def test_variables_are_read_late_and_never_shown(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    raw = read("sqlite:///${FOLDER}/north.db", query="visits")
    assert len(raw.frame) == 3001 and str(tmp_path) not in raw.where
    monkeypatch.setenv("FOLDER", str(tmp_path / "s3cr3t"))
    with pytest.raises(DataError) as caught:
        read("sqlite:///file:${FOLDER}/north.db?mode=ro&uri=true", query="visits")
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    monkeypatch.delenv("FOLDER")
    with pytest.raises(ConfigError, match="variable FOLDER is not set"):
        read("sqlite:///${FOLDER}/north.db", query="visits")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    with pytest.raises(ConfigError, match="driver"):
        read("oracle+oracledb://reader:${PASSWORD}@host/cohort", query="visits")
    with pytest.raises(ConfigError, match="knows no database of the kind 'nosuchthing'"):
        read("nosuchthing://host/cohort", query="visits")
    monkeypatch.setitem(__import__("sys").modules, "sqlalchemy", None)
    with pytest.raises(ConfigError, match=r'pip install "fedlit\[sql\]"'):
        read(url, query="visits")
