"""Published tables: heart disease at several sites, and forest cover types in several areas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import yaml

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_tables, read_known
from fedlit.data.splitting import random_split
from fedlit.data.table import SPLITS, ClientTable
from fedlit.errors import DataError, must_be_known

if TYPE_CHECKING:
    import pandas as pd

_KNOWN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_SITES = {name: site for name, site in _KNOWN["heart"].items() if not name.startswith(".")}
_FILES = {name: RemoteFile(**site["file"]) for name, site in _SITES.items()}
_COVERTYPE = _KNOWN["covertype"]
AREAS = tuple(_COVERTYPE["areas"])
"""The wilderness areas, in the order of the file's one-hot columns: area 1 is rawah."""
ELU_CODES = tuple(_COVERTYPE["soils"])
"""The Forest Service's code of each soil type, in the order of the file's one-hot columns. The
first digit is the climatic zone, the second the geologic zone."""
_TRAIN = 11_340
_VALIDATION = 3_780
_NUMERIC = tuple(_COVERTYPE["numbers"])
_AREA_COLUMNS = tuple(f"wilderness_area_{area}" for area in AREAS)
_SOIL_COLUMNS = tuple(f"soil_type_{code}" for code in ELU_CODES)
_LABEL = "cover_type"
_NAMES = (*_NUMERIC, *_AREA_COLUMNS, *_SOIL_COLUMNS, _LABEL)
_CATEGORICAL = ("soil_type", "climatic_zone", "geologic_zone", "wilderness_area")


@dataclass(eq=False)
class Heart(Source):
    """Heart disease, one client per site, each with its own columns and two classes: 1 is disease
    (or death).

    Splits are random, drawn from the run's seed as :func:`~fedlit.data.splitting.random_split`
    says. NOTE[DIFF]: the shares are those of the Global Layers paper's Table 1, 33 % and 10 % of
    the rest; its D.2.5 says 30 % and 30 %.

    - Clients: cleveland, sa, faisalabad by default; hungarian, switzerland, va, framingham on
      request.
    - Columns: 13 at cleveland, hungarian, switzerland and va; 9 at sa; 12 at faisalabad; 15 at
      framingham. Categories: sex, cp, fbs, restecg, exang, slope, ca, thal; famhist; anaemia,
      diabetes, high_blood_pressure, sex, smoking; male, education, currentSmoker, BPMeds,
      prevalentStroke, prevalentHyp, diabetes. All others are numbers.
    - Target: 1 for disease (UCI's four: any degree above 0; sa: chd; faisalabad: DEATH_EVENT;
      framingham: TenYearCHD), 0 for none.
    - Splits: random by the run's seed, 33 % test, then 10 % of the rest validation.
    - Licence: UCI's data sets: CC BY 4.0; publications must name the principal investigators (see
      the citation). sa and framingham state no licence: ask their owners before you share them.
    - Citation: A. Janosi (Budapest), W. Steinbrunn (Zurich), M. Pfisterer (Basel), R. Detrano (Long
      Beach and Cleveland) (1988), Heart Disease, UCI. J. Rousseauw et al. (1983), South African
      Medical Journal 64:430-436, in Hastie, Tibshirani and Friedman, The Elements of Statistical
      Learning (sa). D. Chicco and G. Jurman (2020), BMC Medical Informatics and Decision Making
      20:16 (faisalabad).

    Args:
        root: the folder to look in first.
        clients: the sites to read, among cleveland, hungarian, switzerland, va, sa, faisalabad and
            framingham.
        test: the share of a site's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = Heart(clients=["cleveland", "va"]).tables(seed=0)
    """

    name: ClassVar[str] = "heart"
    known: ClassVar[tuple[str, ...]] = tuple(_SITES)
    known_files: ClassVar[tuple[RemoteFile, ...]] = tuple(_FILES.values())

    root: str | None = None
    clients: Sequence[str] = ("cleveland", "sa", "faisalabad")
    test: float = 0.33
    validation: float = 0.1

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        return check_tables([self._table(client, seed) for client in self.clients])

    def _table(self, client: str, seed: int) -> ClientTable:
        site = _SITES[client]
        path = locate(_FILES[client], self.root)
        # The file of sa begins with a row number, which is left out.
        columns = [*site["features"], site["target"]]
        frame = read_known(
            path,
            columns,
            site.get("header", True),
            na_values=["?"],
            dtype={site["target"]: np.float64},
        )
        target = frame[site["target"]]
        return ClientTable(
            name=client,
            features=frame[site["features"]],
            # A missing label must not become 0: it is left to the check of all tables, which counts
            # and names it.
            target=(target > 0).astype(np.int64).where(target.notna()),
            splits=random_split(len(frame), seed, self.test, self.validation, client),
            categorical=tuple(site["categorical"]),
            positive=1,
        )


