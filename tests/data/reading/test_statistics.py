"""Files of SPSS, Stata and SAS as pyreadstat writes them, and Feather: what comes back of them."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedlit.data.reading import ReadOptions, read_table
from fedlit.data.sources import Tables
from fedlit.errors import ConfigError, DataError

pyreadstat = pytest.importorskip("pyreadstat", reason="the extra stats is not installed")
ROWS = 60
LABELS = {"sex": {1: "M", 2: "F"}, "pain": {99: "refused"}}


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.normal(60, 9, ROWS).round(2),
        "sex": rng.choice([1, 2], ROWS),
        "pain": rng.choice([0, 3, 7, 99], ROWS),
        "ward": rng.choice(["A", "Süd", ""], ROWS),
        "ill": rng.choice([0, 1], ROWS),
    })  # fmt: skip
    frame["seen"] = [
        datetime.date(2020, 1, 1) + datetime.timedelta(days=day) for day in range(ROWS)
    ]
    return frame.assign(age=frame["age"].mask(frame.index == 3))


WRITERS: dict[str, Any] = {
    "north.sav": lambda frame, path: pyreadstat.write_sav(
        frame, path, variable_value_labels=LABELS
    ),
    "north.zsav": lambda frame, path: pyreadstat.write_sav(
        frame, path, compress=True, variable_value_labels=LABELS
    ),
    "north.dta": lambda frame, path: pyreadstat.write_dta(
        frame, path, variable_value_labels=LABELS
    ),
    "old.dta": lambda frame, path: pyreadstat.write_dta(
        frame, path, version=8, variable_value_labels=LABELS
    ),
    "north.xpt": pyreadstat.write_xport,
    "old.xpt": lambda frame, path: pyreadstat.write_xport(frame, path, file_format_version=5),
}


def written_out(frame: pd.DataFrame, *, labels: bool) -> pd.DataFrame:
    """The same rows, as a person would write them to CSV."""
    if not labels:
        return frame
    return frame.assign(
        sex=frame["sex"].map(LABELS["sex"]), pain=frame["pain"].replace(LABELS["pain"])
    )


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_statistics_reads_as_its_csv(
    name: str, rows: pd.DataFrame, tmp_path: Path
) -> None:
    WRITERS[name](rows, tmp_path / name)
    written_out(rows, labels="xpt" not in name).to_csv(tmp_path / "north.csv", index=False)
    tables = []
    for file in (name, "north.csv"):
        # which old files of Stata do not say
        place = {"path": str(tmp_path / file), "encoding": "utf-8"}
        (table,) = Tables({"north": place}, "ill", types={"seen": "date"}).tables(seed=1)
        tables.append(table)
    pd.testing.assert_frame_equal(tables[0].features, tables[1].features)
    assert (
        tables[0].target.tolist() == tables[1].target.tolist()
        and tables[0].categorical == tables[1].categorical
    )


def test_a_folder_of_such_files_is_a_federation(rows: pd.DataFrame, tmp_path: Path) -> None:
    pyreadstat.write_sav(rows, tmp_path / "north.sav")
    pyreadstat.write_dta(rows, tmp_path / "south.dta")
    assert [table.name for table in Tables(str(tmp_path), "ill").tables(seed=1)] == [
        "north",
        "south",
    ]


@pytest.mark.parametrize("name", ["north.sav", "north.xpt"])
def test_sizes_damage_and_a_missing_extra(
    name: str, rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    WRITERS[name](rows, path)
    for limit in ({"max_rows": ROWS - 1}, {"max_bytes": 100}):
        with pytest.raises(DataError, match=next(iter(limit))):
            read_table(path, ReadOptions(**limit), "north")  # type: ignore[arg-type]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(path, ReadOptions(), "north")
    monkeypatch.setitem(__import__("sys").modules, "pyreadstat", None)
    with pytest.raises(ConfigError, match=r"pyreadstat.*pip install '\.\[stats\]'"):
        read_table(path, ReadOptions(), "north")


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_feather_file_reads_as_parquet(
    compression: Any, rows: pd.DataFrame, tmp_path: Path
) -> None:
    rows.to_feather(tmp_path / "north.feather", compression=compression)
    rows.to_parquet(tmp_path / "north.parquet")
    first, second = (
        read_table(tmp_path / f"north.{end}", ReadOptions(), "north").frame
        for end in ("feather", "parquet")
    )
    pd.testing.assert_frame_equal(first, second)
    with pytest.raises(DataError, match="max_rows"):
        read_table(tmp_path / "north.feather", ReadOptions(max_rows=9), "north")
