"""Human activity recognition by a phone at the waist: one client a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_fractions, check_tables, choose_clients, random_split
from fedlit.data.sources.numbers import Place, open_place, read_numbers
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ACTIVITIES", "HumanActivity"]

ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")
"""The activities, in the order of the file's numbers 1 to 6."""

_SUBJECTS = tuple(f"subject_{number:02}" for number in range(1, 31))
_FOLDER = "UCI HAR Dataset"


class HumanActivity(Source):
    """UCI's Human Activity Recognition Using Smartphones: 30 people are the clients, six activities the classes.

    The file's own training and test rows are of different people, so that no client could be tested by them: they are
    read together, and each person's rows are split by activity, at random by the run's seed
    (:func:`~fedlit.data.sources.base.random_split`).

    - Clients: subject_01 to subject_30.
    - Columns: 561 numbers, named by features.txt; a name that stands there several times gets the number of its line
      (fBodyAcc-bandsEnergy()-1,8 #303).
    - Target: activity, one of WALKING, WALKING_UPSTAIRS, WALKING_DOWNSTAIRS, SITTING, STANDING, LAYING.
    - Splits: both halves of the original together; by activity and the run's seed, 33 % test (100 rows at least),
      then 10 % of the rest validation.
    - Licence: As its README says, without any warranty, not for commercial use, and publications name Anguita et al.;
      UCI's page may say otherwise (not verified).
    - Citation: D. Anguita, A. Ghio, L. Oneto, X. Parra and J. L. Reyes-Ortiz (2012). Human activity recognition on
      smartphones using a multiclass hardware-friendly support vector machine. IWAAL 2012.

    Args:
        root: a folder in which the archive or its unpacked folder is looked for first.
        clients: the people to read, ``subject_01`` to ``subject_30``; all if None.
        positive: activities that count as 1, all others as 0; the six themselves if None (the iFedAvg paper).
            ``[SITTING]`` is what MOCHA's paper predicts (Smith et al. 2017).
        test: the share of a person's rows that are test rows, in (0, 1); 100 rows at least (Roschewitz et al. 2021,
            Section 4), where a person has 200.
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = HumanActivity(clients=["subject_01", "subject_07"]).tables(seed=0)
    """

    name: ClassVar[str] = "activity"
    about: ClassVar[str] = "what 30 people do, by a phone at their waist; each person is a client"

    def __init__(
        self,
        root: str | None = None,
        clients: Sequence[str] | None = None,
        positive: Sequence[str] | None = None,
        test: float = 0.33,
        validation: float = 0.1,
    ) -> None:
        check_fractions(test, validation)
        self.root = root
        self.clients = choose_clients(clients, _SUBJECTS, self.name)
        if positive is not None and (
            isinstance(positive, str) or not 0 < len(set(positive) & set(ACTIVITIES)) == len(positive) < 6
        ):
            raise ConfigError(
                f"{self.name}: positive: expected a list of some of {', '.join(ACTIVITIES)}; found {positive!r}."
            )
        self.positive = positive
        self.test, self.validation = test, validation

    @classmethod
    def files(cls) -> tuple[RemoteFile, ...]:
        """The archive, or the folder that it holds."""
        return (
            RemoteFile(
                path=f"activity/{_FOLDER}.zip",
                url=None,
                sha256=None,
                about="10,299 rows of 561 numbers, as UCI's zip or unpacked",
                page="https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
                alternatives=(
                    "activity/human+activity+recognition+using+smartphones.zip",
                    f"activity/{_FOLDER}/features.txt",
                    f"{_FOLDER}/features.txt",
                ),
            ),
        )

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        features, activity, subject = _read(locate(self.files()[0], self.root))
        target = activity if self.positive is None else activity.isin(self.positive).astype(np.int64)
        tables = []
        for client in self.clients:
            rows = np.flatnonzero(subject == _SUBJECTS.index(client) + 1)
            if not len(rows):
                raise DataError(
                    f"client {client!r}: expected rows of subject {_SUBJECTS.index(client) + 1}, found none among "
                    f"{len(subject):,} rows. Get the original again, or leave the client out."
                )
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


def _read(path: Path) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """Features, activity and number of the person of each row: the training half, then the test half."""
    import pandas as pd

    top = open_place(path.parent if path.name == "features.txt" else path)
    top = top if (top / "features.txt").is_file() else top / _FOLDER
    try:
        lines = (top / "features.txt").read_text(encoding="utf-8-sig").split("\n")
    except (OSError, KeyError, UnicodeError) as error:
        raise DataError(f"file {top}: expected features.txt in it, found: {error}. Get the original again.") from error
    names = [line.strip().partition(" ")[2] for line in lines if line.strip()]
    names = [f"{own} #{line}" if names.count(own) > 1 else own for line, own in enumerate(names, start=1)]
    halves = [[_of_half(top, name, half, len(names)) for name in ("X", "y", "subject")] for half in ("train", "test")]
    values, codes, subjects = (np.concatenate(parts) for parts in zip(*halves, strict=True))
    for what, found, most in (("an activity", codes, len(ACTIVITIES)), ("a subject", subjects, len(_SUBJECTS))):
        if len(found) != len(values) or not np.isin(found, range(1, most + 1)).all():
            raise DataError(f"file {top}: expected {what} from 1 to {most} for each row, found others. Get it again.")
    activity = pd.Series(np.array(ACTIVITIES, dtype=object)[codes.ravel().astype(np.int64) - 1], name="activity")
    return pd.DataFrame(values, columns=names), activity, subjects.ravel()


def _of_half(top: Place, name: str, half: str, columns: int) -> np.ndarray:
    return read_numbers(top / half / f"{name}_{half}.txt", columns if name == "X" else 1)
