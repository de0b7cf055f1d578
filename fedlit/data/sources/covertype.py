"""Forest cover types in four wilderness areas: one client per area, with different classes in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import yaml

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, published, read_known
from fedlit.data.table import ClientTable
from fedlit.errors import expect

if TYPE_CHECKING:
    import pandas as pd

_FACTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
AREAS = tuple(_FACTS["areas"])
"""The wilderness areas, in the order of the file's one-hot columns: area 1 is rawah."""
ELU_CODES = tuple(_FACTS["soils"])
"""The Forest Service's code of each soil type, in the order of the file's one-hot columns. The first digit is the
climatic zone, the second the geologic zone."""
_TRAIN, _VALIDATION = 11_340, 3_780
_NUMERIC = tuple(_FACTS["numbers"])
_AREA_COLUMNS = tuple(f"wilderness_area_{area}" for area in AREAS)
_SOIL_COLUMNS = tuple(f"soil_type_{code}" for code in ELU_CODES)
_LABEL = "cover_type"
_NAMES = (*_NUMERIC, *_AREA_COLUMNS, *_SOIL_COLUMNS, _LABEL)
_CATEGORICAL = ("soil_type", "climatic_zone", "geologic_zone", "wilderness_area")


@dataclass(eq=False)
class Covertype(Source):
    """UCI Covertype, one client for each wilderness area.

    Rows keep the file's own split: the first 11,340 are training rows, the next 3,780 validation rows, the rest test
    rows.

    - Clients: rawah, neota, comanche, poudre (one wilderness area each).
    - Columns (derived): elevation, aspect, slope, horizontal and vertical distance to hydrology, horizontal distance
      to roadways and to fire points (numbers); soil_type (ELU code), climatic_zone, geologic_zone, wilderness_area
      (categories; with columns: numbers, numbers). Columns (raw): the 54 of the file.
    - Target: cover_type, 1 to 7.
    - Splits: the first 11,340 rows are for training, the next 3,780 for validation, the rest for test.
    - Licence: Reuse is unlimited with retention of the copyright notice for Jock A. Blackard and Colorado State
      University.
    - Citation: J. A. Blackard and D. J. Dean (2000). Comparative accuracies of artificial neural networks and
      discriminant analysis in predicting forest cover types from cartographic variables. Computers and Electronics in
      Agriculture 24(3):131-151.

    Args:
        root: the folder to look in first.
        clients: the areas to read, among rawah, neota, comanche and poudre; all four if null.
        columns: ``derived`` for 11 columns (7 measures without hillshade; soil type, its climatic zone, its geologic
            zone and the wilderness area as categories), ``numbers`` for the same as numbers, ``raw`` for the file's 54
            columns, all as numbers. NOTE[DIFF]: the Global Layers paper has ordinal codes (D.1.1), as ``derived`` has;
            the published program standardises all eleven, as with ``numbers``.
        positive: the cover types that count as 1, while all others count as 0; null for the seven types themselves.

    Example::

        tables = Covertype(clients=["neota", "poudre"]).tables(seed=8)
    """

    name: ClassVar[str] = "covertype"
    known: ClassVar[tuple[str, ...]] = AREAS
    known_files: ClassVar[tuple[RemoteFile, ...]] = (RemoteFile(**_FACTS["file"]),)

    root: str | None = None
    clients: Sequence[str] | None = None
    columns: Literal["derived", "numbers", "raw"] = "derived"
    positive: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        expect(self.columns in ("derived", "numbers", "raw"), "columns", "derived, numbers or raw", self.columns)
        some = self.positive is None or 0 < len({*self.positive} & {*range(1, 8)}) == len(self.positive) < 7
        expect(some, "positive", "some of the cover types 1 to 7", self.positive)

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables. ``seed`` is not used, because the splits are those of the file."""
        frame, area, soil = self._read()
        features = frame[list(_NAMES[:-1])] if self.columns == "raw" else _derive(frame, area, soil)
        target = frame[_LABEL] if self.positive is None else frame[_LABEL].isin(self.positive)
        tables = []
        for client in self.clients or ():
            rows = np.flatnonzero(area == AREAS.index(client))
            bounds = np.searchsorted(rows, [_TRAIN, _TRAIN + _VALIDATION])
            train, validation, test = np.split(np.arange(len(rows), dtype=np.int64), bounds)
            tables.append(
                ClientTable(
                    name=client,
                    features=features.iloc[rows],
                    target=target.iloc[rows].astype(np.int64),
                    splits={"train": train, "validation": validation, "test": test},
                    categorical=_CATEGORICAL if self.columns == "derived" else (),
                )
            )
        return check_tables(tables)

    def _read(self) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """The rows of the file, and the positions (rows,) of each row's area and soil type."""
        path = locate(self.known_files[0], self.root)
        # Stated types spare pandas the guessing: the whole file is read in a fraction of the time and of the memory.
        # Measures are floats because some copies of the file leave hillshade empty.
        types = {name: np.float64 if name in _NUMERIC else np.uint8 for name in _NAMES}
        frame = read_known(path, _NAMES, header=False, dtype=types)
        blocks = [frame[list(columns)].to_numpy() for columns in (_AREA_COLUMNS, _SOIL_COLUMNS)]
        one = all(((block == 1).sum(axis=1) == 1).all() and block.max() == 1 for block in blocks)
        with published(
            path, f"over {_TRAIN + _VALIDATION:,} rows, each of one area, one soil and a cover type from 1 to 7"
        ):
            if len(frame) <= _TRAIN + _VALIDATION or not frame[_LABEL].between(1, 7).all() or not one:
                raise ValueError(f"others among {len(frame):,} rows")
        area, soil = (block.argmax(axis=1) for block in blocks)
        return frame, area, soil


def _derive(frame: pd.DataFrame, area: np.ndarray, soil: np.ndarray) -> pd.DataFrame:
    code = np.array(ELU_CODES, dtype=np.int64)[soil]
    # Hillshade follows from aspect and slope, and is dropped as in the Global Layers experiments.
    features = frame[[name for name in _NUMERIC if not name.startswith("hillshade")]]
    return features.assign(
        soil_type=code,
        climatic_zone=code // 1000,
        geologic_zone=code // 100 % 10,
        wilderness_area=area.astype(np.int64) + 1,
    )
