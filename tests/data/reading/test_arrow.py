"""Parquet and Feather keep types, are bounded before they are read, and never fill memory unseen."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from read_files import read, refused

from fedlit.errors import DataError


def written(table: pa.Table, tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"north.{kind}"
    pq.write_table(table, path) if kind == "parquet" else feather.write_feather(table, path)
    return path


COLUMNS = {
    "whole": pa.array([1, 2, 3], pa.int16()),
    "gaps": pa.array([2**60 + 1, None, 3], pa.int64()),
    "unsigned": pa.array([2**63 + 1, None, 3], pa.uint64()),
    "real": pa.array([1.5, None, 3.0], pa.float32()),
    "truth": pa.array([True, None, False]),
    "text": pa.array(["007", None, ""]),
    "large": pa.array(["x", "y", None], pa.large_string()),
    "codes": pa.array(["m", "f", None]).dictionary_encode(),
    "price": pa.array([decimal.Decimal("1.20"), None, decimal.Decimal("3.00")]),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    "struct": pa.array([{"a": 1}, None, {"a": 2}]),
    "bytes": pa.array([b"\xff", None, b""]),
    "day": pa.array([datetime.date(2024, 1, 5), None, datetime.date(1, 1, 1)]),
    "moment": pa.array([0, None, 2**40], pa.timestamp("us", "Europe/Berlin")),
    "far": pa.array([-(10**10), None, 10**11], pa.timestamp("s")),
    "time": pa.array([datetime.time(1, 2), None, datetime.time(3, 4)]),
    "span": pa.array([1, None, 3], pa.duration("s")),
    "nothing": pa.nulls(3),
}


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_types_stay_what_they_are(tmp_path: Path, kind: str) -> None:
    table = pa.table(COLUMNS)
    frame = read(written(table, tmp_path, kind)).frame
    assert list(frame.columns) == list(COLUMNS) and len(frame) == 3
    for name, column in COLUMNS.items():
        given = [value for value in frame[name].tolist() if value is not None and not np.all(pd.isna(value))]
        kept = [value for value in column.to_pylist() if value is not None]
        if name in ("far", "list", "span", "moment", "time"):
            assert len(frame[name]) - int(frame[name].isna().sum()) == len(kept), name
        else:
            assert given == kept, name
    assert frame["gaps"].dtype == "Int64" and frame["whole"].dtype == "int16" and frame["real"].dtype == "float32"
    assert frame["codes"].dtype == "category" and frame["truth"].dtype == "boolean"
    repr(frame)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_bounds_and_choice(tmp_path: Path, kind: str) -> None:
    path = written(pa.table({name: np.zeros(1000) for name in ("a", "b", " c ")}), tmp_path, kind)
    assert "max_rows" in refused(path, max_rows=999) and "max_bytes" in refused(path, max_bytes=23_999)
    raw = read(path, keep=["c", "a"], max_bytes=17_000, rename={"c": "d"})
    assert list(raw.frame.columns) == ["a", "d"] and "blanks" in raw.notes[0]
    with pytest.raises(DataError, match="Did you mean 'a'"):
        read(path, drop=["aa"])


def test_texts_kept_once_are_counted_as_they_would_be_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pq.write_table(
        pa.table({"a": pa.DictionaryArray.from_arrays(np.zeros(100_000, "int32"), ["x" * 100_000])}).cast(
            pa.schema({"a": pa.dictionary(pa.int32(), pa.string())})
        ),
        path,
        store_schema=False,
    )
    assert path.stat().st_size < 200_000
    assert "max_bytes" in refused(path)  # 10 GB of text


def test_a_pandas_index_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="patient")).to_parquet(path)
    raw = read(path)
    assert list(raw.frame.columns) == ["a"] and isinstance(raw.frame.index, pd.RangeIndex)
    assert "pandas index 'patient'" in raw.notes[0]
    assert list(read(path, keep=["patient", "a"]).frame.columns) == ["a", "patient"]
    pd.DataFrame({"a": [1, 2]}, index=[5, 6]).to_parquet(path)
    assert not read(path).notes


def test_odd_names(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pd.DataFrame({0: [1], 1: [2]}).to_parquet(path)
    assert list(read(path).frame.columns) == ["0", "1"]
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a.b", ""]), path)
    assert list(read(path).frame.columns) == ["a.b", "unnamed_2"]
    pq.write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    assert "2 columns are called 'a'" in refused(path)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    path = written(pa.table({"a": np.random.default_rng(0).normal(size=1000)}), tmp_path, kind)
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    assert "damaged" in refused(path)
    path.write_bytes(content[:200] + b"\xff" * 400 + content[600:])
    try:  # bytes of a value may be changed without a trace; the rest is found
        assert len(read(path).frame) == 1000
    except DataError as error:
        assert "damaged" in str(error)
    path = written(pa.table({"a": pa.array([], pa.int64())}), tmp_path, kind)
    assert "found none" in refused(path)


def test_many_columns(tmp_path: Path) -> None:
    path = written(pa.table({f"x{place}": [place] for place in range(3000)}), tmp_path, "parquet")
    frame = read(path).frame
    assert frame.shape == (1, 3000) and frame.iloc[0].tolist() == list(range(3000))
