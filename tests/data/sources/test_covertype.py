"""Covertype: the real file against plain Python, and small files for what can be wrong."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedlit.data.files import RemoteFile
from fedlit.data.sources import Covertype
from fedlit.data.sources.covertype import AREAS, ELU_CODES
from fedlit.errors import ConfigError, DataError

CATEGORIES = ("soil_type", "climatic_zone", "geologic_zone", "wilderness_area")


def line(area: int, soil: int, label: int = 1) -> list[str]:
    """One row of the file: ten measures, both one-hot blocks, the label."""
    fields = ["0"] * 55
    fields[:10] = [str(100 + n) for n in range(10)]
    fields[10 + area] = fields[14 + soil] = "1"
    fields[54] = str(label)
    return fields


def lines(rows: int) -> list[list[str]]:
    return [line(n % 4, n % 40, 1 + n % 7) for n in range(rows)]


def write(folder: Path, rows: Sequence[Sequence[str]]) -> Path:
    path = folder / "covtype.data"
    path.write_text("\n".join(map(",".join, rows)) + "\n")
    return path


@pytest.fixture(scope="module")
def real_lines(real_file: Callable[[RemoteFile], Path]) -> list[list[str]]:
    path = real_file(Covertype.known_files()[0])
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as text:
        return [row.rstrip("\n").split(",") for row in text]


def test_the_real_rows_stand_with_their_client_in_their_split(real_lines: list[list[str]]) -> None:
    derived, numbers, raw = (Covertype(columns=own).tables(seed=8) for own in ("derived", "numbers", "raw"))
    expected = Counter[tuple[str, str]]()
    classes: dict[str, set[int]] = {area: set() for area in AREAS}
    for number, fields in enumerate(real_lines):
        area = AREAS[fields[10:14].index("1")]
        expected[area, "train" if number < 11_340 else "validation" if number < 15_120 else "test"] += 1
        classes[area].add(int(fields[54]))
    assert {(own.name, split): len(rows) for own in derived for split, rows in own.splits.items()} == dict(expected)
    assert [own.name for own in derived] == list(AREAS)
    assert {own.name: set(own.target) for own in derived} == classes and len(classes["comanche"]) == 6
    training = {own.name: len(own.splits["train"]) for own in derived}
    assert training == {"rawah": 2675, "neota": 386, "comanche": 4771, "poudre": 3508}
    for table, plain, full in zip(derived, numbers, raw, strict=True):
        assert table.features.equals(plain.features) and (table.categorical, plain.categorical) == (CATEGORIES, ())
        assert table.features.shape[1] == 11 and full.features.shape[1] == 54 and full.categorical == ()
        for position in (0, 300, len(table.features) - 1):
            fields = real_lines[table.features.index[position]]
            code, measures = ELU_CODES[fields[14:54].index("1")], [float(fields[n]) for n in (0, 1, 2, 3, 4, 5, 9)]
            area = 1 + AREAS.index(table.name)
            own = [*measures, code, int(str(code)[0]), int(str(code)[1]), area]
            assert table.features.iloc[position].tolist() == own and table.target.iloc[position] == int(fields[54])
            whole = [float(field or "nan") for field in fields[:54]]
            np.testing.assert_array_equal(full.features.iloc[position].to_numpy(dtype=float), whole)


def test_an_unpacked_file_and_a_subset(tmp_path: Path) -> None:
    write(tmp_path, lines(15_200))
    (table,) = Covertype(root=str(tmp_path), clients=["comanche"]).tables(seed=1)
    assert {split: len(rows) for split, rows in table.splits.items()} == {"train": 2835, "validation": 945, "test": 20}
    assert table.features.index[:3].tolist() == [2, 6, 10]
    assert table.features["soil_type"].iloc[:3].tolist() == [ELU_CODES[2], ELU_CODES[6], ELU_CODES[10]]


@pytest.mark.parametrize(
    "row",
    [{10: "0", 11: "0", 12: "0", 13: "0"}, {14: "1", 15: "1"}, {54: "8"}, {10: "x"}, {54: "1,1"}],
)
def test_a_damaged_row_is_refused(row: dict[int, str], tmp_path: Path) -> None:
    rows = lines(15_200)
    for column, value in row.items():
        rows[77][column] = value
    write(tmp_path, rows)
    with pytest.raises(DataError, match=r"covtype\.data"):
        Covertype(root=str(tmp_path)).tables(seed=1)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"clients": ["neota", "neota"]}, "clients: .*each once, found .'neota', 'neota'"),
        ({"columns": "all"}, "columns: .*'all'"),
        ({"positive": [8]}, "positive: "),
    ],
)
def test_arguments(arguments: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        Covertype(**arguments)  # type: ignore[arg-type]
