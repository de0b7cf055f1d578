"""Vehicles that pass a network of sensors: one client a sensor."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_fractions, check_tables, choose_clients, random_split
from fedlit.data.sources.numbers import Place, open_place, read_numbers
from fedlit.data.table import ClientTable
from fedlit.errors import DataError

__all__ = ["VehicleSensors"]

_SENSORS = tuple(f"sensor_{number:02}" for number in range(1, 24))
_HALF = 50  # features of each of the two signals
_FEATURES = tuple(f"feature_{number:03}" for number in range(1, 2 * _HALF + 1))
# events/runs/aav3/n41/…: a run's folder is named after its vehicle, a node's after its number
_NODE = re.compile(r"(?:.*/)?runs/(?P<run>(?:aav|dw)[^/]*)/[a-z](?P<node>\d+)/[^/]*feat[^/]*", re.IGNORECASE)

Rows = tuple[np.ndarray, np.ndarray, str]
"""A sensor's features (rows, 100), labels 0 or 1 (rows,), and a note."""


class VehicleSensors(Source):
    """Vehicle Sensor Network (Duarte and Hu 2004): 23 sensors are the clients, two kinds of vehicle the classes.

    Two files are read, in the layouts that public programs state or read. Neither has been tried on the original:

    - ``vehicle.mat`` as the programs of MOCHA (Smith et al. 2017) read it: cell arrays ``X`` of (rows, 100) and ``Y``
      of (rows, 1), one cell a sensor, labels −1 and 1 (or 0 and 1);
    - ``event.zip``, the authors' own text files, as iFedAvg's program reads them: in ``runs/RUN/NODE/`` two files with
      ``feat`` in their names, of which the first 50 numbers of each line count. Label 1 is a run whose name begins
      with ``aav`` (an assault amphibious vehicle), 0 one with ``dw`` (a dragon wagon). Sensors are the nodes in the
      order of their numbers; a node's two files are taken in the order of their names.

    50 features are of sound, 50 of the ground's motion. No file says which half is which, and ``vehicle.mat`` does not
    say which vehicle 1 is, so columns are numbered and labels are 0 and 1. Rows are split by class, at random by the
    run's seed (:func:`~fedlit.data.sources.base.random_split`).

    - Clients: sensor_01 to sensor_23.
    - Columns: feature_001 to feature_100, numbers: 50 of sound, 50 of the ground's motion.
    - Target: vehicle, 1 or 0; of event.zip 1 is an assault amphibious vehicle (AAV), 0 a dragon wagon (DW).
    - Splits: by class and the run's seed, 33 % test (100 rows at least), then 10 % of the rest validation.
    - Licence: none is stated: ask the authors before you pass it on.
    - Citation: M. F. Duarte and Y. H. Hu (2004). Vehicle classification in distributed sensor networks. Journal of
      Parallel and Distributed Computing 64(7):826-838.

    Args:
        root: a folder in which the file is looked for first.
        clients: the sensors to read, ``sensor_01`` to ``sensor_23``; all if None.
        test: the share of a sensor's rows that are test rows, in (0, 1); 100 rows at least (Roschewitz et al. 2021,
            Section 4), where a sensor has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = VehicleSensors(clients=["sensor_01", "sensor_10"]).tables(seed=0)
    """

    name: ClassVar[str] = "vehicle"
    about: ClassVar[str] = "two kinds of vehicle, heard and felt by 23 sensors; each sensor is a client"

    def __init__(
        self,
        root: str | None = None,
        clients: Sequence[str] | None = None,
        test: float = 0.33,
        validation: float = 0.1,
    ) -> None:
        check_fractions(test, validation)
        self.root = root
        self.clients = choose_clients(clients, _SENSORS, self.name)
        self.test, self.validation = test, validation

    @classmethod
    def files(cls) -> tuple[RemoteFile, ...]:
        """The one file, in either layout."""
        return (
            RemoteFile(
                path="vehicle/vehicle.mat",
                url=None,
                sha256=None,
                about="23 sensors, 100 numbers a row, as MOCHA's MATLAB file or the authors' event.zip",
                page="http://www.ecs.umass.edu/~mduarte/images/event.zip",
                alternatives=("vehicle/event.zip",),
            ),
        )

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        import pandas as pd

        path = locate(self.files()[0], self.root)
        sensors = _of_matlab(path) if path.suffix.lower() == ".mat" else _of_text(path)
        if len(sensors) != len(_SENSORS):
            raise DataError(f"file {path}: expected {len(_SENSORS)} sensors, found {len(sensors)}. Get it again.")
        tables = []
        for client in self.clients:
            values, labels, note = sensors[_SENSORS.index(client)]
            tables.append(
                ClientTable(
                    name=client,
                    features=pd.DataFrame(values, columns=list(_FEATURES)),
                    target=pd.Series(labels, name="vehicle"),
                    splits=random_split(len(labels), seed, self.test, self.validation, client, labels, least=100),
                    positive=1,
                    notes=(f"{client}: {note}",) if note else (),
                )
            )
        return check_tables(tables)


