"""Heart disease at up to seven sites, each with columns of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedlit.data.files import RemoteFile, locate
from fedlit.data.sources.base import Source, check_fractions, check_tables, choose_clients, random_split
from fedlit.data.table import ClientTable
from fedlit.errors import DataError

__all__ = ["Heart"]

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_UCI_NAMES = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
)
_UCI_CATEGORICAL = ("sex", "cp", "fbs", "restecg", "exang", "slope", "ca", "thal")


@dataclass(frozen=True)
class _Site:
    """How one site's file is read."""

    file: RemoteFile
    target: str
    features: tuple[str, ...]
    categorical: tuple[str, ...]
    header: bool = True
    labels: tuple[int, ...] = (0, 1)


def _uci(name: str, sha256: str, about: str) -> _Site:
    original = f"processed.{name}.data"
    file = RemoteFile(
        path=f"heart/{name}.data",
        url=f"{_UCI}/heart-disease/{original}",
        sha256=sha256,
        about=about,
        alternatives=(f"heart/{original}",),
    )
    return _Site(file, "num", _UCI_NAMES, _UCI_CATEGORICAL, header=False, labels=(0, 1, 2, 3, 4))


_SITES = {
    "cleveland": _uci(
        "cleveland",
        "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
        "303 patients, Cleveland Clinic Foundation",
    ),
    "hungarian": _uci(
        "hungarian",
        "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
        "294 patients, Hungarian Institute of Cardiology",
    ),
    "switzerland": _uci(
        "switzerland",
        "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
        "123 patients, university hospitals of Zurich and Basel",
    ),
    "va": _uci(
        "va",
        "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        "200 patients, V.A. Medical Center, Long Beach",
    ),
    "sa": _Site(
        RemoteFile(
            path="heart/sa.data",
            url="https://hastie.su.domains/ElemStatLearn/datasets/SAheart.data",
            sha256="db9e74c07edd4adc8b49b7bea400d8cd6865e7e2f394926fa51e49d47976a135",
            about="462 men, Western Cape, South Africa",
            alternatives=("heart/SAheart.data",),
        ),
        target="chd",
        features=("sbp", "tobacco", "ldl", "adiposity", "famhist", "typea", "obesity", "alcohol", "age"),
        categorical=("famhist",),
    ),
    "faisalabad": _Site(
        RemoteFile(
            path="heart/faisalabad.csv",
            url=f"{_UCI}/00519/heart_failure_clinical_records_dataset.csv",
            sha256="9c73cea7468ff5d517801ec050fe9993da5912fce4b56f296f8df3b38dd75912",
            about="299 patients with heart failure, Faisalabad",
            alternatives=("heart/heart_failure_clinical_records_dataset.csv",),
        ),
        target="DEATH_EVENT",
        features=(
            "age",
            "anaemia",
            "creatinine_phosphokinase",
            "diabetes",
            "ejection_fraction",
            "high_blood_pressure",
            "platelets",
            "serum_creatinine",
            "serum_sodium",
            "sex",
            "smoking",
            "time",
        ),
        categorical=("anaemia", "diabetes", "high_blood_pressure", "sex", "smoking"),
    ),
    "framingham": _Site(
        RemoteFile(
            path="heart/framingham.csv",
            url=None,
            sha256=None,
            about="4,240 residents, Framingham",
        ),
        target="TenYearCHD",
        features=(
            "male",
            "age",
            "education",
            "currentSmoker",
            "cigsPerDay",
            "BPMeds",
            "prevalentStroke",
            "prevalentHyp",
            "diabetes",
            "totChol",
            "sysBP",
            "diaBP",
            "BMI",
            "heartRate",
            "glucose",
        ),
        # Six yes-or-no columns, and education: four levels whose distances mean nothing.
        categorical=("male", "education", "currentSmoker", "BPMeds", "prevalentStroke", "prevalentHyp", "diabetes"),
    ),
}


