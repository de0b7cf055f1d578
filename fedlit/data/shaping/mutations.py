"""Faults that are planted in chosen clients' tables, to see whether a method finds them and what they cost.

A fault is in all rows of a client, whatever their split: a wrong unit or a flipped label is a matter of how its table
was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedlit.data.table import ClientTable
from fedlit.data.target import has_classes, without_classes
from fedlit.errors import ConfigError, did_you_mean
from fedlit.seeding import derive_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Mutation", "Planted", "mutate"]

Kind = Literal["scale", "shift", "clip", "swap", "missing", "flip"]
_FAULTS: dict[Kind, tuple[float, tuple[float, float], str]] = {
    "scale": (10.0, (-np.inf, np.inf), "{named} times {by:g}"),
    "shift": (2.0, (-np.inf, np.inf), "{named} plus {by:g} standard deviations"),
    "clip": (0.25, (0, 0.5), "{named} clipped at its quantiles {by:g} and {rest:g}"),
    "missing": (0.8, (0, 1), "{named} missing in {percent:g} % of the rows with one label"),
    "swap": (0.0, (0, 0), "{named} swapped"),
    "flip": (0.0, (0, 0), "labels flipped"),
}
"""Kind → its ``by`` where none is given, between what that lies, and what is said of it."""


@dataclass(frozen=True)
class Mutation:
    """A fault to plant in one client.

    Attributes:
        kind: ``scale``, each value times ``by`` (a wrong unit); ``shift``, plus ``by`` standard deviations of the
            column over all clients' training rows (another protocol); ``clip``, no lower than the client's quantile
            ``by`` and no higher than its quantile 1 − ``by`` (a limited instrument); ``swap`` with another column;
            ``missing``, values of rows with the positive label (of more than two, the client's most frequent one) are
            lost with probability ``by``; ``flip``, the two labels exchanged.
        client: where; drawn by the run's seed among clients without a fault if None.
        feature: a column of numbers; drawn if None; of no use with ``flip``.
        other: the column to swap with; drawn if None.
        by: how much; 10, 2, 0.25 and 0.8 for scale, shift, clip and missing if None.
    """

    kind: Kind
    client: str | None = None
    feature: str | None = None
    other: str | None = None
    by: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in _FAULTS:
            raise ConfigError(f"data.mutations: kind: expected one of {', '.join(_FAULTS)}, found {self.kind!r}")
        unused = {"feature": self.kind == "flip", "by": self.kind in ("flip", "swap"), "other": self.kind != "swap"}
        for key in (name for name, useless in unused.items() if useless and getattr(self, name) is not None):
            raise ConfigError(
                f"data.mutations: {self.kind}: expected no {key}, found {getattr(self, key)}; leave it out"
            )
        if self.by is not None and (not np.isfinite(self.by) or self.by == {"scale": 1, "shift": 0}.get(self.kind)):
            raise ConfigError(
                f"data.mutations: {self.kind}: expected a finite by that changes something, found {self.by}"
            )
        low, high = _FAULTS[self.kind][1]
        if self.by is not None and not low < self.by <= high:
            raise ConfigError(
                f"data.mutations: {self.kind}: expected by above {low} and at most {high}, found {self.by}"
            )


@dataclass(frozen=True)
class Planted:
    """A fault as it was planted.

    Attributes:
        kind: see :class:`Mutation`.
        client: where.
        features: the columns that are not what they were; empty for flipped labels.
        by: how much.
    """

    kind: Kind
    client: str
    features: tuple[str, ...]
    by: float

    def __str__(self) -> str:
        what = _FAULTS[self.kind][2].format(
            named=" and ".join(self.features), by=self.by, rest=1 - self.by, percent=100 * self.by
        )
        return f"{self.client}: a fault was planted: {what}"


def mutate(
    tables: Sequence[ClientTable], mutations: Sequence[Mutation], seed: int, names: Sequence[str] | None = None
) -> tuple[list[ClientTable], list[Planted]]:
    """Plant faults.

    Args:
        tables: one per client; left as they are.
        mutations: in this order; what they leave open is drawn by (seed, position in this list).
        seed: the run's seed.
        names: of all clients, where some are elsewhere: faults that these get are theirs to plant.

    Returns:
        The tables with their faults, and what was planted.

    Raises:
        ConfigError: a client or column that there is not, labels to flip that are not two, more faults than clients.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> tables = Bundled(clients=["wine", "iris"]).tables(seed=0)
        >>> changed, planted = mutate(tables, [Mutation("scale", client="wine", feature="ash")], seed=0)
        >>> float(changed[0].features["ash"].iloc[0] / tables[0].features["ash"].iloc[0]), str(planted[0])
        (10.0, 'wine: a fault was planted: ash times 10')
    """
    original = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    everyone, taken = sorted(names or original), {own.client for own in mutations}
    changed, planted = dict(original), list[Planted]()
    for position, mutation in enumerate(mutations):
        rng = np.random.default_rng(derive_seed(seed, "mutation", position))
        client = mutation.client or _draw(rng, [name for name in everyone if name not in taken], "clients")
        if client not in everyone:
            raise ConfigError(
                f"data.mutations: expected one of the clients {', '.join(everyone)}, found {client!r}."
                + did_you_mean(client, everyone)
            )
        taken.add(client)
        if client not in original:
            continue
        if mutation.kind == "shift" and len(original) < len(everyone):
            raise ConfigError(
                "data.mutations: shift: expected the tables of all clients, by whose rows together it is measured, "
                f"found those of {', '.join(original)}; take scale, or run where all tables are"
            )
        by = _FAULTS[mutation.kind][0] if mutation.by is None else mutation.by
        if mutation.kind == "flip":
            changed[client] = _flip(changed[client])
            planted.append(Planted("flip", client, (), by))
            continue
        # chosen by (and measured in units of) the tables as they were
        features = _columns(original[client], mutation, rng)
        before = list(original.values())
        changed[client] = _change(changed[client], original[client], mutation.kind, features, by, before, rng)
        planted.append(Planted(mutation.kind, client, features, by))
    return [changed[table.name] for table in tables], planted


def _draw(rng: np.random.Generator, among: Sequence[str], what: str) -> str:
    if not among:
        raise ConfigError(f"data.mutations: expected at most as many faults as there are {what}, found more")
    return among[int(rng.integers(len(among)))]


def _columns(table: ClientTable, mutation: Mutation, rng: np.random.Generator) -> tuple[str, ...]:
    """The columns to change: as named, else drawn among the numbers that vary in training."""
    train = table.features.iloc[table.splits["train"]]
    numbers = [str(name) for name in train if name not in table.categorical]
    varying = [name for name in numbers if train[name].nunique() > 2]
    chosen: list[str] = []
    for name in [mutation.feature, mutation.other] if mutation.kind == "swap" else [mutation.feature]:
        if name is not None and (name not in numbers or name in chosen):
            raise ConfigError(
                f"data.mutations: {mutation.kind}: expected a column of numbers of {table.name}, found {name!r}; these "
                f"are {', '.join(numbers)}." + did_you_mean(name, numbers)
            )
        taken = (*chosen, mutation.other)
        chosen.append(name or _draw(rng, [own for own in varying if own not in taken], f"columns at {table.name}"))
    return tuple(chosen)


def _flip(table: ClientTable) -> ClientTable:
    labels = sorted(table.target.unique().tolist()) if has_classes(table) else []
    if len(labels) != 2:
        raise ConfigError(
            f"data.mutations: flip: expected two labels at {table.name}, found "
            f"{len(labels) or without_classes(table.target)}; choose another client or fault"
        )
    return replace(table, target=table.target.map({labels[0]: labels[1], labels[1]: labels[0]}))


def _change(
    table: ClientTable,
    original: ClientTable,
    kind: Kind,
    features: tuple[str, ...],
    by: float,
    everywhere: Sequence[ClientTable],
    rng: np.random.Generator,
) -> ClientTable:
    frame = table.features.copy()
    own = frame[features[0]].astype(np.float64)
    if kind == "scale":
        frame[features[0]] = own * by
    elif kind == "shift":
        frame[features[0]] = own + by * _deviation(everywhere, features[0])
    elif kind == "clip":
        low, high = own.iloc[table.splits["train"]].quantile([by, 1 - by])
        frame[features[0]] = own.clip(low, high)
    elif kind == "swap":
        first, second = features
        frame[first], frame[second] = table.features[second], table.features[first]
    else:
        # by the labels as they were: a client's labels may be flipped too
        labels = original.target
        if isinstance(labels.name, tuple):
            raise ConfigError(
                f"data.mutations: missing: expected one label a row at {table.name}, found {without_classes(labels)}; "
                "choose another client or fault"
            )
        if original.positive is not None:
            positive = original.positive
        elif labels.nunique() > 2:
            positive = labels.iloc[original.splits["train"]].mode().iloc[0]
        else:
            positive = sorted(labels.unique().tolist())[-1]
        lost = (labels == positive).to_numpy() & (rng.random(len(frame)) < by)
        frame[features[0]] = own.mask(lost)
    return replace(table, features=frame)


def _deviation(tables: Sequence[ClientTable], column: str) -> float:
    parts: list[pd.Series] = [
        table.features[column].iloc[table.splits["train"]] for table in tables if column in table.features
    ]
    return float(np.nanstd(np.concatenate([part.to_numpy(np.float64, na_value=np.nan) for part in parts])))
