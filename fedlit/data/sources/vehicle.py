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

Rows = tuple[np.ndarray, np.ndarray, tuple[str, ...]]
"""A sensor's features (rows, 100), labels 0 or 1 (rows,), and what a person should know of them."""


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
    layout: ClassVar[str] = (
        "Clients: sensor_01 to sensor_23.\n"
        "Columns: feature_001 to feature_100, numbers: 50 of sound, 50 of the ground's motion.\n"
        "Target: vehicle, 1 or 0; of event.zip 1 is an assault amphibious vehicle (AAV), 0 a dragon wagon (DW).\n"
        "Splits: by class and the run's seed, 33 % test (100 rows at least), then 10 % of the rest validation."
    )
    licence: ClassVar[str] = "none is stated: ask the authors before you pass it on."
    citation: ClassVar[str] = (
        "M. F. Duarte and Y. H. Hu (2004). Vehicle classification in distributed sensor networks. Journal of Parallel\n"
        "  and Distributed Computing 64(7):826-838."
    )

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
            values, labels, notes = sensors[_SENSORS.index(client)]
            tables.append(
                ClientTable(
                    name=client,
                    features=pd.DataFrame(values, columns=list(_FEATURES)),
                    target=pd.Series(labels, name="vehicle"),
                    splits=random_split(len(labels), seed, self.test, self.validation, client, labels, least=100),
                    positive=1,
                    notes=tuple(f"{client}: {note}" for note in notes),
                )
            )
        return check_tables(tables)


def _of_matlab(path: Path) -> list[Rows]:
    """The sensors of a MATLAB file, in its order."""
    from scipy.io import loadmat

    try:
        cells = [loadmat(path, variable_names=["X", "Y"])[name].ravel() for name in ("X", "Y")]
    except Exception as error:  # of a damaged file the reader raises classes of many modules
        raise DataError(
            f"file {path}: expected a whole MATLAB file up to version 7 with X and Y, found: {error!r}. Get it again, "
            "or save it again in MATLAB: save('vehicle.mat', 'X', 'Y', '-v7')."
        ) from error
    if any(cell.dtype != object for cell in cells) or len(cells[0]) != len(cells[1]):
        raise DataError(f"file {path}: expected cell arrays X and Y, each with one cell a sensor, found others.")
    return [
        _checked(f"file {path}, sensor {number}", x, y) for number, (x, y) in enumerate(zip(*cells, strict=True), 1)
    ]


def _checked(where: str, x: Any, y: Any) -> Rows:
    x, y = (np.asarray(part.toarray() if hasattr(part, "toarray") else part) for part in (x, y))  # MATLAB's sparse
    shaped = x.ndim == 2 and x.shape[1] == len(_FEATURES) and y.size == len(x) > 0
    if not shaped or {x.dtype.kind, y.dtype.kind} - set("iufb") or not np.isfinite(x).all():
        raise DataError(
            f"{where}: expected finite numbers, X of (rows, {len(_FEATURES)}) and Y of (rows, 1), found {x.shape} of "
            f"{x.dtype} and {y.shape} of {y.dtype}. Get it again."
        )
    labels = set(y.ravel().tolist())
    if not (labels <= {-1, 1} or labels <= {0, 1}):
        raise DataError(f"{where}: expected labels -1 and 1, or 0 and 1, in Y, found {sorted(labels)}. Get it again.")
    return x.astype(np.float64), (y.ravel() == 1).astype(np.int64), ()


def _of_text(path: Path) -> list[Rows]:
    """The sensors of the authors' text files, in the order of nodes' numbers; rows in the order of runs' names."""
    top = open_place(path)
    assert isinstance(top, zipfile.Path)
    nodes: dict[int, dict[str, list[Place]]] = {}
    for name in sorted(top.root.namelist()):
        hidden = any(re.fullmatch(r"__MACOSX|\.[^.].*", part) for part in name.split("/"))  # of no author's making
        if not hidden and (match := _NODE.fullmatch(name)):
            nodes.setdefault(int(match["node"]), {}).setdefault(match["run"].lower(), []).append(top / name)
    if not nodes:
        raise DataError(
            f"file {path}: expected files with feat in their names in events/runs/RUN/NODE/, RUN beginning with aav "
            "or dw, found none. Take the authors' event.zip, or MOCHA's vehicle.mat."
        )
    sensors = {node: _of_node(path, node, runs) for node, runs in sorted(nodes.items())}
    return [rows for rows in sensors.values() if rows is not None]


def _of_node(path: Path, node: int, runs: dict[str, list[Place]]) -> Rows | None:
    """A node's rows; None if no run has both of its files, as in iFedAvg's program."""
    values, labels = [], []
    for run, files in sorted(runs.items()):
        if len(files) < 2:
            continue
        halves = [read_numbers(file, _HALF, more=True) for file in files]
        if len(files) > 2 or len(halves[0]) != len(halves[1]):
            found = ", ".join(f"{file.name} of {len(half):,} lines" for file, half in zip(files, halves, strict=True))
            raise DataError(
                f"file {path}, run {run}, node {node}: expected two files of as many lines, found {found}. Take out "
                "what is not the authors', or get the archive again."
            )
        values.append(np.hstack(halves))
        labels.append(np.full(len(halves[0]), int(run.startswith("aav")), dtype=np.int64))
    left = sorted(run for run, files in runs.items() if len(files) < 2)
    notes = (f"node {node}; left out, for they have one of its two files: {', '.join(left)}",) if left else ()
    return (np.concatenate(values), np.concatenate(labels), notes or (f"node {node}",)) if values else None
