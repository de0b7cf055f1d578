"""Any data set of OpenML, by its name and version or by its id."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.error import HTTPError

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
        try:
            bunch = self._fetch("default-target" if self.target is None else self.target)
        except _UnknownTarget as error:
            columns = self._fetch(None).feature_names
            raise ConfigError(
                f"{self._where()}: target: expected one of its columns, found {self.target!r}; there are "
                f"{_shown(columns)}.{did_you_mean(str(self.target), columns)} Correct the name."
            ) from error
        if len(bunch.target_names) != 1:
            found = _shown(bunch.target_names) if bunch.target_names else "none"
            raise DataError(
                f"{self._where()}: expected OpenML to name one target, found {found}. Name one with target; there are "
                f"{_shown([*bunch.target_names, *bunch.feature_names])}."
            )
        return check_tables([self._table(bunch, seed)])

    def _table(self, bunch: Any, seed: int) -> ClientTable:
        import pandas as pd

        (target,) = bunch.target_names
        client = _client_name(bunch.details)
        check_task(self.task, [client])
        nominal = "classification" if _is_category(bunch.target) else None
        for column in self.drop:
            if column == target:
                raise ConfigError(
                    f"{self._where()}: drop: names {column!r}, which is the target. Take it out, or name another "
                    f"target."
                )
            if column not in bunch.feature_names:
                raise ConfigError(
                    f"{self._where()}: drop: expected names of columns, found {column!r}; there are "
                    f"{_shown(bunch.feature_names)}.{did_you_mean(column, bunch.feature_names)} OpenML's row "
                    f"identifiers and ignored columns are left out already."
                )
        kept = [column for column in bunch.feature_names if column not in self.drop]
        features = pd.DataFrame({column: _plain(bunch.data[column]) for column in kept}, index=bunch.data.index)
        return ClientTable(
            name=client,
            features=features,
            target=class_labels(client, _plain(bunch.target), self.task),
            splits=random_split(len(features), seed, self.test, self.validation, client),
            categorical=tuple(c for c in kept if _is_category(bunch.data[c]) and features[c].notna().any()),
            task=own_task(self.task, client) or nominal,
        )

    def _fetch(self, target: str | None) -> Any:
        """What ``fetch_openml`` returns.

        Raises:
            _UnknownTarget: there is no such column.
            DataError: for all else that can go wrong outside this program.
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
                target_column=target,
                as_frame=True,
                parser="liac-arff",
                n_retries=1,
                delay=0.25,
            )
        except HTTPError as error:
            raise DataError(
                f"{self._where()}: expected OpenML to send it, found the answer {error.code} ({error.reason}) from "
                f"{error.url}. Look at {_SEARCH} whether the data set and the server are there, and try again."
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error, HTTPException) as error:
            raise DataError(
                f"{self._where()}: expected a complete answer of OpenML, found one that is cut short or damaged "
                f"({error}). Try again: what is damaged below {folder / 'openml'} is then fetched anew."
            ) from error
        except json.JSONDecodeError as error:
            raise DataError(
                f"{self._where()}: expected an answer of OpenML, found something else ({error}). Look whether the "
                f"network asks you to log in, and try again."
            ) from error
        except OSError as error:
            raise DataError(
                f"{self._where()}: expected it below {folder / 'openml'}, or a connection to https://www.openml.org to "
                f"fetch it, found neither ({error}). Run it once where there is a network: what is fetched stays in "
                f"that folder, which you may also copy from another machine or name with root."
            ) from error
        except Exception as error:  # what the parser raises has no public class
            if isinstance(error, KeyError) and "target_column=" in str(error):
                raise _UnknownTarget from error
            raise DataError(f"{self._where()}: {_refusal(str(error), folder)}") from error

    def _where(self) -> str:
        if isinstance(self.dataset, int):
            return f"openml: data set {self.dataset}"
        return f"openml: data set {self.dataset!r}" + ("" if self.version is None else f", version {self.version}")


class _UnknownTarget(Exception):
    """The target asked for is no column of the data set."""


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


def _refusal(reason: str, folder: Path) -> str:
    """What to say when ``fetch_openml`` refuses an answer of OpenML for this reason."""
    if "checksum" in reason:
        return (
            f"expected the file that OpenML describes, found one with another checksum ({reason}). Remove "
            f"{folder / 'openml'} and try again; if it stays so, OpenML's own copy is damaged: take another version."
        )
    if "not found" in reason or reason.startswith("No active dataset"):
        return (
            f"expected a data set of OpenML, found none ({reason.rstrip('.')}). Look up its name, version and id at "
            f"{_SEARCH}."
        )
    if reason.startswith("Sparse"):
        return "expected a table of rows and columns, found the sparse format. Take another version of the data set."
    if "missing values" in reason and "arget" in reason:
        return f"expected a label in every row, found rows without one ({reason}) Name another target."
    return (
        f"expected a table that scikit-learn can read, found one that it refuses ({' '.join(reason.split())}). Name "
        f"another target or take another version of the data set."
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
