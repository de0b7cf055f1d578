"""The small tables that scikit-learn carries: no download, no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fedlit.data.sources.base import Source, check_fractions, check_tables, choose_clients, random_split
from fedlit.data.table import ClientTable

__all__ = ["Bundled"]

_CLIENTS = ("breast_cancer", "wine", "digits", "iris")


class Bundled(Source):
    """Tables that scikit-learn carries, one client each; they share neither columns nor classes.

    Splits are random, drawn from the run's seed as :func:`~fedlit.data.sources.base.random_split` says.

    Args:
        clients: the tables to use, among breast_cancer, wine, digits and iris.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).

    Example:
        >>> [(table.name, table.features.shape) for table in Bundled().tables(seed=0)]
        [('breast_cancer', (569, 30)), ('wine', (178, 13)), ('digits', (1797, 64))]
    """

    name: ClassVar[str] = "bundled"
    about: ClassVar[str] = "small tables that scikit-learn carries; they share neither columns nor classes"
    layout: ClassVar[str] = (
        "Clients: breast_cancer (30 columns, 2 classes), wine (13, 3), digits (64, 10); iris (4, 3) on request.\n"
        "Columns: all are numbers.\n"
        "Target: the class's name (digits: the digit); malignant is breast_cancer's positive class.\n"
        "Splits: random by the run's seed, 25 % test, then 20 % of the rest validation."
    )
    licence: ClassVar[str] = "UCI's sets, CC BY 4.0, as scikit-learn (BSD) passes them on."
    citation: ClassVar[str] = "F. Pedregosa et al. (2011). Scikit-learn: machine learning in Python. JMLR 12:2825-2830."

    def __init__(
        self,
        clients: Sequence[str] = ("breast_cancer", "wine", "digits"),
        test: float = 0.25,
        validation: float = 0.2,
    ) -> None:
        check_fractions(test, validation)
        self.clients = choose_clients(clients, _CLIENTS, self.name)
        self.test = test
        self.validation = validation

    def tables(self, seed: int) -> list[ClientTable]:
        """Load the tables; ``seed`` draws the splits."""
        return check_tables([self._table(client, seed) for client in self.clients])

    def _table(self, client: str, seed: int) -> ClientTable:
        import pandas as pd
        from sklearn import datasets

        bunch = getattr(datasets, f"load_{client}")(as_frame=True)
        return ClientTable(
            name=client,
            features=bunch.data,
            target=pd.Series(bunch.target_names[bunch.target], index=bunch.data.index, name="target"),
            splits=random_split(len(bunch.data), seed, self.test, self.validation, client),
            positive="malignant" if client == "breast_cancer" else None,
        )
