"""Any data set of OpenML, by its name and version or by its id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlit.data.files import cache_folder
from fedlit.data.sources.base import (
    Source,
    check_client_name,
    check_fractions,
    check_tables,
    class_labels,
    random_split,
)
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.target import check_task, own_task
from fedlit.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["OpenML"]

_SEARCH = "https://www.openml.org/search?type=data"
# A name becomes part of an address and of a path in the cache; any data set of another name can be had by its id.
_NAME = re.compile(r"[A-Za-z0-9_(][A-Za-z0-9_.(),-]*")


class OpenML(Source):
    """One client: a data set of OpenML, fetched by scikit-learn's ``fetch_openml`` and kept in a cache.

    Columns of numbers are numeric; those that OpenML calls nominal, and text, are categorical. Columns that OpenML
    marks as row identifier or as to be ignored are left out. A column without any value stays, as a number
    that is missing everywhere. Splits are random, drawn from the run's seed as
    :func:`~fedlit.data.sources.base.random_split` says. The client is called what OpenML calls the data set, in lower
    case and with ``-`` for what a client's name may not hold.

    Args:
        dataset: the data set's name, or its OpenML id (a number). OpenML holds several versions under one name, and
            they can be entirely different tables. A name without a version takes the oldest version that is active on
            the day it is fetched; so give the version, or the id, which means one version for ever.
        version: the version of the name, 1 or larger. An id has none.
        target: the column to predict; the one that OpenML names if None. If you name another, OpenML's target is a
            feature like any other: list it under ``drop`` if it gives the label away.
        drop: columns to leave out, for example identifiers.
        root: the folder of the cache; fedlit's own if None. Its layout is scikit-learn's, so ``~/scikit_learn_data``
            holds what ``fetch_openml`` fetched elsewhere. What is there is read without a network.
        test: the share of the rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        task: what is predicted: ``classification``, ``regression`` or ``{name: regression, loss: huber}``. If None,
            classification where OpenML calls the target nominal or it has few values.

    Example::

        tables = OpenML("credit-g", version=1, drop=["foreign_worker"]).tables(seed=0)
        tables = OpenML(31).tables(seed=0)
    """

    name: ClassVar[str] = "openml"
    about: ClassVar[str] = "any data set of OpenML, by name and version or by id"
    layout: ClassVar[str] = (
        "Clients: one, called what OpenML calls the data set.\n"
        "Columns: numbers are numeric, all others categorical; row identifiers and ignored columns are left out.\n"
        "Target: the one that OpenML names, or the column you name.\n"
        "Splits: random by the run's seed, 20 % test, then 25 % of the rest validation."
    )
    licence: ClassVar[str] = "each data set has its own, stated on its page at https://www.openml.org."
    citation: ClassVar[str] = (
        "J. Vanschoren, J. N. van Rijn, B. Bischl, L. Torgo (2013). OpenML: networked science in machine learning.\n"
        "  SIGKDD Explorations 15(2):49-60. Each data set's page names what else to cite."
    )

    def __init__(
        self,
        dataset: str | int,
        version: int | None = None,
        target: str | None = None,
        drop: list[str] | None = None,
        root: str | Path | None = None,
        test: float = 0.2,
        validation: float = 0.25,
        task: TaskSettings | None = None,
    ) -> None:
        check_fractions(test, validation)
        self.dataset = _identified(dataset)
        if version is not None:
            if isinstance(self.dataset, int):
                raise ConfigError(
                    f"openml: version: expected none beside the id {self.dataset}, which means one version; found "
                    f"{version!r}. Take it out, or give the data set's name instead of the id."
                )
            if type(version) is not int or version < 1:
                raise ConfigError(f"openml: version: expected a whole number from 1 on, found {version!r}. Correct it.")
        if isinstance(drop, str):
            raise ConfigError(f"openml: drop: expected a list of columns, found the text {drop!r}. Write [{drop}].")
        if target is not None and target in (drop or ()):
            raise ConfigError(f"openml: drop: names {target!r}, which is the target. Take it out.")
        self.version = version
        self.target = target
        self.drop = list(drop or ())
        self.root = root
        self.test = test
        self.validation = validation
        self.task = task
        if not isinstance(task, dict) or "name" in task:
            check_task(task, ())

    def tables(self, seed: int) -> list[ClientTable]:
        """Read the table, fetched first if the cache does not hold it; ``seed`` draws the splits.

        Raises:
            ConfigError: ``target`` or ``drop`` names a column that the data set does not have.
            DataError: the data set cannot be fetched, is not what OpenML describes, or names no single target.
        """
        bunch = self._fetch()
        columns, named = bunch.feature_names, bunch.details.get("default_target_attribute", "").split(",")
        if self.target is not None:
            named = [self.target]
        if len(named) != 1 or not named[0]:
            found = _shown(named) if named[0] else "none"
            raise DataError(
                f"{self._where()}: expected OpenML to name one target, found {found}. Name one with target; there are "
                f"{_shown(columns)}."
            )
        for key, own in (("target", named[0]), *(("drop", column) for column in self.drop)):
            if own not in columns:
                raise ConfigError(
                    f"{self._where()}: {key}: expected one of its columns, found {own!r}; there are "
                    f"{_shown(columns)}.{did_you_mean(own, columns)} OpenML's row identifiers and ignored columns are "
                    "left out already."
                )
        if named[0] in self.drop:
            raise ConfigError(f"{self._where()}: drop: names {named[0]!r}, which is the target. Take it out.")
        return check_tables([self._table(bunch, named[0], seed)])

    def _table(self, bunch: Any, target: str, seed: int) -> ClientTable:
        import pandas as pd

        client = _client_name(bunch.details)
        check_task(self.task, [client])
        labels = bunch.data[target]
        nominal = "classification" if _is_category(labels) else None
        kept = [column for column in bunch.feature_names if column not in (*self.drop, target)]
        features = pd.DataFrame({column: _plain(bunch.data[column]) for column in kept}, index=bunch.data.index)
        return ClientTable(
            name=client,
            features=features,
            target=class_labels(client, _plain(labels), self.task),
            splits=random_split(len(features), seed, self.test, self.validation, client),
            categorical=tuple(c for c in kept if _is_category(bunch.data[c]) and features[c].notna().any()),
            task=own_task(self.task, client) or nominal,
        )

    def _fetch(self) -> Any:
        """Fetch the data set, with the target among its columns.

        Raises:
            DataError: for all that can go wrong outside this program.
        """
        from sklearn.datasets import fetch_openml

        folder = cache_folder() if self.root is None else Path(self.root).expanduser()
        which: dict[str, Any] = {"data_id": self.dataset}
        if isinstance(self.dataset, str):
            which = {"name": self.dataset, "version": "active" if self.version is None else self.version}
        try:
            # One quick retry: who has no network shall not wait to be told so. The slower parser, because the other
            # one fails (scikit-learn 1.9 with pandas 3) where categories are whole numbers, and then throws the cached
            # file away.
            return fetch_openml(
                **which,
                data_home=folder,
                target_column=None,
                as_frame=True,
                parser="liac-arff",
                n_retries=1,
                delay=0.25,
            )
        except Exception as error:  # what the parser raises has no public class
            raise DataError(
                f"{self._where()}: expected a table below {folder / 'openml'}, or from https://www.openml.org, found: "
                f"{' '.join(str(error).split())} ({getattr(error, 'url', type(error).__name__)}). Look it up at "
                f"{_SEARCH}; without a network, copy that folder from a machine that has fetched it; where a file "
                "there is damaged, remove the folder."
            ) from error

    def _where(self) -> str:
        if isinstance(self.dataset, int):
            return f"openml: data set {self.dataset}"
        return f"openml: data set {self.dataset!r}" + ("" if self.version is None else f", version {self.version}")


def _identified(dataset: object) -> str | int:
    """The name or the id that is meant. Digits alone are an id: a command line hands them over as text.

    Raises:
        ConfigError: if it is neither.
    """
    if isinstance(dataset, str) and dataset.isascii() and dataset.isdigit():
        dataset = int(dataset)
    if isinstance(dataset, int) and not isinstance(dataset, bool) and dataset >= 1:
        return dataset
    if isinstance(dataset, str) and _NAME.fullmatch(dataset):
        return dataset
    raise ConfigError(
        f"openml: dataset: expected a name of letters, digits and _ . ( ) , - or an id from 1 on, found {dataset!r}. "
        f"Look it up at {_SEARCH}."
    )


def _client_name(details: dict[str, Any]) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", str(details["name"]).lower()).strip("-_")[:64]
    try:
        check_client_name(name)
    except ConfigError:  # nothing is left of it, or fedlit uses the name itself
        return f"openml-{details['id']}"
    return name


def _shown(columns: Sequence[str]) -> str:
    return ", ".join(columns[:20]) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")


def _is_category(column: pd.Series) -> bool:
    from pandas.api import types

    return types.is_bool_dtype(column.dtype) or not types.is_numeric_dtype(column.dtype)


def _plain(column: pd.Series) -> pd.Series:
    """The same values in a type that knows one way of being missing: numbers as float64 or int64, text as it is."""
    if column.isna().all():
        return column.astype(np.float64)
    if column.dtype.name == "category":
        names = column.cat.categories
        # Classes and codes that are whole numbers become numbers: 2 comes before 10, as in a CSV file of the same.
        if all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", str(name)) for name in names):
            column = column.cat.rename_categories([int(name) for name in names])
        return column.astype(object).infer_objects()
    if _is_category(column):
        return column
    return column.astype(np.float64 if column.isna().any() or column.dtype.kind == "f" else np.int64)
