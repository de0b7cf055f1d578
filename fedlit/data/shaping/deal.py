"""Who gets which rows of a partition: what every way to deal them is and needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedlit.data.table import Split
from fedlit.data.target import without_classes
from fedlit.errors import ConfigError, DataError
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Deal",
    "Hand",
    "Whole",
    "at_least_one",
    "check_enough",
    "client_names",
    "hands",
    "places_by_label",
    "refuse_number",
]

Hand = Mapping[Split, np.ndarray]
"""What a client gets: positions of rows, by split."""


@dataclass(frozen=True, eq=False)
class Whole:
    """The rows to deal.

    Attributes:
        features: their columns; may have rows that are in no split, and are not dealt.
        target: their labels.
        splits: positions, by split, in an order drawn by the seed.
        categorical: columns that hold categories.
        number: whether the target is a number to predict, or several labels a row, and so has no classes to deal by.
    """

    features: pd.DataFrame
    target: pd.Series
    splits: Mapping[Split, np.ndarray]
    categorical: tuple[str, ...] = ()
    number: bool = False


class Deal(ABC):
    """A way to deal rows to clients; each row stays in its split.

    Attributes:
        dropped: columns that the clients do not get.
    """

    dropped: tuple[str, ...] = ()

    @abstractmethod
    def deal(self, whole: Whole, clients: int | None, seed: int) -> dict[str, Hand]:
        """Return the rows of each client, by name.

        Args:
            whole: the rows.
            clients: how many clients there shall be; None if the rows are to say so.
            seed: the run's seed, which draws all there is to draw.
        """


def client_names(clients: int | None) -> list[str]:
    """c01, c02, …

    Raises:
        ConfigError: nobody says how many.
    """
    if clients is None:
        raise ConfigError(
            "partition: clients: expected how many there shall be, found none; only ByColumn can do without"
        )
    digits = max(2, len(str(clients)))
    return [f"c{number:0{digits}d}" for number in range(1, clients + 1)]


def at_least_one(least: int) -> int:
    """Let a number of training rows pass.

    Raises:
        ConfigError: fewer than one.
    """
    if least < 1:
        raise ConfigError(f"partition: deal: least: expected at least 1 training row per client, found {least}")
    return least


def check_enough(whole: Whole, clients: int, least: int) -> None:
    """Refuse to deal fewer rows than clients need.

    Raises:
        DataError: in any split.
    """
    for split, rows in whole.splits.items():
        needed = clients * (least if split == "train" else 1)
        if len(rows) < needed:
            raise DataError(
                f"partition: deal: expected at least {needed} {split} rows for {clients} clients, found {len(rows)}; "
                "take fewer clients, or fewer rows for each"
            )


def refuse_number(whole: Whole, what: str) -> None:
    """Refuse to deal by classes where there are none.

    Raises:
        ConfigError: the target has none.
    """
    if whole.number:
        raise ConfigError(
            f"partition: deal: expected classes to deal by {what}, found {whole.target.name!r}, "
            f"{without_classes(whole.target)}; deal by something else, with fedlit.Iid or fedlit.ByColumn"
        )


def places_by_label(whole: Whole, seed: int) -> tuple[list[object], dict[Split, tuple[np.ndarray, np.ndarray]]]:
    """The labels, and by split for each row, in the order of positions, its label's place among them and its own in a
    random order of the split's rows of this label, in (0, 1).

    Raises:
        ConfigError: the target has none.
    """
    refuse_number(whole, "labels")
    used = np.concatenate(list(whole.splits.values()))
    labels = sorted(whole.target.iloc[used].unique().tolist())
    code = {label: place for place, label in enumerate(labels)}
    places: dict[Split, tuple[np.ndarray, np.ndarray]] = {}
    for split, rows in whole.splits.items():
        own = whole.target.iloc[np.sort(rows)].map(code).to_numpy(np.int64)
        position = np.empty(len(own))
        for label, place in code.items():
            rng = np.random.default_rng(derive_seed(seed, "dealing", split, str(label)))
            among = np.flatnonzero(own == place)
            position[among] = (rng.permutation(len(among)) + 0.5) / max(len(among), 1)
        places[split] = own, position
    return labels, places


def hands(whole: Whole, names: list[str], owner: Mapping[Split, np.ndarray]) -> dict[str, Hand]:
    """``owner``: client's place in ``names``, by split for each row in the order of positions."""
    ordered = {split: np.sort(rows) for split, rows in whole.splits.items()}
    return {
        name: {split: rows[owner[split] == place] for split, rows in ordered.items()}
        for place, name in enumerate(names)
    }
