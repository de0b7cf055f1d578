"""Vehicles that pass a network of sensors: one client per sensor."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile
from fedlit.data.sources.base import published
from fedlit.data.sources.recordings import Recording, Recordings
from fedlit.errors import DataError

_HALF = 50
"""The features of each of a sensor's two signals."""
_COLUMNS = [f"feature_{number:03}" for number in range(1, 2 * _HALF + 1)]
_NODE = re.compile(
    r"(?:.*/)?runs/(?P<run>(?:aav|dw)[^/]*)/[a-z](?P<node>\d+)/(?P<file>[^/.][^/]*)", re.IGNORECASE
)
"""A file of one node in one run, such as ``events/runs/aav3/n41/aav3feat41_1.txt``. Folders that
hold the same by kind of signal (``acoustic_1``) do not fit."""


@dataclass(eq=False)
class VehicleSensors(Recordings):
    """Vehicle Sensor Network (Duarte and Hu 2004): 23 sensors are the clients, two kinds of vehicle
    the classes.

    One of two files is read. Neither original was at hand when this was written; the layouts are
    those that public programs read.

    - ``event.zip``, the authors' text files, as the program of iFedAvg (Roschewitz et al. 2021)
      reads them. The folder ``runs/RUN/nNODE/`` has two files with ``feat`` in their names, of
      which the first 50 numbers of each line count; in the order of their names, the first is
      acoustic and the second seismic. A run whose name begins with ``aav`` is of an assault
      amphibious vehicle, label 1; one with ``dw`` is of a dragon wagon, label 0. Sensors are nodes
      in the order of their numbers. A run in which a node has only one of its files is left out
      there, with a note.
    - ``vehicle.mat``, as the program of MOCHA (Smith et al. 2017) reads it: cell arrays ``X`` of
      (rows, 100) and ``Y`` of (rows, 1), one cell per sensor, labels −1 and 1 (or 0 and 1). It does
      not say what its columns and labels are.

    Rows are split by class, at random by the run's seed
    (:func:`~fedlit.data.splitting.random_split`).

    - Clients: sensor_01 to sensor_23.
    - Columns: feature_001 to feature_100, numbers: 50 acoustic, 50 seismic.
    - Target: vehicle, 1 or 0; of event.zip, 1 is an assault amphibious vehicle and 0 a dragon
      wagon.
    - Splits: by class and the run's seed, 33 % test (100 rows at least), then 10 % of the rest
      validation.
    - Licence: none is stated: ask the authors before you share it.
    - Citation: M. F. Duarte and Y. H. Hu (2004). Vehicle classification in distributed sensor
      networks. Journal of Parallel and Distributed Computing 64(7):826-838.

    Args:
        root: the folder to look in first.
        clients: the sensors to read, ``sensor_01`` to ``sensor_23``; all if None.
        test: the share of a sensor's rows that are test rows, in (0, 1); at least 100 rows
            (Roschewitz et al. 2021, Section 4), if a sensor has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = VehicleSensors(clients=["sensor_01", "sensor_10"]).tables(seed=0)
    """

    name: ClassVar[str] = "vehicle"
    known: ClassVar[tuple[str, ...]] = tuple(f"sensor_{number:02}" for number in range(1, 24))
    known_files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            path="vehicle/event.zip",
            url=None,
            sha256=None,
            about="23 sensors, 100 numbers a row: the authors' archive of features",
            alternatives=("vehicle/vehicle.mat",),
            page="http://www.ecs.umass.edu/~mduarte/images/event.zip",
        ),
    )

    def _read(self, path: Path) -> list[Recording]:
        matlab = path.suffix.lower() == ".mat"
        sensors = _of_matlab(path) if matlab else _of_archive(path)
        if len(sensors) != len(self.known):
            raise DataError(
                f"file {path}: expected 23 sensors, found {len(sensors)}; get the original again"
            )
        return sensors


def _recording(values: np.ndarray, labels: np.ndarray, note: str = "") -> Recording:
    import pandas as pd

    features = pd.DataFrame(values, columns=_COLUMNS)
    target = pd.Series(labels.astype(np.int64), name="vehicle")
    return Recording(features, target, note)


# ------------------------------------------------------------------ vehicle.mat


def _of_matlab(path: Path) -> list[Recording]:
    """Read the sensors of a MATLAB file, in its order."""
    from scipy.io import loadmat

    with published(path, "cell arrays X and Y of a MATLAB file up to version 7"):
        cells = loadmat(path, variable_names=["X", "Y"])
        values = [_array(cell) for cell in cells["X"].ravel()]
        labels = [_array(cell).ravel() for cell in cells["Y"].ravel()]
        if not np.isin(np.concatenate(labels), (-1, 0, 1)).all():
            raise ValueError("other labels than -1, 0 and 1")
        return [_recording(x, y == 1) for x, y in zip(values, labels, strict=True)]


def _array(cell: Any) -> np.ndarray:
    dense = cell.toarray() if hasattr(cell, "toarray") else cell  # MATLAB's sparse
    return np.asarray(dense, dtype=np.float64)


# ------------------------------------------------------------------ event.zip


def _of_archive(path: Path) -> list[Recording]:
    """Read the sensors of the authors' archive, in the order of nodes' numbers."""
    with published(path, "a zip archive"):
        archive = zipfile.ZipFile(path)
    with archive:
        sensors = [_of_node(archive, node, runs) for node, runs in sorted(_nodes(archive).items())]
    return [sensor for sensor in sensors if len(sensor.target)]


def _nodes(archive: zipfile.ZipFile) -> dict[int, dict[str, list[str]]]:
    """Find each node's files of features by run, in the order of their names."""
    nodes: dict[int, dict[str, list[str]]] = {}
    for name in sorted(archive.namelist()):
        match = _NODE.fullmatch(name)
        added_by_macos = "__MACOSX" in PurePosixPath(name).parts
        if match and "feat" in match["file"].lower() and not added_by_macos:
            runs = nodes.setdefault(int(match["node"]), {})
            runs.setdefault(match["run"].lower(), []).append(name)
    return nodes


def _of_node(archive: zipfile.ZipFile, node: int, runs: dict[str, list[str]]) -> Recording:
    """Read a node's rows, run by run. As in iFedAvg's program, only runs with both of a node's
    files count.
    """
    values = [np.empty((0, 2 * _HALF))]
    labels = [np.empty(0)]
    incomplete = []
    for run, names in sorted(runs.items()):
        if len(names) == 1:
            incomplete.append(run)
            continue
        halves = [_lines(archive, name) for name in names]
        lengths = [len(half) for half in halves]
        if len(lengths) != 2 or len({*lengths}) != 1:
            head = f"file {archive.filename}, run {run}, node {node}"
            raise DataError(
                f"{head}: expected two files of as many lines, found {lengths}; get the original "
                "again"
            )
        values.append(np.hstack(halves))
        labels.append(np.full(lengths[0], run.startswith("aav")))
    note = f"node {node}"
    if incomplete:
        note += f"; left out, because one of two files is missing: {', '.join(incomplete)}"
    return _recording(np.concatenate(values), np.concatenate(labels), note)


def _lines(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Read the features of a file, (lines, 50): the first numbers of each line."""
    import pandas as pd

    path = Path(str(archive.filename)) / name
    with published(path, f"lines of at least {_HALF} finite numbers"):
        with archive.open(name) as file:
            frame = pd.read_csv(
                file, sep=r"\s+", header=None, usecols=range(_HALF), dtype=np.float64
            )
        if not np.isfinite(frame.to_numpy()).all():
            raise ValueError("others")
    return frame.to_numpy()