@dataclass(eq=False)
class Covertype(Source):
    """UCI Covertype, one client for each wilderness area.

    Rows keep the file's own split: the first 11,340 are training rows, the next 3,780 validation
    rows, the rest test rows.

    - Clients: rawah, neota, comanche, poudre (one wilderness area each).
    - Columns (derived): elevation, aspect, slope, horizontal and vertical distance to hydrology,
      horizontal distance to roadways and to fire points (numbers); soil_type (ELU code),
      climatic_zone, geologic_zone, wilderness_area (categories; with columns: numbers, numbers).
      Columns (raw): the 54 of the file.
    - Target: cover_type, 1 to 7.
    - Splits: the first 11,340 rows are for training, the next 3,780 for validation, the rest for
      test.
    - Licence: Reuse is unlimited with retention of the copyright notice for Jock A. Blackard and
      Colorado State University.
    - Citation: J. A. Blackard and D. J. Dean (2000). Comparative accuracies of artificial neural
      networks and discriminant analysis in predicting forest cover types from cartographic
      variables. Computers and Electronics in Agriculture 24(3):131-151.

    Args:
        root: the folder to look in first.
        clients: the areas to read, among rawah, neota, comanche and poudre; all four if null.
        columns: ``derived`` for 11 columns (7 measures without hillshade; soil type, its climatic
            zone, its geologic zone and the wilderness area as categories), ``numbers`` for the same
            as numbers, ``raw`` for the file's 54 columns, all as numbers. NOTE[DIFF]: the Global
            Layers paper has ordinal codes (D.1.1), as ``derived`` has; the published program
            standardises all eleven, as with ``numbers``. NOTE[DIFF]: D.1.1 drops the wilderness
            area, the partition key, but Table 3 lists it, Table 1 counts it, and the counts of
            parameters in Table 8 need it. It is kept; ``data.columns: ["*", "!wilderness_area"]``
            drops it.
        positive: the cover types that count as 1, while all others count as 0; null for the seven
            types themselves.

    Example::

        tables = Covertype(clients=["neota", "poudre"]).tables(seed=8)
    """

    name: ClassVar[str] = "covertype"
    known: ClassVar[tuple[str, ...]] = AREAS
    known_files: ClassVar[tuple[RemoteFile, ...]] = (RemoteFile(**_COVERTYPE["file"]),)

    root: str | None = None
    clients: Sequence[str] | None = None
    columns: Literal["derived", "numbers", "raw"] = "derived"
    positive: Sequence[Literal[1, 2, 3, 4, 5, 6, 7]] | None = None

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables. ``seed`` is not used, because the splits are those of the file."""
        must_be_known("covertype: columns", [self.columns], ("derived", "numbers", "raw"))
        frame, area, soil = self._read()
        categorical = {"derived": _CATEGORICAL, "numbers": (), "raw": ()}[self.columns]
        features = frame[list(_NAMES[:-1])] if self.columns == "raw" else _derive(frame, area, soil)
        target = frame[_LABEL] if self.positive is None else frame[_LABEL].isin(self.positive)
        target = target.astype(np.int64)
        tables = []
        for client in self.clients or ():
            rows = np.flatnonzero(area == AREAS.index(client))
            bounds = np.searchsorted(rows, [_TRAIN, _TRAIN + _VALIDATION])
            splits = dict(
                zip(SPLITS, np.split(np.arange(len(rows), dtype=np.int64), bounds), strict=True)
            )
            tables.append(
                ClientTable(client, features.iloc[rows], target.iloc[rows], splits, categorical)
            )
        return check_tables(tables)

    def _read(self) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """The rows of the file, and the positions (rows,) of each row's area and soil type."""
        path = locate(self.known_files[0], self.root)
        # Stated types spare pandas the guessing: the whole file is read in a fraction of the time
        # and of the memory. Measures are floats because some copies of the file leave hillshade
        # empty.
        types = {name: np.float64 if name in _NUMERIC else np.uint8 for name in _NAMES}
        frame = read_known(path, _NAMES, header=False, dtype=types)
        blocks = [frame[list(columns)].to_numpy() for columns in (_AREA_COLUMNS, _SOIL_COLUMNS)]
        are_one_hot = all(
            ((block == 1).sum(axis=1) == 1).all() and block.max() == 1 for block in blocks
        )
        are_labelled = frame[_LABEL].between(1, 7).all()
        if not are_one_hot or not are_labelled or len(frame) <= _TRAIN + _VALIDATION:
            raise DataError(
                f"file {path}: expected over {_TRAIN + _VALIDATION:,} rows, each of one area, one "
                "soil and a cover type from 1 to 7, found others; get the original again"
            )
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
