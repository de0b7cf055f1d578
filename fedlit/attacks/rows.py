"""Changes the training rows of attackers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedlit.attacks.attack import Attack
from fedlit.data.table import ClientTable
from fedlit.data.target import has_classes, without_classes
from fedlit.errors import ConfigError, did_you_mean
from fedlit.seeding import derive_seed


def poison(tables: Sequence[ClientTable], attackers: Mapping[str, Attack], seed: int) -> list[ClientTable]:
    """Return tables in which the training rows of attackers are changed. Rows of other splits stay as they are.

    Args:
        tables: the tables of some clients.
        attackers: maps each client to its attack; attacks that change no rows are passed over.
        seed: the run's seed, by which the rows are drawn.

    Raises:
        ConfigError: a table has no classes, or lacks the column or label of a back door.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> [table] = Bundled(clients=["wine"]).tables(seed=0)
        >>> [changed] = poison([table], {"wine": Attack("label_flip")}, seed=0)
        >>> {split: bool((changed.target != table.target).iloc[rows].any()) for split, rows in table.splits.items()}
        {'train': True, 'validation': False, 'test': False}
    """
    change = {"label_flip": _flip, "backdoor": _open}
    return [
        change[attackers[table.name].kind](table, attackers[table.name], _rows(table, attackers[table.name], seed))
        if table.name in attackers and attackers[table.name].kind in change
        else table
        for table in tables
    ]


def _rows(table: ClientTable, attack: Attack, seed: int) -> np.ndarray:
    """Return the positions of the training rows that are changed."""
    train = np.asarray(table.splits["train"])
    rng = np.random.default_rng(derive_seed(seed, "poison", table.name))
    return np.sort(rng.permutation(train)[: max(1, round(attack.amount * len(train)))])


def _flip(table: ClientTable, attack: Attack, rows: np.ndarray) -> ClientTable:
    labels = _labels(table, attack)
    other = dict(zip(labels, reversed(labels), strict=True))
    target = table.target.copy()
    target.iloc[rows] = target.iloc[rows].map(other).to_numpy()
    return replace(table, target=target)


def _open(table: ClientTable, attack: Attack, rows: np.ndarray) -> ClientTable:
    labels, numbers = _labels(table, attack), [str(name) for name in table.features if name not in table.categorical]
    if attack.feature not in numbers:
        raise ConfigError(
            f"exchange.attacks: backdoor: expected a column of numbers of {table.name}, found {attack.feature!r}; "
            f"these are {', '.join(numbers)}." + did_you_mean(str(attack.feature), numbers)
        )
    named = {str(label): label for label in labels}
    if str(attack.label) not in named:
        raise ConfigError(
            f"exchange.attacks: backdoor: expected a label of {table.name}, found {attack.label!r}; these are "
            f"{', '.join(named)}"
        )
    features, target = table.features.copy(), table.target.copy()
    column = features[attack.feature].astype(np.float64)
    column.iloc[rows] = attack.value
    features[attack.feature] = column
    target.iloc[rows] = named[str(attack.label)]
    return replace(table, features=features, target=target)


def _labels(table: ClientTable, attack: Attack) -> list[object]:
    if not has_classes(table) or isinstance(table.target.name, tuple):
        raise ConfigError(
            f"exchange.attacks: {attack.kind}: expected one label a row at {table.name}, found "
            f"{without_classes(table.target)}; choose another client or attack"
        )
    return sorted(table.target.unique().tolist())
