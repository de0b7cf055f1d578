"""The small tables that come with scikit-learn: no download, no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable, TaskSettings
from fedlit.data.target import check_task, own_task


@dataclass(eq=False)
class Bundled(Source):
    """Tables that come with scikit-learn, one client each; they share neither columns nor classes.

    Splits are random, drawn from the run's seed as :func:`~fedlit.data.splitting.random_split` says.

    - Clients: breast_cancer (30 columns, 2 classes), wine (13, 3), digits (64, 10); iris (4, 3) and diabetes (10, a
      number) on request.
    - Columns: all are numbers, except sex in diabetes.
    - Target: the class's name (digits: the digit); malignant is the positive class of breast_cancer; diabetes: its
      progression after one year.
    - Splits: random by the run's seed, 25 % test, then 20 % of the rest validation.
    - Licence: UCI's data sets, CC BY 4.0, as distributed with scikit-learn (BSD).
    - Citation: F. Pedregosa et al. (2011). Scikit-learn: machine learning in Python. JMLR 12:2825-2830.

    Args:
        clients: the tables to use, among breast_cancer, wine, digits, iris and diabetes.
        test: the share of a table's rows that are test rows, in (0, 1).
        validation: the share of the other rows that are validation rows, in (0, 1).
        task: what is predicted, as in :class:`~fedlit.Tables`; if None, regression for diabetes and
            classification for the others.

    Example:
        >>> [(table.name, table.features.shape) for table in Bundled().tables(seed=0)]
        [('breast_cancer', (569, 30)), ('wine', (178, 13)), ('digits', (1797, 64))]
    """

    name: ClassVar[str] = "bundled"
    about: ClassVar[str] = "small tables that come with scikit-learn; they share neither columns nor classes"
    known: ClassVar[tuple[str, ...]] = ("breast_cancer", "wine", "digits", "iris", "diabetes")

    clients: Sequence[str] = ("breast_cancer", "wine", "digits")
    test: float = 0.25
    validation: float = 0.2
    task: TaskSettings | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        super().__post_init__()
        check_task(self.task, self.clients)

    def tables(self, seed: int) -> list[ClientTable]:
        """Load the tables; ``seed`` draws the splits."""
        return check_tables([self._table(client, seed) for client in self.clients])

    def _table(self, client: str, seed: int) -> ClientTable:
        import pandas as pd
        from sklearn import datasets

        number = client == "diabetes"
        bunch = getattr(datasets, f"load_{client}")(as_frame=True, **({"scaled": False} if number else {}))
        labels = bunch.target if number else bunch.target_names[bunch.target]
        return ClientTable(
            name=client,
            features=bunch.data,
            target=pd.Series(labels, index=bunch.data.index, name="progression" if number else "target"),
            splits=random_split(len(bunch.data), seed, self.test, self.validation, client),
            categorical=("sex",) if number else (),
            positive="malignant" if client == "breast_cancer" else None,
            task=own_task(self.task, client) or ("regression" if number else None),
        )
