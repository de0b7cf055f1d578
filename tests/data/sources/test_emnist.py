"""EMNIST by class, from small files in the layouts in which it is published."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from emnist_files import ROWS, Half, write_csv, write_idx

from fedlit.data.module import FederatedData
from fedlit.data.sources.emnist import CHARACTERS, EMNIST
from fedlit.errors import DataError

LAYOUTS: dict[str, Callable[[Path, str], Half]] = {
    "gz": write_idx,
    "idx": lambda folder, half: write_idx(folder, half, packed=False),
    "csv": write_csv,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_are_upright_and_labels_characters(layout: str, tmp_path: Path) -> None:
    train, labels = LAYOUTS[layout](tmp_path, "train")
    test, _ = LAYOUTS[layout](tmp_path, "test")
    (table,) = EMNIST(str(tmp_path)).tables(seed=0)
    np.testing.assert_array_equal(
        table.features.to_numpy().reshape(-1, 28, 28), np.concatenate([train, test])
    )
    assert table.features["pixel_02_05"].iloc[3] == train[3, 1, 4]
    assert table.target.tolist()[:124] == [CHARACTERS[label] for label in labels]
    assert len(set(table.target)) == 62
    splits = table.splits
    assert len(splits["validation"]) == 25 and splits["test"].tolist() == list(range(124, 186))
    assert sorted([*splits["train"], *splits["validation"]]) == list(range(124))


def test_every_layout_gives_the_same_tensors(tmp_path: Path) -> None:
    tensors = []
    for layout, write in LAYOUTS.items():
        folder = tmp_path / layout
        folder.mkdir()
        for half in ROWS:
            write(folder, half)
        data = FederatedData(EMNIST(str(folder)), seed=1, scaling="none")
        data.setup("fit")
        (batches,) = data.train_dataloader().iterables.values()
        tensors.append(next(iter(batches)))
    for other in tensors[1:]:
        assert torch.equal(tensors[0].x, other.x) and torch.equal(tensors[0].y, other.y)


@pytest.mark.parametrize(
    "harm", [lambda data: data[:-3], lambda data: b"\0\0\x09" + data[3:], lambda data: data[:7]]
)
def test_a_damaged_idx_file_is_named(harm: Callable[[bytes], bytes], tmp_path: Path) -> None:
    for half in ROWS:
        write_idx(tmp_path, half, packed=False)
    path = tmp_path / "emnist" / "emnist-byclass-test-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(harm(whole))
    with pytest.raises(DataError, match="test-images-idx3"):
        EMNIST(str(tmp_path)).tables(seed=0)
    path.unlink()
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(whole)[:-9])
    with pytest.raises(DataError, match="test-images-idx3"):
        EMNIST(str(tmp_path)).tables(seed=0)


@pytest.mark.parametrize(
    ("old", "new"), [(",", ";"), (",", ",256,"), ("0,", "62,"), ("0,", "?,"), ("0,", "")]
)
def test_a_damaged_csv_file_is_named(old: str, new: str, tmp_path: Path) -> None:
    for half in ROWS:
        write_csv(tmp_path, half)
    path = tmp_path / "emnist" / "emnist-byclass-train.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=r"byclass-train\.csv"):
        EMNIST(str(tmp_path)).tables(seed=0)


def test_a_missing_file_is_named_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLIT_CACHE", str(tmp_path / "cache"))
    write_csv(tmp_path, "train")
    with pytest.raises(
        DataError, match=r"emnist/emnist-byclass-test-images.*emnist-byclass-test\.csv"
    ):
        EMNIST(str(tmp_path)).tables(seed=0)
