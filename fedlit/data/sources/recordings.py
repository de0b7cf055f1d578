"""Recordings of sensors: what they have in common, and human activity by person."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.note import Note
from fedlit.data.sources.base import Source, check_tables, published
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable

if TYPE_CHECKING:
    import pandas as pd

Activity = Literal[
    "WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING"
]
ACTIVITIES: tuple[str, ...] = get_args(Activity)
"""The activities, in the order of the file's numbers 1 to 6."""


class Recording(NamedTuple):
    """One client's rows, and a note on how they were read, if there is one."""

    features: pd.DataFrame
    target: pd.Series
    note: str = ""


@dataclass(eq=False)
class Recordings(Source):
    """Clients whose rows are split by class, at random by the run's seed."""

    root: str | None = None
    clients: Sequence[str] | None = None
    test: float = 0.33
    validation: float = 0.1

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        recordings = self._read(locate(self.known_files[0], self.root))
        tables = []
        for client in self.clients or ():
            recording = recordings[self.known.index(client)]
            labels = recording.target.to_numpy()
            # 100 test rows for everybody who has 200 rows: the iFedAvg paper's split (Roschewitz et
            # al. 2021, Section 4), on which the published scores are computed.
            splits = random_split(
                len(labels), seed, self.test, self.validation, client, labels, least=100
            )
            # Two classes are 0 and 1, so that the scores are those of 1. Activities are words, and
            # none of the six is the positive one.
            positive = 1 if labels.dtype.kind == "i" else None
            notes = (Note(recording.note, "read", head=client),) if recording.note else ()
            table = ClientTable(
                client, recording.features, recording.target, splits, positive=positive, notes=notes
            )
            tables.append(table)
        return check_tables(tables)

    @abstractmethod
    def _read(self, path: Path) -> list[Recording]:
        """Read the recordings of all clients, in their order."""


@dataclass(eq=False)
class HumanActivity(Recordings):
    """UCI's Human Activity Recognition Using Smartphones: 30 people are the clients, six activities
    the classes.

    The file's own training and test rows belong to different people, so they cannot be used to test
    a client. Both are read, and each person's rows are split by activity, at random by the run's
    seed (:func:`~fedlit.data.splitting.random_split`).

    - Clients: subject_01 to subject_30.
    - Columns: 561 numbers, named in features.txt; the number of its line is added to a name that
      occurs several times (fBodyAcc-bandsEnergy()-1,8 #303).
    - Target: activity, one of WALKING, WALKING_UPSTAIRS, WALKING_DOWNSTAIRS, SITTING, STANDING,
      LAYING.
    - Splits: both halves of the original together; by activity and the run's seed, 33 % test (100
      rows at least), then 10 % of the rest validation.
    - Licence: according to its README, no warranty and no commercial use, and publications cite
      Anguita et al.; UCI's page may say otherwise (not verified).
    - Citation: D. Anguita, A. Ghio, L. Oneto, X. Parra and J. L. Reyes-Ortiz (2012). Human activity
      recognition on smartphones using a multiclass hardware-friendly support vector machine. IWAAL
      2012.

    Args:
        root: the folder to look in first for the unpacked archive.
        clients: the people to read, ``subject_01`` to ``subject_30``; all if None.
        positive: activities that count as 1, all others as 0; all six classes if None (as in the
            iFedAvg paper). ``[SITTING]`` is what the MOCHA paper predicts (Smith et al. 2017).
        test: the share of a person's rows that are test rows, in (0, 1); at least 100 rows
            (Roschewitz et al. 2021, Section 4), if a person has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = HumanActivity(clients=["subject_01", "subject_07"]).tables(seed=0)
    """

    name: ClassVar[str] = "activity"
    known: ClassVar[tuple[str, ...]] = tuple(f"subject_{number:02}" for number in range(1, 31))
    known_files: ClassVar[tuple[RemoteFile, ...]] = (
        RemoteFile(
            path="activity/UCI HAR Dataset/features.txt",  # The other files are in its folder.
            url=None,
            sha256=None,
            about="10,299 rows of 561 numbers: UCI's archive, unpacked",
            alternatives=("UCI HAR Dataset/features.txt",),
            page="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
        ),
    )

    positive: Sequence[Activity] | None = None

    def _read(self, path: Path) -> list[Recording]:
        import pandas as pd

        names = [
            line.strip().partition(" ")[2] for line in path.read_text(encoding="utf-8").splitlines()
        ]
        names = [
            f"{name} #{line}" if names.count(name) > 1 else name
            for line, name in enumerate(names, start=1)
        ]
        widths = {"X": len(names), "y": 1, "subject": 1}
        with published(
            path.parent, "an activity from 1 to 6 and a subject from 1 to 30 for each row"
        ):
            halves = []
            for half in ("train", "test"):
                blocks = [_numbers(path, name, half, width) for name, width in widths.items()]
                halves.append(np.hstack(blocks))
            rows = np.concatenate(halves)
            codes = rows[:, -2].astype(np.int64)
            subject = rows[:, -1]
            if not (np.isin(rows[:, -2], range(1, 7)) & np.isin(subject, range(1, 31))).all():
                raise ValueError("others")
        features = pd.DataFrame(rows[:, :-2], columns=names)
        labels = np.array(ACTIVITIES, dtype=object)[codes - 1]
        target = pd.Series(labels, name="activity")
        if self.positive is not None:
            target = target.isin(self.positive).astype(np.int64)
        people = (np.flatnonzero(subject == number) for number in range(1, 31))
        return [Recording(features.iloc[rows], target.iloc[rows]) for rows in people]


def _numbers(beside: Path, name: str, half: str, columns: int) -> np.ndarray:
    """Read a file of numbers separated by blanks, (lines, columns)."""
    import pandas as pd

    path = beside.parent / half / f"{name}_{half}.txt"
    with published(path, f"lines of {columns} finite numbers"):
        frame = pd.read_csv(path, sep=r"\s+", header=None, skip_blank_lines=False, dtype=np.float64)
        if frame.shape[1] != columns or not np.isfinite(frame.to_numpy()).all():
            raise ValueError(f"{frame.shape[1]} fields, or others")
    return frame.to_numpy()
