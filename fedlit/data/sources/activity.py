"""Human activity recognition with a phone at the waist: one client per person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.errors import DataError, expect

if TYPE_CHECKING:
    import pandas as pd

ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
"""The activities, in the order of the file's numbers 1 to 6."""


@dataclass(eq=False)
class HumanActivity(Source):
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
    about: ClassVar[str] = "activities of 30 people, recorded by a phone at the waist; each person is a client"
    known: ClassVar[tuple[str, ...]] = tuple(f"subject_{number:02}" for number in range(1, 31))

    root: str | None = None
    clients: Sequence[str] | None = None
    positive: Sequence[str] | None = None
    test: float = 0.33
    validation: float = 0.1

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        some = self.positive is None or 0 < len({*self.positive} & {*ACTIVITIES}) == len(self.positive) < 6
        expect(some, "positive", f"a list of some of {', '.join(ACTIVITIES)}", self.positive)

    @classmethod
    def known_files(cls) -> tuple[RemoteFile, ...]:
        """Return the first file of the unpacked archive. The other files are in the same folder."""
        return (
            RemoteFile(
                path="activity/UCI HAR Dataset/features.txt",
                url=None,
                sha256=None,
                about="10,299 rows of 561 numbers: UCI's archive, unpacked",
                page="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
                alternatives=("UCI HAR Dataset/features.txt",),
            ),
        )

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        features, activity, subject = self._read(locate(self.known_files()[0], self.root))
        target = activity if self.positive is None else activity.isin(self.positive).astype(np.int64)
        tables = []
        for client in self.clients or ():
            rows = np.flatnonzero(subject == self.known.index(client) + 1)
            own = target.iloc[rows]
            tables.append(
                ClientTable(
                    name=client,
                    features=features.iloc[rows],
                    target=own,
                    splits=random_split(len(rows), seed, self.test, self.validation, client, own.to_numpy(), least=100),
                )
            )
        return check_tables(tables)

    def _read(self, path: Path) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
        """Return the features, the activity and the number of the person of each row, first of the training half, then
        of the test half.
        """
        import pandas as pd

        names = [line.strip().partition(" ")[2] for line in path.read_text(encoding="utf-8").splitlines()]
        names = [f"{own} #{line}" if names.count(own) > 1 else own for line, own in enumerate(names, start=1)]
        columns = {"X": len(names), "y": 1, "subject": 1}
        parts = {name: [_numbers(path, name, half, columns[name]) for half in ("train", "test")] for name in columns}
        values, codes, subject = (np.concatenate(halves) for halves in parts.values())
        for what, found, most in (("an activity", codes, len(ACTIVITIES)), ("a subject", subject, len(self.known))):
            if len(found) != len(values) or not np.isin(found, range(1, most + 1)).all():
                raise DataError(
                    f"files beside {path}: expected {what} from 1 to {most} for each row, found others. Get them again."
                )
        activity = pd.Series(np.array(ACTIVITIES, dtype=object)[codes.ravel().astype(np.int64) - 1], name="activity")
        return pd.DataFrame(values, columns=names), activity, subject.ravel()


def _numbers(beside: Path, name: str, half: str, columns: int) -> np.ndarray:
    """Read a file of numbers separated by blanks, (lines, columns)."""
    import pandas as pd

    path = beside.parent / half / f"{name}_{half}.txt"
    with published(path, f"lines of {columns} finite numbers"):
        frame = pd.read_csv(path, sep=r"\s+", header=None, skip_blank_lines=False, dtype=np.float64)
        if frame.shape[1] != columns or not np.isfinite(frame.to_numpy()).all():
            raise ValueError(f"{frame.shape[1]} fields, or others")
    return frame.to_numpy()
