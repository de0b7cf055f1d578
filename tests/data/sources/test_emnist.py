"""EMNIST by class, from IDX files as they are published."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fedlit.data.sources.emnist import CHARACTERS, EMNIST
from fedlit.errors import DataError


def write(folder: Path, split: str, rows: int, packed: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    upright, labels = rng.integers(0, 256, (rows, 28, 28), np.uint8), np.arange(rows, dtype=np.uint8) % 62
    files = {
        "images-idx3": b"\0\0\x08\x03"
        + np.array(upright.shape, ">u4").tobytes()
        + upright.transpose(0, 2, 1).tobytes(),
        "labels-idx1": b"\0\0\x08\x01" + np.array(labels.shape, ">u4").tobytes() + labels.tobytes(),
    }
    folder.mkdir(exist_ok=True)
    for kind, data in files.items():
        path = folder / f"emnist-byclass-{split}-{kind}-ubyte"
        path.with_name(path.name + ".gz" * packed).write_bytes(gzip.compress(data) if packed else data)
    return upright, labels


@pytest.mark.parametrize("packed", [True, False])
def test_images_are_upright_and_labels_characters(packed: bool, tmp_path: Path) -> None:
    train, labels = write(tmp_path / "emnist", "train", 124, packed)
    test, _ = write(tmp_path / "emnist", "test", 10, packed)
    (table,) = EMNIST(str(tmp_path)).tables(seed=0)
    np.testing.assert_array_equal(table.features.to_numpy()[:124].reshape(-1, 28, 28), train)
    np.testing.assert_array_equal(table.features.to_numpy()[124:].reshape(-1, 28, 28), test)
    assert table.features["pixel_02_05"].iloc[3] == train[3, 1, 4]
    assert table.target.tolist()[:124] == [CHARACTERS[label] for label in labels] and len(set(table.target)) == 62
    splits = table.splits
    assert len(splits["validation"]) == 25 and splits["test"].tolist() == list(range(124, 134))
    assert sorted([*splits["train"], *splits["validation"]]) == list(range(124))


@pytest.mark.parametrize("harm", [lambda data: data[:-3], lambda data: b"\0\0\x09" + data[3:], lambda data: data[:7]])
def test_a_damaged_file_is_refused_by_its_name(harm, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for split in ("train", "test"):
        write(tmp_path / "emnist", split, 5, False)
    path = tmp_path / "emnist" / "emnist-byclass-test-images-idx3-ubyte"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(DataError, match="test-images-idx3"):
        EMNIST(str(tmp_path)).tables(seed=0)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(b"1234" * 99)[:-9])
    with pytest.raises(DataError, match="test-images-idx3"):
        EMNIST(str(tmp_path)).tables(seed=0)
