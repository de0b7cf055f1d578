"""Vehicle sensors: small files in both layouts, against the arrays that they were written from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from sensor_files import NODES, cells, text, vehicle_rows, write_events, write_matlab

from fedlit.data.sources import VehicleSensors
from fedlit.errors import DataError


def test_a_matlab_file_gives_each_sensor_its_rows(tmp_path: Path) -> None:
    write_matlab(tmp_path)
    values, labels = vehicle_rows()
    tables = VehicleSensors(str(tmp_path)).tables(seed=3)
    assert [table.name for table in tables] == [f"sensor_{number:02}" for number in range(1, 24)]
    for table, own, label in zip(tables, values, labels, strict=True):
        np.testing.assert_array_equal(table.features.to_numpy(), own)
        assert table.target.tolist() == (label[:, 0] == 1).tolist()
        rows = np.concatenate(list(table.splits.values()))
        assert sorted(rows) == list(range(len(own)))
        assert len(table.splits["test"]) == int(np.ceil(0.33 * len(own)))
    assert tables[0].features.columns[[0, 99]].tolist() == ["feature_001", "feature_100"]
    some = VehicleSensors(str(tmp_path), clients=["sensor_10"]).tables(seed=3)
    assert [table.name for table in some] == ["sensor_10"]
    assert some[0].features.equals(tables[9].features)


def test_the_authors_text_gives_the_same_rows_run_by_run(tmp_path: Path) -> None:
    write_events(tmp_path)
    values, labels = vehicle_rows()
    tables = VehicleSensors(str(tmp_path)).tables(seed=0)
    for table, own, label, node in zip(tables, values, labels, NODES, strict=True):
        order = np.argsort(-label[:, 0], kind="stable")  # aav3 before dw12
        np.testing.assert_allclose(table.features.to_numpy(), own[order], atol=1e-12)
        assert table.target.tolist() == (label[order, 0] == 1).tolist()
        assert table.notes == (f"{table.name}: node {node}",)


def test_a_run_with_one_of_two_files_is_left_out_and_said(tmp_path: Path) -> None:
    write_events(tmp_path, {"events/runs/dw1/n41/dw1feat41_1.txt": text(np.zeros((4, 50)))})
    table = VehicleSensors(str(tmp_path), clients=["sensor_07"]).tables(seed=0)[0]
    assert len(table.features) == 36
    assert table.notes == ("sensor_07: node 41; left out, for they have one of its two files: dw1",)


def test_what_a_system_puts_into_an_archive_is_no_file_of_features(tmp_path: Path) -> None:
    odd = ["__MACOSX/events/runs/aav3/n5/._aav3feat5_1.txt", "events/runs/aav3/n5/.aav3feat5_1.txt.swp"]
    write_events(tmp_path, dict.fromkeys(odd, "no numbers"))
    assert len(VehicleSensors(str(tmp_path)).tables(seed=0)) == 23
    write_events(tmp_path, {"events/runs/aav3/n5/aav3feat5_copy.txt": text(np.zeros((12, 50)))})
    with pytest.raises(DataError, match=r"aav3feat5_2.txt of \d+ lines, aav3feat5_copy.txt of 12 lines"):
        VehicleSensors(str(tmp_path)).tables(seed=0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            text(np.zeros((3, 49))),
            "aav3feat5_2.txt: expected lines of 50 finite numbers, found: invalid column index 49 at row 1",
        ),
        (
            text(np.zeros((3, 50))).replace("0.0", "x.0", 1),
            "feat5_2.txt: expected lines of 50 finite numbers, found: could not convert",
        ),
        (text(np.array([[0.0] * 50, [np.nan] * 50])), "or others, in line 2"),
        (text(np.zeros((3, 53))), "found aav3feat5_1.txt of 12 lines, aav3feat5_2.txt of 3 lines"),
        ("", "feat5_2.txt: expected lines of 50 finite numbers, found line 1 empty"),
    ],
)
def test_damaged_text_is_refused_by_file_and_line(content: str, said: str, tmp_path: Path) -> None:
    write_events(tmp_path, {"events/runs/aav3/n5/aav3feat5_2.txt": content})
    with pytest.raises(DataError) as error:
        VehicleSensors(str(tmp_path)).tables(seed=0)
    assert said in str(error.value)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    path = write_events(tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"event\.zip: expected a whole zip archive"):
        VehicleSensors(str(tmp_path)).tables(seed=0)


def test_matlab_files_of_another_shape_are_refused_by_sensor_and_row(tmp_path: Path) -> None:
    path = write_matlab(tmp_path)
    whole = path.read_bytes()
    values, labels = vehicle_rows()

    def refused(**variables: np.ndarray) -> str:
        savemat(path, variables)
        with pytest.raises(DataError) as error:
            VehicleSensors(str(tmp_path)).tables(seed=0)
        return str(error.value)

    x, y = cells(values), cells(labels)
    assert "KeyError('Y')" in refused(X=x, labels=y)
    assert "expected cell arrays X and Y" in refused(X=values[0], Y=y)
    assert "expected cell arrays X and Y" in refused(X=cells(values[:22]), Y=y)
    assert "expected 23 sensors, found 22" in refused(X=cells(values[:22]), Y=cells(labels[:22]))
    assert "sensor 3: expected finite numbers, X of (rows, 100) and Y of (rows, 1), found (32, 99)" in refused(
        X=cells([*values[:2], values[2][:, 1:], *values[3:]]), Y=y
    )
    odd = [own.copy() for own in labels]
    odd[4][6] = 3
    assert "sensor 5: expected labels -1 and 1, or 0 and 1, in Y, found [-1.0, 1.0, 3.0]" in refused(X=x, Y=cells(odd))
    holes = [own.copy() for own in values]
    holes[22][2, 5] = np.inf
    assert "sensor 23: expected finite numbers" in refused(X=cells(holes), Y=y)
    assert (
        "sensor 1: expected finite numbers, X of (rows, 100) and Y of (rows, 1), found (30, 100) of complex128"
        in refused(X=cells([values[0] + 1j, *values[1:]]), Y=y)
    )
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"vehicle\.mat: expected a whole MATLAB file"):
        VehicleSensors(str(tmp_path)).tables(seed=0)
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(400))
    with pytest.raises(DataError, match=r"save it again in MATLAB"):
        VehicleSensors(str(tmp_path)).tables(seed=0)


def test_where_to_get_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLIT_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDLIT_DATA", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as error:
        VehicleSensors().tables(seed=0)
    said = str(error.value)
    assert "no public address that is verified" in said and "umass.edu" in said
    assert str(tmp_path / "mine" / "vehicle" / "vehicle.mat") in said
