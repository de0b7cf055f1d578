"""Any OpenML data set, by its name and version or by its id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.files import cache_folder
from fedlit.data.reach import unreachable
from fedlit.data.sources.base import RESERVED, Source, check_tables, client_name
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.targets import check_task, class_labels, outcome_for, task_for
from fedlit.errors import DataError, described, expect, told_as
from fedlit.outcomes import DEFAULT_TASK
from fedlit.show.text import shorten

if TYPE_CHECKING:
    import pandas as pd

_SITE = "https://www.openml.org"


@dataclass(eq=False)
class OpenML(Source):
    """One client: an OpenML data set, fetched by scikit-learn's ``fetch_openml`` and cached.

    Columns of numbers are numeric; columns that OpenML calls nominal, and text, are categorical.
    Columns that OpenML marks as row identifiers or as ignored are left out. A column without values
    is kept as a number that is always missing. Splits are random, drawn from the run's seed as
    :func:`~fedlit.data.splitting.random_split` says. The client has the data set's name on OpenML,
    in lower case, with ``_`` for characters that a client name cannot have.

    - Clients: one, with the data set's name on OpenML.
    - Columns: numbers are numeric, all others categorical; row identifiers and ignored columns are
      left out.
    - Target: the one that OpenML states, or the column you name.
    - Splits: random by the run's seed, 20 % test, then 25 % of the rest validation.
    - Licence: each data set has its own, stated on its page at https://www.openml.org.
    - Citation: J. Vanschoren, J. N. van Rijn, B. Bischl, L. Torgo (2013). OpenML: networked science
      in machine learning. SIGKDD Explorations 15(2):49-60. Each data set's page states what else to
      cite.

    Args:
        dataset: the data set's name, or its OpenML id (a number). OpenML holds several versions
            under one name, and these can be entirely different tables. A name without a version
            means the oldest version that is active on the day it is fetched; give the version, or
            the id, which always means the same version.
        version: the version under that name, 1 or larger. An id has none.
        target: the column to predict; the one that OpenML names if None. If you name another,
            OpenML's target is a feature like any other: leave it out (``data.columns: ['!NAME']``)
            if it gives the label away.
        root: the cache folder; fedlit's own if None. Its layout is that of scikit-learn, so you can
            name ``~/scikit_learn_data``, where ``fetch_openml`` stores files. What is cached is
            read without a network.
        test: the share of the rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        task: what is predicted: ``classification``, ``regression`` or ``{name: regression, loss:
            huber}``. If None, classification if OpenML calls the target nominal or it has few
            values.

    Example::

        tables = OpenML("credit-g", version=1).tables(seed=0)
        tables = OpenML(31).tables(seed=0)
    """

    name: ClassVar[str] = "openml"

    dataset: str | int
    version: int | None = None
    target: str | None = None
    root: str | Path | None = None
    test: float = 0.2
    validation: float = 0.25
    task: TaskSettings | None = None

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the table, after fetching it if it is not cached; ``seed`` draws the splits.

        Raises:
            ConfigError: ``target`` names a column that the data set does not have, or OpenML names
                no single one.
            DataError: The data set cannot be fetched, or does not match OpenML's description.
        """
        from pandas.api.types import is_numeric_dtype

        bunch = self._fetch()
        columns = bunch.feature_names
        target = self.target or bunch.details.get("default_target_attribute", "")
        key = f"openml: data set {self.dataset!r}: target"
        expected = f"one of {shorten(columns, 20)}"
        expect(target in columns, key, expected, target, known=columns)
        client = client_name(str(bunch.details["name"]).lower())
        if client in RESERVED:
            client = f"openml-{bunch.details['id']}"
        check_task(self.task, [client])
        task = task_for(self.task, client)
        frame = bunch.data.apply(_plain)
        classes = DEFAULT_TASK if not is_numeric_dtype(bunch.data[target]) else None
        features = frame.drop(columns=target)
        nominal = [name for name in features if not is_numeric_dtype(bunch.data[name])]
        table = ClientTable(
            name=client,
            features=features,
            target=class_labels(client, frame[target], outcome_for(task, client)),
            splits=random_split(len(features), seed, self.test, self.validation, client),
            categorical=tuple(name for name in nominal if features[name].notna().any()),
            task=task or classes,
        )
        return check_tables([table])

    def _fetch(self) -> Any:
        """Return the data set, with the target among its columns."""
        from sklearn.datasets import fetch_openml

        folder = cache_folder() if self.root is None else Path(self.root).expanduser()
        dataset = str(self.dataset)
        version = self.version or "active"
        # An id may be text, because a command line passes on text.
        query = {"data_id": int(dataset)} if dataset.isdecimal() else {"name": dataset}
        expected = (
            f"openml: data set {self.dataset!r}, version {version}: expected it below "
            f"{folder / 'openml'} or from {_SITE}"
        )
        advice = "without a network copy that folder from elsewhere; remove it if it is damaged"
        if not _was_asked_before(folder, dataset):  # scikit-learn would wait without end.
            for reason in unreachable([_SITE]).values():
                raise DataError(f"{expected}, found: {reason}; {advice}")
        # There is one quick retry, so that nobody waits long without a network. The slower parser
        # is taken, because the other one fails (scikit-learn 1.9 with pandas 3) if categories are
        # whole numbers, and then removes the cached file. Its errors have no public class.
        failure = told_as(
            lambda error: DataError(
                f"{expected}, found: {' '.join(described(error).split())}; {advice}"
            )
        )
        with failure:
            return fetch_openml(
                **query,
                version=version,
                data_home=folder,
                target_column=None,
                as_frame=True,
                parser="liac-arff",
                n_retries=1,
                delay=0.25,
            )


def _was_asked_before(folder: Path, dataset: str) -> bool:
    """Return whether scikit-learn has stored OpenML's first answer about a data set."""
    answers = folder / "openml" / "openml.org" / "api" / "v1" / "json" / "data"
    if dataset.isdecimal():
        return (answers / f"{dataset}.gz").is_file()
    return (answers / "list" / "data_name" / dataset.lower()).is_dir()


def _plain(column: pd.Series) -> pd.Series:
    """Convert to a type with a single missing value. Classes and codes that are whole numbers
    become numbers: 2 comes before 10, as in a CSV file of the same.
    """
    if column.isna().all():
        return column.astype(np.float64)
    if column.dtype.name != "category":
        return column
    if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", str(name)) for name in column.cat.categories):
        column = column.cat.rename_categories(int)
    return column.astype(object).infer_objects()
