"""Files of other kinds than their names say, damaged files, and bombs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sqlite3
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from read_files import read, refused

from fedlit.data.reading import ReadOptions
from fedlit.errors import ConfigError

CONTENT = b"id,x\n007,1\n008,\n"


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


PACKED = {
    "north.csv.gz": gzip.compress(CONTENT),
    "north.csv.bz2": bz2.compress(CONTENT),
    "north.csv.xz": lzma.compress(CONTENT),
    "north.csv.zst": pa.compress(CONTENT, "zstd", asbytes=True),
    "north.zip": zipped(**{"north.csv": CONTENT, "__MACOSX/._north.csv": b"\0"}),
}


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("honest", [True, False])
def test_compression_is_seen_from_the_content(tmp_path: Path, name: str, honest: bool) -> None:
    path = tmp_path / (name if honest else "north.csv")
    path.write_bytes(PACKED[name])
    raw = read(path)
    assert raw.frame.to_numpy().tolist()[0] == ["007", "1"]
    assert (not raw.notes) if honest else ("first bytes" in raw.notes[0])


@pytest.mark.parametrize("name", PACKED)
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(PACKED[name][:-12])
    assert "damaged" in refused(path)


def test_a_plain_file_with_a_packed_name_is_read_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "north.csv.gz").write_bytes(CONTENT)
    assert "text" in read(tmp_path / "north.csv.gz").notes[0]


def test_a_zip_of_several_files_lists_them(tmp_path: Path) -> None:
    path = tmp_path / "north.zip"
    path.write_bytes(zipped(**{"a.csv": CONTENT, "b.csv": CONTENT}))
    assert "found 2: 'a.csv', 'b.csv'" in refused(path)
    path.write_bytes(zipped())
    assert "found 0" in refused(path)


@pytest.mark.parametrize("packer", [gzip.compress, lambda own: zipped(**{"x.csv": own})])
def test_a_bomb_is_refused_before_it_fills_memory(tmp_path: Path, packer: object) -> None:
    path = tmp_path / "north.csv"
    path.write_bytes(packer(b"a,b\n" + b"1,2\n" * 10_000_000))  # type: ignore[operator]
    tracemalloc.start()
    try:
        assert "max_bytes" in refused(path, max_bytes=200_000)
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "look"),
    [
        (b"%PDF-1.7 ...", "a PDF"),
        (b"\x89PNG\r\n\x1a\n....", "a PNG picture"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1..", ".xls"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b'<table border="1"><tr><td>x</td></tr></table>', "a web page"),
        (b'[{"a": 1}]', "JSON"),
        (gzip.compress(gzip.compress(CONTENT)), "inside the gzip file"),
        (zipped(**{"mimetype": b"", "content.xml": b""}), "OpenDocument"),
        (zipped(**{"[Content_Types].xml": b"", "word/document.xml": b""}), "an Office file"),
    ],
    ids=lambda own: own if isinstance(own, str) else "bytes",  # those of packed ones hold the time
)
def test_what_is_no_table_is_refused_as_what_it_looks_like(tmp_path: Path, content: bytes, look: str) -> None:
    path = tmp_path / "north.csv"
    path.write_bytes(content)
    assert look in refused(path)


def test_other_formats_named_csv(tmp_path: Path) -> None:
    path = tmp_path / "north.csv"
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    frame.to_parquet(path)
    raw = read(path)
    assert raw.frame.equals(frame) and "parquet" in raw.notes[0]
    frame.to_feather(path)
    assert read(path).frame.equals(frame)
    frame.to_excel(tmp_path / "north.xlsx", index=False)
    path.write_bytes((tmp_path / "north.xlsx").read_bytes())
    assert read(path).frame.to_numpy().tolist() == [["1", "x"], ["2", "y"]]
    with sqlite3.connect(tmp_path / "north.db") as database:
        database.execute("create table t (a)")
    path.write_bytes((tmp_path / "north.db").read_bytes())
    assert "sqlite:///" in refused(path)
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(path, "north.csv")
    assert "a tar archive" in refused(tmp_path / "x.tar.gz")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "absent.csv")
    assert "is a folder" in refused(tmp_path)
    assert "too long" in refused("x" * 5000 + ".csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "absent.csv")
    assert "No such file" in refused(tmp_path / "link.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert "cannot be read" in refused(tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe" in refused(tmp_path / "pipe.csv")
    for empty in ("", " ", "a\0b"):
        assert "expected the path" in refused(empty)


def test_options_that_say_nothing_of_a_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "north.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    assert "sep" in refused(path, sep=";") and "sheet" in refused(path, sheet=0)


def test_options_are_checked() -> None:
    for wrong in (
        {"sep": ";;"}, {"sep": '"'}, {"decimal": ";"}, {"decimal": ",", "thousands": ","}, {"encoding": "utf-9"},
        {"encoding": "base64"}, {"names": []}, {"names": ["a", "a"]}, {"names": "ab"}, {"names": [1]}, {"skiprows": -1},
        {"skiprows": True}, {"sheet": -1}, {"missing": "NA"}, {"missing": [None]}, {"rename": {"a": "c", "b": "c"}},
        {"drop": []}, {"keep": "a"}, {"max_rows": 0}, {"max_bytes": "4 GB"}, {"query": " "}, {"max_rows": None},
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=f"^here: {list(wrong)[-1]}: expected"):
            ReadOptions.from_dict(wrong, "here")
    with pytest.raises(ConfigError, match="Did you mean 'rename'"):
        ReadOptions.from_dict({"renames": {}}, "here")
    given = {"sep": "\t", "missing": {"age": [-999, "?"], "bmi": -1}, "rename": {"a": "b"}, "max_rows": 5}
    assert ReadOptions.from_dict(given, "here").to_dict() == given
    assert ReadOptions(sep=r"\t").to_dict() == {"sep": "\t"} and ReadOptions().to_dict() == {}
