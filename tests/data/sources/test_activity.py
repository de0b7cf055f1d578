"""Human activity: small files in UCI's layout, against plain Python that reads them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from sensor_files import pack, write_activity

from fedlit.data.sources import HumanActivity
from fedlit.data.sources.activity import ACTIVITIES
from fedlit.errors import ConfigError, DataError


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return write_activity(tmp_path)


def plain(top: Path) -> dict[int, tuple[list[list[float]], list[str]]]:
    """Person → rows and activities, in the order of the files."""
    found: dict[int, tuple[list[list[float]], list[str]]] = {}
    for half in ("train", "test"):
        x, y, subject = ((top / half / f"{name}_{half}.txt").read_text().split("\n") for name in ("X", "y", "subject"))
        for row, code, person in zip(x[:-1], y[:-1], subject[:-1], strict=True):
            values, activities = found.setdefault(int(person), ([], []))
            values.append([float(value) for value in row.split()])
            activities.append(ACTIVITIES[int(code) - 1])
    return found


def test_each_person_has_the_rows_of_both_halves(top: Path, tmp_path: Path) -> None:
    tables, expected = HumanActivity(str(tmp_path)).tables(seed=1), plain(top)
    assert [table.name for table in tables] == [f"subject_{person:02}" for person in range(1, 31)]
    for person, table in enumerate(tables, start=1):
        np.testing.assert_array_equal(table.features.to_numpy(), expected[person][0])
        assert table.target.tolist() == expected[person][1]
        assert {split: len(rows) for split, rows in table.splits.items()} == {"train": 54, "validation": 6, "test": 30}
        assert set(table.target.iloc[table.splits["test"]]) == set(ACTIVITIES)  # by activity


def test_names_that_stand_there_several_times_get_their_line(top: Path, tmp_path: Path) -> None:
    columns = HumanActivity(str(tmp_path), ["subject_03"]).tables(seed=0)[0].features.columns.tolist()
    energy = "fBodyAcc-bandsEnergy()-1,8"
    twice = [f"{energy} #{line}" for line in (3, 4, 5)]
    assert columns == ["tBodyAcc-mean()-X", "tBodyAcc-mean()-Y", *twice, "angle(X,g)"]


def test_the_archive_and_an_archive_of_it_give_the_same(top: Path, tmp_path: Path) -> None:
    unpacked = HumanActivity(str(tmp_path), ["subject_30"]).tables(seed=0)[0]
    packed = pack(top, tmp_path / "UCI HAR Dataset.zip")
    inner = tmp_path / "uci"
    inner.mkdir()
    with zipfile.ZipFile(inner / "human+activity+recognition+using+smartphones.zip", "w") as archive:
        archive.write(packed, "UCI HAR Dataset.zip")
        archive.writestr("UCI HAR Dataset.names", "what it is")
    deep = tmp_path / "deep"
    deep.mkdir()
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(deep / "UCI HAR Dataset.zip", "w") as more:
        for name in archive.namelist():
            more.writestr(f"download/{name}", b"\xef\xbb\xbf" * name.endswith("features.txt") + archive.read(name))
    for root in (tmp_path, inner, deep, top):
        table = HumanActivity(str(root), ["subject_30"]).tables(seed=0)[0]
        assert table.features.equals(unpacked.features) and table.target.equals(unpacked.target)


def test_sitting_against_all_others(top: Path, tmp_path: Path) -> None:
    table = HumanActivity(str(tmp_path), ["subject_02"], positive=["SITTING"]).tables(seed=0)[0]
    assert table.target.tolist() == [int(activity == "SITTING") for activity in plain(top)[2][1]]
    for wrong in (["SLEEPING"], [], list(ACTIVITIES), "SITTING"):
        with pytest.raises(ConfigError, match="positive: expected a list of some of WALKING"):
            HumanActivity(positive=wrong)


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("train/X_train.txt", "e", "?", "X_train.txt: expected lines of 6 finite numbers, found: "),
        ("test/X_test.txt", "  ", "", "X_test.txt: expected lines of 6 finite numbers, found: "),
        ("test/y_test.txt", "1", "7", "with 7 in line 1"),
        ("train/subject_train.txt", "2\n", "2.5\n", "with 2.5 in line 2"),
        ("train/subject_train.txt", "1\n", "", "subject_train.txt: expected 1,890 lines"),
        (
            "train/subject_train.txt",
            "1\n",
            "\n",
            "subject_train.txt: expected lines of 1 finite numbers, found line 1 empty",
        ),
        ("features.txt", "2 ", "3 ", "features.txt, line 2: expected the number 2 and a name"),
        ("features.txt", "6 angle(X,g)\n", "", "X_train.txt: expected lines of 5 finite numbers, found 6 fields"),
        ("activity_labels.txt", "SITTING", "LYING", "activity_labels.txt: expected 1 to 6 for WALKING"),
    ],
)
def test_damage_is_refused_by_file_and_line(
    file: str, old: str, new: str, said: str, top: Path, tmp_path: Path
) -> None:
    path = top / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError) as error:
        HumanActivity(str(tmp_path)).tables(seed=0)
    assert said in str(error.value)


def test_a_file_that_is_not_there_or_is_no_text(top: Path, tmp_path: Path) -> None:
    (top / "test" / "y_test.txt").write_bytes(b"\xff\xfe1\n")
    with pytest.raises(DataError, match=r"y_test\.txt: expected a whole text file"):
        HumanActivity(str(tmp_path)).tables(seed=0)
    (top / "test" / "y_test.txt").unlink()
    with pytest.raises(DataError, match=r"y_test\.txt: expected a whole text file"):
        HumanActivity(str(tmp_path)).tables(seed=0)


def test_a_damaged_member_of_the_archive_is_named(top: Path, tmp_path: Path) -> None:
    path = pack(top, tmp_path / "UCI HAR Dataset.zip")
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("UCI HAR Dataset/train/X_train.txt").header_offset + 2000
    content = bytearray(path.read_bytes())
    content[begin : begin + 20] = bytes(20)
    path.write_bytes(content)
    (top / "features.txt").unlink()  # so that the archive is what is found
    with pytest.raises(DataError, match=r"X_train\.txt: expected a whole text file"):
        HumanActivity(str(tmp_path)).tables(seed=0)