class Heart(Source):
    """Heart disease, one client a site, each with columns of its own and two classes: 1 is disease (or death).

    Splits are random, drawn from the run's seed as :func:`~fedlit.data.sources.base.random_split` says. NOTE[DIFF]: the
    shares are those of the Global Layers paper's Table 1, 33 % and 10 % of the rest; its D.2.5 says 30 % and 30 %.

    Args:
        root: a folder in which the files are looked for first.
        clients: the sites to read, among cleveland, hungarian, switzerland, va, sa, faisalabad and framingham.
        test: the share of a site's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example::

        tables = Heart(clients=["cleveland", "va"]).tables(seed=0)
    """

    name: ClassVar[str] = "heart"
    about: ClassVar[str] = "heart disease at up to seven sites; the sites have other columns"
    layout: ClassVar[str] = (
        "Clients: cleveland, sa, faisalabad by default; hungarian, switzerland, va, framingham on request.\n"
        "Columns: 13 at cleveland, hungarian, switzerland and va; 9 at sa; 12 at faisalabad; 15 at framingham.\n"
        "  Categories: sex, cp, fbs, restecg, exang, slope, ca, thal; famhist; anaemia, diabetes,\n"
        "  high_blood_pressure, sex, smoking; male, education, currentSmoker, BPMeds, prevalentStroke,\n"
        "  prevalentHyp, diabetes. All others are numbers.\n"
        "Target: 1 for disease (UCI's four: any degree above 0; sa: chd; faisalabad: DEATH_EVENT; framingham:\n"
        "  TenYearCHD), 0 for none.\n"
        "Splits: random by the run's seed, 33 % test, then 10 % of the rest validation."
    )
    licence: ClassVar[str] = (
        "UCI's sets: CC BY 4.0, and publications name the principal investigators (see the citation).\n"
        "  sa and framingham state no licence: ask their owners before passing them on."
    )
    citation: ClassVar[str] = (
        "A. Janosi (Budapest), W. Steinbrunn (Zurich), M. Pfisterer (Basel), R. Detrano (Long Beach and Cleveland)\n"
        "  (1988), Heart Disease, UCI. J. Rousseauw et al. (1983), South African Medical Journal 64:430-436, in\n"
        "  Hastie, Tibshirani and Friedman, The Elements of Statistical Learning (sa). D. Chicco and G. Jurman\n"
        "  (2020), BMC Medical Informatics and Decision Making 20:16 (faisalabad)."
    )

    def __init__(
        self,
        root: str | None = None,
        clients: Sequence[str] = ("cleveland", "sa", "faisalabad"),
        test: float = 0.33,
        validation: float = 0.1,
    ) -> None:
        check_fractions(test, validation)
        self.root = root
        self.clients = choose_clients(clients, tuple(_SITES), self.name)
        self.test = test
        self.validation = validation

    @classmethod
    def files(cls) -> tuple[RemoteFile, ...]:
        """One file a site."""
        return tuple(site.file for site in _SITES.values())

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the tables; ``seed`` draws the splits."""
        return check_tables([self._table(client, seed) for client in self.clients])

    def table(self, client: str, seed: int) -> ClientTable:
        """Read one site's file alone."""
        return Heart(self.root, [client], self.test, self.validation).tables(seed)[0]

    def sizes(self) -> dict[str, int]:
        """Bytes of each site's file."""
        return {client: locate(_SITES[client].file, self.root).stat().st_size for client in self.clients}

    def _table(self, client: str, seed: int) -> ClientTable:
        from fedlit.data.sources.reading import read_csv

        site = _SITES[client]
        path = locate(site.file, self.root)
        names = None if site.header else (*site.features, site.target)
        # Only the columns asked for are kept: the file of sa begins with a row number.
        columns = (*site.features, site.target)
        frame = read_csv(path, client=client, names=names, required=columns, missing=["?"])
        target = frame[site.target]
        if wrong := sorted(set(target.dropna().tolist()) - set(site.labels), key=str):
            raise DataError(
                f"client {client!r}, file {path}, target {site.target!r}: expected labels among {list(site.labels)}, "
                f"found {wrong[0]!r}. Fetch the file again."
            )
        return ClientTable(
            name=client,
            features=frame[list(site.features)],
            # A missing label must not become 0: it is left to the check of all tables, which counts and names it.
            target=target if target.isna().any() else (target > 0).astype(np.int64),
            splits=random_split(len(frame), seed, self.test, self.validation, client),
            categorical=site.categorical,
            positive=1,
        )
