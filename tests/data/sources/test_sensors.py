"""Vehicle sensors and human activity: small files in their layouts, against what they were written from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from sensor_files import cells, vehicle_rows, write_activity, write_matlab

from fedlit.data.sources import HumanActivity, VehicleSensors
from fedlit.data.sources.activity import ACTIVITIES
from fedlit.errors import ConfigError, DataError

ENERGY = "fBodyAcc-bandsEnergy()-1,8"


def test_vehicle_of_a_matlab_file(tmp_path: Path) -> None:
    values, labels = vehicle_rows()
    write_matlab(tmp_path)
    tables = VehicleSensors(str(tmp_path)).tables(seed=3)
    assert [table.name for table in tables] == [f"sensor_{number:02}" for number in range(1, 24)]
    for table, own, label in zip(tables, values, labels, strict=True):
        np.testing.assert_array_equal(table.features.to_numpy(), own)
        assert table.target.tolist() == (label[:, 0] == 1).tolist()
        assert sorted(np.concatenate(list(table.splits.values()))) == list(range(len(own)))
        assert len(table.splits["test"]) == int(np.ceil(0.33 * len(own)))
    assert tables[0].features.columns[[0, 99]].tolist() == ["feature_001", "feature_100"]
    (some,) = VehicleSensors(str(tmp_path)).some(["sensor_10"], seed=3)
    assert some.features.equals(tables[9].features)


def test_damaged_matlab_files_are_refused(tmp_path: Path) -> None:
    path = write_matlab(tmp_path)
    half = path.read_bytes()[: path.stat().st_size // 2]
    values, labels = vehicle_rows()
    x, y = cells(values), cells(labels)
    for variables in (
        {"X": x, "labels": y},
        {"X": cells([values[0][:, 1:], *values[1:]]), "Y": y},
        {"X": x, "Y": cells([3 * labels[0], *labels[1:]])},
        {"X": cells([np.full_like(values[0], np.inf), *values[1:]]), "Y": y},
        half,
    ):
        if isinstance(variables, bytes):
            path.write_bytes(variables)
        else:
            savemat(path, variables)
        with pytest.raises(DataError, match=r"vehicle\.mat: expected"):
            VehicleSensors(str(tmp_path)).tables(seed=0)


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


def test_activity_of_the_unpacked_folder(tmp_path: Path) -> None:
    top = write_activity(tmp_path)
    tables, expected = HumanActivity(str(tmp_path)).tables(seed=1), plain(top)
    assert [table.name for table in tables] == [f"subject_{person:02}" for person in range(1, 31)]
    for person, table in enumerate(tables, start=1):
        np.testing.assert_array_equal(table.features.to_numpy(), expected[person][0])
        assert table.target.tolist() == expected[person][1]
        assert {split: len(rows) for split, rows in table.splits.items()} == {"train": 54, "validation": 6, "test": 30}
        assert set(table.target.iloc[table.splits["test"]]) == set(ACTIVITIES)  # by activity
    twice = [f"{ENERGY} #{line}" for line in (3, 4, 5)]
    assert list(tables[2].features) == ["tBodyAcc-mean()-X", "tBodyAcc-mean()-Y", *twice, "angle(X,g)"]
    (sitting,) = HumanActivity(str(tmp_path), ["subject_02"], positive=["SITTING"]).tables(seed=0)
    assert sitting.target.tolist() == [int(activity == "SITTING") for activity in expected[2][1]]
    for wrong in (["SLEEPING"], [], list(ACTIVITIES), "SITTING"):
        with pytest.raises(ConfigError, match="positive: expected"):
            HumanActivity(positive=wrong)


def changed(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text().replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "harm", "word"),
    [
        ("train/X_train.txt", changed("e", "?"), "X_train.txt: expected lines of 6"),
        ("test/y_test.txt", changed("1", "7"), "an activity from 1 to 6"),
        ("train/subject_train.txt", changed("2\n", "2.5\n"), "a subject from 1 to 30"),
        ("train/subject_train.txt", changed("1\n", ""), "a subject from 1 to 30"),
        ("features.txt", changed("6 angle(X,g)\n", ""), "X_train.txt: expected lines of 5"),
        ("test/y_test.txt", Path.unlink, "y_test.txt: expected lines of 1"),
    ],
)
def test_damaged_activity_is_refused_by_file(
    file: str, harm: Callable[[Path], object], word: str, tmp_path: Path
) -> None:
    top = write_activity(tmp_path)
    harm(top / file)
    with pytest.raises(DataError, match=word):
        HumanActivity(str(tmp_path)).tables(seed=0)
