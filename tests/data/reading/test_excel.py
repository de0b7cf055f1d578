"""Excel sheets come as the text that a person would write."""

from __future__ import annotations

import datetime
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook
from read_files import read, refused

from fedlit.errors import ConfigError


def made(tmp_path: Path, *sheets: list[list[Any]], merge: str = "") -> Path:
    book = Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
        if merge:
            sheet.merge_cells(merge)
    path = tmp_path / "north.xlsx"
    book.save(path)
    return path


def test_cells_are_text(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 1, 5)
    rows = [
        ["id", "x", "day", "ok"],
        ["007", 1.0, day, True],
        [8, 0.1 + 0.2, day.replace(hour=3), None],
        [None, "#DIV/0!"],
    ]
    raw = read(made(tmp_path, rows))
    found = raw.frame.astype(object).where(raw.frame.notna(), None).to_numpy().tolist()
    assert found == [
        ["007", "1", "2024-01-05", "TRUE"],
        ["8", "0.3", "2024-01-05T03:00:00", None],
        [None, "#DIV/0!", None, None],
    ]
    assert not raw.notes


def test_sheets(tmp_path: Path) -> None:
    path = made(tmp_path, [["a"], [1]], [["b"], [2]])
    first = read(path)
    assert list(first.frame.columns) == ["a"] and "'sheet 0', 'sheet 1'" in first.notes[0]
    for sheet in (1, "sheet 1"):
        raw = read(path, sheet=sheet)
        assert list(raw.frame.columns) == ["b"] and not raw.notes
    assert "Did you mean 'sheet 1'" in refused(path, sheet="shet 1") and "from 0 to 1" in refused(path, sheet=2)


def test_titles_and_merged_headers_suggest_skiprows(tmp_path: Path) -> None:
    path = made(tmp_path, [["Report"], ["a", "b"], [1, 2]])
    assert "skiprows: 1" in refused(path)
    assert read(path, skiprows=1).frame.to_numpy().tolist() == [["1", "2"]]
    path = made(tmp_path, [["blood", None], ["a", "b"], [1, 2]], merge="A1:B1")
    assert "skiprows: 1" in refused(path) and "merged" in read(path, skiprows=1).notes[0]
    path = made(tmp_path, [["a", "b"], [1, None], [3, 4]], merge="A2:B2")
    assert "merged" in read(path).notes[0]


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    assert "row 3: expected 2 cells" in refused(made(tmp_path, [["a", "b"], [1, 2], [1, 2, 3]]))
    raw = read(made(tmp_path, [["a", "b"], [1, 2], [], [None, ""], [3]]))
    assert len(raw.frame) == 2 and "2 empty rows were skipped" in raw.notes[0]
    assert "found none" in refused(made(tmp_path, [["a", "b"]])) and "found none" in refused(made(tmp_path, []))
    path = made(tmp_path, [["a", "b"], [1, 2]])
    assert "names" in refused(path, names=["a", "b"]) and "max_rows" in refused(
        made(tmp_path, [["a"], [1], [2]]), max_rows=1
    )
    assert len(read(made(tmp_path, [[1, 2], [3, 4]]), names=["a", "b"]).frame) == 2


def test_formulas_without_a_value_are_said(tmp_path: Path) -> None:
    raw = read(made(tmp_path, [["a", "b"], [1, "=A2+1"], [2, 5]]))
    assert "1 formula has no computed value" in raw.notes[0]


def test_a_cell_at_the_far_end_costs_nothing(tmp_path: Path) -> None:
    book = Workbook()
    book.active["A1"], book.active["A2"] = "a", 1
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "north.xlsx")
    assert "row 1,048,576" in refused(tmp_path / "north.xlsx")


def test_bombs_and_damage(tmp_path: Path) -> None:
    path = made(tmp_path, [["a"], ["x" * 30_000]])
    assert "max_bytes" in refused(path, max_bytes=20_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name)[:-30] if "sheet1" in name else old.read(name))
    path.write_bytes(packed.getvalue())
    assert "cannot be read as .xlsx" in refused(path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, [["a"], [1]])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ConfigError, match=r'pip install "fedlit\[excel\]"'):
        read(path)