def _of_matlab(path: Path) -> list[Rows]:
    """The sensors of a MATLAB file, in its order."""
    from scipy.io import loadmat

    try:
        cells = loadmat(path, variable_names=["X", "Y"])
        found = [
            tuple(_array(own) for own in pair) for pair in zip(cells["X"].ravel(), cells["Y"].ravel(), strict=True)
        ]
        for x, y in found:
            if x.shape != (y.size, len(_FEATURES)) or not np.isfinite(x).all() or not set(y.flat) <= {-1.0, 0.0, 1.0}:
                raise ValueError(f"X of {x.shape} and Y of {y.shape}, or other numbers or labels")
    except Exception as error:  # of a damaged file the reader raises classes of many modules
        raise DataError(
            f"file {path}: expected cell arrays X and Y of a MATLAB file up to version 7, found: {error}. Get it again."
        ) from error
    return [(x, (y.ravel() == 1).astype(np.int64), "") for x, y in found]


def _array(cell: Any) -> np.ndarray:
    return np.asarray(cell.toarray() if hasattr(cell, "toarray") else cell, dtype=np.float64)  # MATLAB's sparse


def _of_text(path: Path) -> list[Rows]:
    """The sensors of the authors' text files, in the order of nodes' numbers; rows in the order of runs' names."""
    top = open_place(path)
    assert isinstance(top, zipfile.Path)
    nodes: dict[int, dict[str, list[Place]]] = {}
    for name in sorted(top.root.namelist()):
        hidden = any(re.fullmatch(r"__MACOSX|\.[^.].*", part) for part in name.split("/"))  # of no author's making
        if not hidden and (match := _NODE.fullmatch(name)):
            nodes.setdefault(int(match["node"]), {}).setdefault(match["run"].lower(), []).append(top / name)
    sensors = [_of_node(path, node, runs) for node, runs in sorted(nodes.items())]
    return [rows for rows in sensors if len(rows[1])]


def _of_node(path: Path, node: int, runs: dict[str, list[Place]]) -> Rows:
    """A node's rows: of the runs that have both of its files, as in iFedAvg's program."""
    values, labels = [np.empty((0, 2 * _HALF))], [np.empty(0, np.int64)]
    for run, files in sorted(runs.items()):
        halves = [read_numbers(file, _HALF, more=True) for file in files] if len(files) > 1 else []
        if len(halves) > 2 or len({len(half) for half in halves}) > 1:
            raise DataError(f"file {path}, run {run}, node {node}: expected two files of as many lines, found others.")
        if halves:
            values.append(np.hstack(halves))
            labels.append(np.full(len(halves[0]), int(run.startswith("aav")), dtype=np.int64))
    left = sorted(run for run, files in runs.items() if len(files) < 2)
    note = f"node {node}" + (f"; left out, for they have one of its two files: {', '.join(left)}" if left else "")
    return np.concatenate(values), np.concatenate(labels), note
