"""Recordings of sensors: human activity, one client per person, and vehicles that pass, one client per sensor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import expect

if TYPE_CHECKING:
    import pandas as pd

ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
"""The activities, in the order of the file's numbers 1 to 6."""
_COLUMNS = 100


@dataclass(eq=False)
class _Recordings(Source):
    """Clients whose rows are split by class, at random by the run's seed."""

    root: str | None = None
    clients: Sequence[str] | None = None
    test: float = 0.33
    validation: float = 0.1

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        clients, tables = self._read(locate(self.known_files[0], self.root)), []
        for client in self.clients or ():
            features, target = clients[self.known.index(client)]
            shares, labels = (self.test, self.validation), target.to_numpy()
            splits = random_split(len(target), seed, *shares, client, labels, least=100)
            positive = 1 if labels.dtype.kind == "i" else None
            tables.append(ClientTable(client, features, target, splits, positive=positive))
        return check_tables(tables)

    @abstractmethod
    def _read(self, path: Path) -> list[tuple[pd.DataFrame, pd.Series]]:
        """Return the features and labels of all clients, in their order."""


@dataclass(eq=False)
class HumanActivity(_Recordings):
    """UCI's Human Activity Recognition Using Smartphones: 30 people are the clients, six activities the classes.

    The file's own training and test rows belong to different people, so they cannot be used to test a client. Both are
    read, and each person's rows are split by activity, at random by the run's seed
    (:func:`~fedlit.data.splitting.random_split`).

    - Clients: subject_01 to subject_30.
    - Columns: 561 numbers, named in features.txt; the number of its line is added to a name that occurs several times
      (fBodyAcc-bandsEnergy()-1,8 #303).
    - Target: activity, one of WALKING, WALKING_UPSTAIRS, WALKING_DOWNSTAIRS, SITTING, STANDING, LAYING.
    - Splits: both halves of the original together; by activity and the run's seed, 33 % test (100 rows at least),
      then 10 % of the rest validation.
    - Licence: according to its README, no warranty and no commercial use, and publications cite Anguita et al.; UCI's
      page may say otherwise (not verified).
    - Citation: D. Anguita, A. Ghio, L. Oneto, X. Parra and J. L. Reyes-Ortiz (2012). Human activity recognition on
      smartphones using a multiclass hardware-friendly support vector machine. IWAAL 2012.

    Args:
        root: the folder to look in first for the unpacked archive.
        clients: the people to read, ``subject_01`` to ``subject_30``; all if None.
        positive: activities that count as 1, all others as 0; all six classes if None (as in the iFedAvg paper).
            ``[SITTING]`` is what the MOCHA paper predicts (Smith et al. 2017).
        test: the share of a person's rows that are test rows, in (0, 1); at least 100 rows (Roschewitz et al. 2021,
            Section 4), if a person has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = HumanActivity(clients=["subject_01", "subject_07"]).tables(seed=0)
    """

    name: ClassVar[str] = "activity"
    known: ClassVar[tuple[str, ...]] = tuple(f"subject_{number:02}" for number in range(1, 31))
    known_files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(  # the first file of the unpacked archive; the others are in the same folder
            "activity/UCI HAR Dataset/features.txt", None, None, "10,299 rows of 561 numbers: UCI's archive, unpacked",
            alternatives=("UCI HAR Dataset/features.txt",),
            page="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
        ),
    )  # fmt: skip

    positive: Sequence[str] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        some = self.positive is None or 0 < len({*self.positive} & {*ACTIVITIES}) == len(self.positive) < 6
        expect(some, "positive", f"a list of some of {', '.join(ACTIVITIES)}", self.positive)

    def _read(self, path: Path) -> list[tuple[pd.DataFrame, pd.Series]]:
        import pandas as pd

        names = [line.strip().partition(" ")[2] for line in path.read_text(encoding="utf-8").splitlines()]
        names = [f"{own} #{line}" if names.count(own) > 1 else own for line, own in enumerate(names, start=1)]
        columns = {"X": len(names), "y": 1, "subject": 1}
        parts = {name: [_numbers(path, name, half, columns[name]) for half in ("train", "test")] for name in columns}
        values, codes, subject = (np.concatenate(halves) for halves in parts.values())
        for what, found, most in (("an activity", codes, len(ACTIVITIES)), ("a subject", subject, len(self.known))):
            with published(path.parent, f"{what} from 1 to {most} for each row"):
                if len(found) != len(values) or not np.isin(found, range(1, most + 1)).all():
                    raise ValueError("others")
        labels = np.array(ACTIVITIES, dtype=object)[codes.ravel().astype(np.int64) - 1]
        target, features = pd.Series(labels, name="activity"), pd.DataFrame(values, columns=names)
        target = target if self.positive is None else target.isin(self.positive).astype(np.int64)
        people = (np.flatnonzero(subject == number) for number in range(1, len(self.known) + 1))
        return [(features.iloc[rows], target.iloc[rows]) for rows in people]


def _numbers(beside: Path, name: str, half: str, columns: int) -> np.ndarray:
    """Read a file of numbers separated by blanks, (lines, columns)."""
    import pandas as pd

    path = beside.parent / half / f"{name}_{half}.txt"
    with published(path, f"lines of {columns} finite numbers"):
        frame = pd.read_csv(path, sep=r"\s+", header=None, skip_blank_lines=False, dtype=np.float64)
        if frame.shape[1] != columns or not np.isfinite(frame.to_numpy()).all():
            raise ValueError(f"{frame.shape[1]} fields, or others")
    return frame.to_numpy()


@dataclass(eq=False)
class VehicleSensors(_Recordings):
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
    known: ClassVar[tuple[str, ...]] = tuple(f"sensor_{number:02}" for number in range(1, 24))
    known_files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            "vehicle/vehicle.mat", None, None, "23 sensors, 100 numbers a row, as MOCHA's MATLAB file",
            page="https://github.com/gingsmith/fmtl",
        ),
    )  # fmt: skip

    def _read(self, path: Path) -> list[tuple[pd.DataFrame, pd.Series]]:
        import pandas as pd
        from scipy.io import loadmat

        names = [f"feature_{number:03}" for number in range(1, _COLUMNS + 1)]
        with published(path, f"cell arrays X and Y of {len(self.known)} sensors, of a MATLAB file up to version 7"):
            cells = loadmat(path, variable_names=["X", "Y"])
            x, y = (list(map(_array, cells[name].ravel())) for name in ("X", "Y"))
            if not len(x) == len(y) == len(self.known):
                raise ValueError(f"{len(x)} and {len(y)} sensors")
            for own, labels in zip(x, y, strict=True):
                fits = own.shape == (labels.size, _COLUMNS) and np.isfinite(own).all()
                if not fits or not set(labels.flat) <= {-1.0, 0.0, 1.0}:
                    raise ValueError(f"X of {own.shape} and Y of {labels.shape}, or other numbers or labels")
        classes = (pd.Series((labels.ravel() == 1).astype(np.int64), name="vehicle") for labels in y)
        return [(pd.DataFrame(own, columns=names), target) for own, target in zip(x, classes, strict=True)]


def _array(cell: Any) -> np.ndarray:
    return np.asarray(cell.toarray() if hasattr(cell, "toarray") else cell, dtype=np.float64)  # MATLAB's sparse
