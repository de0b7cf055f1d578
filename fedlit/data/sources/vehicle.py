"""Vehicles that pass a network of sensors: one client per sensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable

_COLUMNS = 100


@dataclass(eq=False)
class VehicleSensors(Source):
    """Vehicle Sensor Network (Duarte and Hu 2004): 23 sensors are the clients, two kinds of vehicle the classes.

    The file is ``vehicle.mat`` in the layout that the code of MOCHA (Smith et al. 2017) reads: cell arrays ``X`` of
    (rows, 100) and ``Y`` of (rows, 1), one cell per sensor, labels −1 and 1 (or 0 and 1). The original file has not
    been tried.

    50 features are acoustic and 50 seismic. The file says neither which half is which nor which vehicle label 1 means,
    so columns are numbered and labels are 0 and 1. Rows are split by class, at random by the run's seed
    (:func:`~fedlit.data.splitting.random_split`).

    - Clients: sensor_01 to sensor_23.
    - Columns: feature_001 to feature_100, numbers: 50 acoustic, 50 seismic.
    - Target: vehicle, 1 or 0: an assault amphibious vehicle or a dragon wagon; the file does not say which is 1.
    - Splits: by class and the run's seed, 33 % test (100 rows at least), then 10 % of the rest validation.
    - Licence: none is stated: ask the authors before you share it.
    - Citation: M. F. Duarte and Y. H. Hu (2004). Vehicle classification in distributed sensor networks. Journal of
      Parallel and Distributed Computing 64(7):826-838.

    Args:
        root: the folder to look in first.
        clients: the sensors to read, ``sensor_01`` to ``sensor_23``; all if None.
        test: the share of a sensor's rows that are test rows, in (0, 1); at least 100 rows (Roschewitz et al. 2021,
            Section 4), if a sensor has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = VehicleSensors(clients=["sensor_01", "sensor_10"]).tables(seed=0)
    """

    name: ClassVar[str] = "vehicle"
    about: ClassVar[str] = "two kinds of vehicle, recorded by 23 acoustic and seismic sensors; each sensor is a client"
    known: ClassVar[tuple[str, ...]] = tuple(f"sensor_{number:02}" for number in range(1, 24))

    root: str | None = None
    clients: Sequence[str] | None = None
    test: float = 0.33
    validation: float = 0.1

    @classmethod
    def known_files(cls) -> tuple[RemoteFile, ...]:
        """Return the one file."""
        about = "23 sensors, 100 numbers a row, as MOCHA's MATLAB file"
        return (RemoteFile("vehicle/vehicle.mat", None, None, about, page="https://github.com/gingsmith/fmtl"),)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        import pandas as pd

        sensors = self._read(locate(self.known_files()[0], self.root))
        tables = []
        for client in self.clients or ():
            values, labels = sensors[self.known.index(client)]
            tables.append(
                ClientTable(
                    name=client,
                    features=pd.DataFrame(values, columns=[f"feature_{n:03}" for n in range(1, _COLUMNS + 1)]),
                    target=pd.Series(labels, name="vehicle"),
                    splits=random_split(len(labels), seed, self.test, self.validation, client, labels, least=100),
                    positive=1,
                )
            )
        return check_tables(tables)

    def _read(self, path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the features (rows, 100) and the labels 0 or 1 (rows,) of each sensor, in the order of the file."""
        from scipy.io import loadmat

        with published(path, f"cell arrays X and Y of {len(self.known)} sensors, of a MATLAB file up to version 7"):
            cells = loadmat(path, variable_names=["X", "Y"])
            x, y = (list(map(_array, cells[name].ravel())) for name in ("X", "Y"))
            if not len(x) == len(y) == len(self.known):
                raise ValueError(f"{len(x)} and {len(y)} sensors")
            for own, labels in zip(x, y, strict=True):
                fits = own.shape == (labels.size, _COLUMNS) and np.isfinite(own).all()
                if not fits or not set(labels.flat) <= {-1.0, 0.0, 1.0}:
                    raise ValueError(f"X of {own.shape} and Y of {labels.shape}, or other numbers or labels")
        return [(own, (labels.ravel() == 1).astype(np.int64)) for own, labels in zip(x, y, strict=True)]


def _array(cell: Any) -> np.ndarray:
    return np.asarray(cell.toarray() if hasattr(cell, "toarray") else cell, dtype=np.float64)  # MATLAB's sparse
