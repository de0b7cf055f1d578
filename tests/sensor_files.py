"""Small files in the layouts of the two sensor data sets; what they hold can be told from their
position."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.io import savemat

from fedlit.data.sources.recordings import ACTIVITIES

NODES = (1, 2, 3, 4, 5, 6, 41, 42, *range(46, 57), 58, 59, 60, 61)
"""The nodes of the network, as the authors' readme lists them."""


def vehicle_rows(rows: int = 30, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of 23 sensors features (rows + sensor, 100) and labels -1 or 1 (…, 1), which the first
    feature tells."""
    draw = np.random.default_rng(seed)
    labels = [
        np.where(np.arange(rows + sensor) % 3 == 0, 1.0, -1.0)[:, None] for sensor in range(23)
    ]
    values = [draw.normal(size=(len(own), 100)).round(3) for own in labels]
    for own, label in zip(values, labels, strict=True):
        own[:, 0] += 2 * label[:, 0]
    return values, labels


def cells(parts: list[np.ndarray]) -> np.ndarray:
    """As MATLAB's cell array of one column."""
    found = np.empty((len(parts), 1), dtype=object)
    found[:, 0] = parts
    return found


def write_matlab(folder: Path) -> Path:
    values, labels = vehicle_rows()
    path = folder / "vehicle" / "vehicle.mat"
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"X": cells(values), "Y": cells(labels)})
    return path


def text(values: np.ndarray) -> str:
    return (
        "\n".join("  ".join(f"{value:.7e}" for value in row) for row in np.atleast_2d(values))
        + "\n"
    )


def write_events(folder: Path, more: Mapping[str, str] | None = None) -> Path:
    """The authors' archive of text files: two runs of each node; ``more`` replaces files or adds
    some."""
    values, labels = vehicle_rows()
    files = {"events/readme.txt": "features"}
    for node, sensor, label in zip(NODES, values, labels, strict=True):
        for run, sign in (("aav3", 1), ("dw12", -1)):
            rows = sensor[label[:, 0] == sign]
            for kind, half in ((1, rows[:, :50]), (2, rows[:, 50:])):
                # lines have more than the 50 numbers that count
                wide = np.hstack([half, np.zeros((len(half), 3))])
                files[f"events/runs/{run}/n{node}/{run}feat{node}_{kind}.txt"] = text(wide)
                files[f"events/runs/{run}/n{node}/{run}spec{node}_{kind}.txt"] = "other numbers"
            files[f"events/runs/{run}/acoustic_1/{run}feat{node}_1.txt"] = (
                "the same by kind of signal"
            )
    path = folder / "vehicle" / "event.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | dict(more or {})).items():
            archive.writestr(name, content)
    return path


def write_activity(folder: Path, rows: int = 90, columns: int = 6) -> Path:
    """The unpacked folder of UCI's set: people 1 to 21 in the training half, the others in the test
    half."""
    draw = np.random.default_rng(1)
    top = folder / "activity" / "UCI HAR Dataset"
    names = [
        "tBodyAcc-mean()-X",
        "tBodyAcc-mean()-Y",
        *["fBodyAcc-bandsEnergy()-1,8"] * (columns - 3),
        "angle(X,g)",
    ]
    for half, people in (("train", range(1, 22)), ("test", range(22, 31))):
        (top / half).mkdir(parents=True, exist_ok=True)
        # in turn, as no reader may expect a person's rows in one piece
        subjects = np.tile(np.array(people), rows)
        activities = np.repeat(np.arange(rows) % 6 + 1, len(people))
        values = draw.uniform(-1, 1, size=(len(subjects), columns))
        values[:, 0] = activities / 6
        for name, numbers in (
            ("X", values),
            ("y", activities[:, None]),
            ("subject", subjects[:, None]),
        ):
            lines = (
                text(numbers)
                if name == "X"
                else "\n".join(str(int(n)) for n in numbers[:, 0]) + "\n"
            )
            (top / half / f"{name}_{half}.txt").write_text(lines)
    (top / "features.txt").write_text(
        "".join(f"{i} {name}\n" for i, name in enumerate(names, start=1))
    )
    (top / "activity_labels.txt").write_text(
        "".join(f"{i} {name}\n" for i, name in enumerate(ACTIVITIES, start=1))
    )
    return top
