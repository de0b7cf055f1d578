"""Three made-up hospitals of one disease, for which the truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import expect

if TYPE_CHECKING:
    import pandas as pd

TARGET = "readmitted"
PART = "part"
"""The column to predict, and the column that says which rows are training, validation and test
rows."""


@dataclass(frozen=True)
class _Measurement:
    """A column of numbers.

    Attributes:
        mean: its mean.
        sd: its standard deviation before rounding.
        digits: the decimals that are written.
        effect: the change of the log odds of readmission with one standard deviation, at north and
            west.
        south: the same at south.
        least: the smallest value that is written.
    """

    mean: float
    sd: float
    digits: int
    effect: float
    south: float
    least: float = 0.0


_SHARED = {
    "age": _Measurement(68, 12, 0, 0.45, 0.45, 18),
    "stay": _Measurement(7, 3, 0, 0.45, -0.45, 1),
    "admissions": _Measurement(3, 1.4, 0, 0.45, 0.45),
    "creatinine": _Measurement(1.1, 0.25, 2, 0.45, -0.45, 0.3),
    "haemoglobin": _Measurement(12.6, 1.7, 1, -0.45, 0.45, 5),
    "sodium": _Measurement(138, 4, 0, -0.45, -0.45, 110),
    "systolic": _Measurement(132, 18, 0, -0.45, 0.45, 70),
    "pulse": _Measurement(79, 12, 0, 0.45, -0.45, 35),
    "weight": _Measurement(77, 15, 0, 0.0, 0.0, 35),
    "glucose": _Measurement(112, 25, 0, 0.0, 0.0, 50),
    "potassium": _Measurement(4.2, 0.4, 1, 0.0, 0.0, 2.5),
    "albumin": _Measurement(3.7, 0.5, 1, 0.0, 0.0, 1.5),
    "temperature": _Measurement(36.9, 0.5, 1, 0.0, 0.0, 34),
}
_PRIVATE = {
    "north": {"frailty": _Measurement(4.5, 1.5, 0, 0.3, 0.0, 1)},
    "south": {"lactate": _Measurement(1.6, 0.4, 1, 0.0, 0.6, 0.3)},
    "west": {"bmi": _Measurement(27, 4, 1, 0.3, 0.0, 14)},
}
_MALE = 0.3
"""The number that is added to the log odds of men."""
_MICROMOLES = 88.4
"""µmol/L of creatinine in one mg/dL."""
_ROWS = {
    "north": {"train": 30, "validation": 30, "test": 1500},
    "south": {"train": 800, "validation": 300, "test": 2500},
    "west": {"train": 2400, "validation": 600, "test": 40},
}


@dataclass(eq=False)
class Hospitals(Source):
    """Three made-up hospitals that predict whether a patient is readmitted within 30 days; the
    truth is known.

    - At north and west the same eight measurements lead to a readmission. South is a heart centre,
      where five of them count the other way round.
    - North has few rows to learn from and many later ones. It should join.
    - South has many of both and a mechanism of its own. It should stay alone.
    - West has many rows to learn from and few later ones: these cannot show what it gains.
    - South writes creatinine in µmol/L, the others in mg/dL.
    - A label is drawn with the probability that :meth:`risk` returns: a logistic model of the
      written values.

    - Clients: north, south, west.
    - Columns: age, sex, stay, admissions, creatinine, haemoglobin, sodium, systolic, pulse, weight,
      glucose, potassium, albumin, temperature; frailty at north only, lactate at south only, bmi at
      west only.
    - Target: readmitted, yes or no; yes is the positive class.
    - Splits: the column part; test rows are those of the next year, and the same for all seeds of a
      run.
    - Licence: simulated by fedlit; contains no real data.
    - Citation: none.

    Args:
        clients: the hospitals to use, among north, south and west.
        draw: the seed of all rows. The run's seed changes no row and no split.
        later: the number of test rows of each hospital; if None, 1,500 at north, 2,500 at south and
            40 at west. Training and validation rows do not depend on it: the same study on 100,000
            test rows shows the truth.

    Example:
        >>> [(table.name, table.features.shape) for table in Hospitals().tables(seed=0)]
        [('north', (1560, 15)), ('south', (3600, 15)), ('west', (3040, 15))]
    """

    name: ClassVar[str] = "hospitals"
    known: ClassVar[tuple[str, ...]] = ("north", "south", "west")

    clients: Sequence[str] = ("north", "south", "west")
    draw: int = 11
    later: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        expect(self.draw >= 0, "hospitals: draw", "a seed of 0 or more", self.draw)
        enough = self.later is None or self.later >= 1
        expect(enough, "hospitals: later", "at least one row", self.later)

    def tables(self, seed: int) -> list[ClientTable]:
        """Draw the tables; ``seed`` changes nothing."""
        return check_tables([self._table(client) for client in self.clients])

    def sizes(self) -> dict[str, int]:
        """Return the number of rows of each hospital."""
        return {client: sum(self._rows(client).values()) for client in self.clients}

    def frame(self, client: str) -> pd.DataFrame:
        """Return a hospital's rows as its file holds them, with the columns ``readmitted`` and
        ``part``.
        """
        import pandas as pd

        parts = []
        for part, rows in self._rows(client).items():
            frame = self._patients(client, part, rows)
            chance = self._generator(client, part, TARGET).random(rows)
            frame[TARGET] = np.where(chance < self.risk(client, frame), "yes", "no")
            frame[PART] = part
            parts.append(frame)
        return pd.concat(parts, ignore_index=True)

    def new_rows(self, client: str, rows: int = 10) -> pd.DataFrame:
        """Return rows of a hospital that are not in its table and have no label."""
        return self._patients(client, "new", rows)

    def risk(self, client: str, frame: pd.DataFrame) -> np.ndarray:
        """Return the true probability of a readmission for each row of a hospital.

        Example:
            >>> hospitals = Hospitals()
            >>> hospitals.risk("north", hospitals.new_rows("north", rows=2)).shape
            (2,)
        """
        odds = np.where(frame["sex"] == "male", _MALE, 0.0) - 1.0
        for name, measurement in _measurements(client).items():
            values = frame[name].to_numpy(float) / _unit(client, name)
            effect = measurement.south if client == "south" else measurement.effect
            odds += effect * (values - measurement.mean) / measurement.sd
        risk: np.ndarray = 1 / (1 + np.exp(-odds))
        return risk

    def _rows(self, client: str) -> dict[str, int]:
        rows = dict(_ROWS[client])
        if self.later is not None:
            rows["test"] = self.later
        return rows

    def _table(self, client: str) -> ClientTable:
        frame = self.frame(client)
        return ClientTable(
            name=client,
            features=frame.drop(columns=[TARGET, PART]),
            target=frame[TARGET],
            splits={part: np.flatnonzero(frame[PART] == part).astype(np.int64) for part in SPLITS},
            categorical=("sex",),
            positive="yes",
        )

    def _patients(self, client: str, part: str, rows: int) -> pd.DataFrame:
        """Draw the columns that are known of patients. Each column has a generator of its own, so
        that the first rows do not depend on the number of rows.
        """
        import pandas as pd

        columns = {}
        for name, measurement in _measurements(client).items():
            unit = _unit(client, name)
            rng = self._generator(client, part, name)
            values = rng.normal(measurement.mean, measurement.sd, rows)
            digits = 0 if unit > 1 else measurement.digits
            written = np.round(np.maximum(values, measurement.least) * unit, digits)
            columns[name] = written if digits else written.astype(np.int64)
        frame = pd.DataFrame(columns)
        male = self._generator(client, part, "sex").random(rows) < 0.5
        frame.insert(1, "sex", np.where(male, "male", "female"))
        return frame

    def _generator(self, *purpose: str) -> np.random.Generator:
        # It imports torch, which a list of sources does without.
        from fedlit.seeding import derive_seed

        return np.random.default_rng(derive_seed(self.draw, "hospitals", *purpose))


def _measurements(client: str) -> Mapping[str, _Measurement]:
    return {**_SHARED, **_PRIVATE[client]}


def _unit(client: str, column: str) -> float:
    """Return by how much a hospital's numbers of a column are larger than the others'."""
    return _MICROMOLES if (client, column) == ("south", "creatinine") else 1.0
