"""From raw tables to tensors: encoders per client, the common space of FedAvg, the pooled client of the
centralized baseline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from pandas.api.types import is_numeric_dtype
from torch import Tensor

from fedlit.data.columns import Categories, Learnt, Meetings, Scaling, inputs
from fedlit.data.common import Common, Group, told_of_groups, two_kinds
from fedlit.data.sources.base import check_tables
from fedlit.data.table import SPLITS, ClientTable, Split
from fedlit.data.target import agree_on_task, share_targets, target_facts, told_of_targets
from fedlit.errors import ConfigError, DataError
from fedlit.spec import ClientSpec, Site
from fedlit.tasks import Task

__all__ = [
    "POOLED_CLIENT",
    "UNION_SITE",
    "Align",
    "Categories",
    "EncodedClient",
    "Rows",
    "Scaling",
    "encode",
    "told_before",
]

Align = Literal["none", "features", "classes", "both"]

POOLED_CLIENT = "centralized"
UNION_SITE = "all"


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of one split.

    Attributes:
        x: (n, d) float32.
        y: (n,) as the client's task encodes its target: int64, position of the label in the client's ``classes``, −1
            for a label that is not among them; or float32, a standardised number.
        row: (n,) int64, the rows' numbers in the source.
    """

    x: Tensor
    y: Tensor
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class EncodedClient:
    """A client's tensors: training rows, and for each of its sites the rows of every split.

    ``notes`` says what a person should know about the table: columns without information, labels unseen in training.
    ``categorical`` names the features that are category codes.
    """

    spec: ClientSpec
    train: Rows
    sites: Mapping[str, Mapping[Split, Rows]]
    notes: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()

    def fingerprint(self) -> str:
        """Changes with any number, label or split: a checkpoint knows by it what it was trained on."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.spec.features, self.spec.classes)).encode())
        digest.update(b"" if self.spec.classes else repr(self.spec.task).encode())
        digest.update(repr(sorted(self.spec.common.items())).encode() if self.spec.common else b"")
        for site, splits in sorted(self.sites.items()):
            for split, rows in splits.items():
                digest.update(f"{site}/{split}/{len(rows)}".encode())
                for values in (rows.x.numpy(), rows.y.numpy(), rows.row):
                    digest.update(np.ascontiguousarray(values).data)
        return digest.hexdigest()


def encode(
    tables: Sequence[ClientTable],
    *,
    align: Align = "none",
    scaling: Scaling = "client",
    pool: bool = False,
    categories: Categories = "codes",
    groups: Sequence[Group] | None = None,
) -> list[EncodedClient]:
    """Encode tables with what is learnt from training rows alone.

    Numbers are standardised over the observed training rows and missing ones set to the training mean (0); a column
    without any observed number becomes 0 throughout. Categories become ordinal codes, −1 where missing or unseen in
    training, or indicators. Labels become positions in the sorted list of training labels.

    Args:
        tables: one per client, in any order; the result is ordered by name.
        align: whether clients get a common input space (``features``: the union of columns by name, 0 where a client
            has no such column, category codes from the union), a common label encoder (``classes``), ``both`` or
            ``none``.
        scaling: whether numbers are standardised by each client's own training rows (``client``), by the count, mean
            and variance that all clients who have the column tell of theirs (``pooled``), or stay what they are
            (``none``; missing ones become the client's mean).
        pool: put the rows of all clients into one, named ``centralized``, scored on each of them and on ``all``.
            Needs ``align="both"``.
        categories: whether a column of categories becomes one of ``codes``, or ``indicators``: a column of 0 and 1
            for each category (``name=category``), a single one where there are two; 0.5 where missing.
        groups: clients that share columns (see :func:`fedlit.data.common.find_groups`). Theirs are coded alike, and
            ``scaling="pooled"`` then pools these alone, unless ``align`` makes all columns common.

    Raises:
        DataError: a table that cannot be encoded; names the client and the column.
        ConfigError: ``pool`` without ``align="both"``.
    """
    tables = sorted(tables, key=lambda table: table.name)
    if pool and align != "both":
        raise ConfigError(f"pool: true puts all rows into one table and so needs align: both, found align: {align}")
    common_features, common_classes = align in ("features", "both"), align in ("classes", "both")
    check_tables(tables)
    _check_kinds(tables, across=common_features or (scaling == "pooled" and groups is None))

    told = {table.name: target_facts(table) for table in tables}
    told = share_targets(told) if pool else told
    tasks = {name: agree_on_task(name, told, classes=common_classes) for name in told}
    alike, pooled = _meetings(tables, align, scaling, groups)
    learnt = Learnt(tables, alike=alike, pooled=pooled)
    encoded_rows = {table.name: inputs(table, learnt, scaling, categories) for table in tables}
    made = {name for made_of, _ in encoded_rows.values() for inputs_of in made_of.values() for name in inputs_of}
    columns = sorted(made) if common_features else None

    encoded = []
    for table in tables:
        made_of, x = encoded_rows[table.name]
        features = [name for inputs_of in made_of.values() for name in inputs_of]
        absent = tuple(name for name in columns or () if name not in features)
        if columns is not None:
            wide = np.zeros((len(x), len(columns)), np.float32)
            wide[:, [columns.index(feature) for feature in features]] = x
            x, features = wide, columns
        y = tasks[table.name].encode(table.target)
        splits = {
            split: Rows(torch.from_numpy(x[rows]), y[rows], table.features.index.to_numpy()[rows])
            for split in SPLITS
            for rows in [table.splits[split]]
        }
        sizes: dict[str, int] = {split: len(rows) for split, rows in splits.items()}
        task = tasks[table.name].fit(splits["train"].y)
        site = Site(table.name, tuple(map(task.classes.index, told[table.name].get("labels", ()))), sizes)
        common = None if groups is None else _common_inputs(groups, table.name, made_of)
        spec = ClientSpec(
            table.name,
            tuple(features),
            task.classes,
            sizes,
            (site,),
            task.class_rows,
            *_moments(splits["train"].x),
            absent=absent,
            common=common,
            concept=table.concept,
            task=task,
        )
        notes = _notes(table, learnt.train[table.name], task, splits["validation"].y)
        coded = learnt.categorical(table)
        codes = tuple(column for column in made_of if column in coded) if categories == "codes" else ()
        encoded.append(EncodedClient(spec, splits["train"], {table.name: splits}, notes, codes))
    return [_pool(encoded)] if pool else encoded


def _meetings(
    tables: Sequence[ClientTable], align: Align, scaling: Scaling, groups: Sequence[Group] | None
) -> tuple[Meetings, Meetings]:
    """Column → the clients at which it means the same; and → those by whose numbers together it is standardised."""
    columns = {str(column) for table in tables for column in table.features}
    everywhere = {c: frozenset(table.name for table in tables if c in table.features) for c in columns}
    grouped = {c: frozenset[str]().union(*(g.clients for g in groups or () if c in g.columns)) for c in columns}
    alike = everywhere if align in ("features", "both") else grouped
    return alike, {} if scaling != "pooled" else everywhere if groups is None else alike


def _common_inputs(
    groups: Sequence[Group], client: str, made_of: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Group → the inputs that its columns became, of the groups that a client is in."""
    own = [group for group in groups if client in group.clients]
    return {group.name: tuple(name for column in group.columns for name in made_of[column]) for group in own}


def told_before(
    tables: Sequence[ClientTable],
    align: Align,
    scaling: Scaling,
    groups: Sequence[Group] | None = None,
    common: Common | None = None,
) -> list[dict[str, Any]]:
    """What clients tell each other before the first step, so that their inputs and outputs fit.

    Returns:
        For each kind: ``what`` is told, by reason of which ``key``, of which ``columns``, and, where numbers are sent,
        ``numbers``: client → how many.
    """
    told: list[dict[str, Any]] = []
    if align in ("features", "both"):
        names = {str(name) for table in tables for name in table.features}
        what = "names of columns and categories"
        told.append({"what": what, "key": f"data.align: {align}", "columns": sorted(names)})
    told += told_of_targets({table.name: target_facts(table) for table in tables}, align)
    if groups is not None and common is not None:
        told += told_of_groups(tables, groups, common)
    if scaling == "pooled":
        _, pooled = _meetings(tables, align, scaling, groups)
        coded = {(table.name, column) for table in tables for column in table.categorical}
        own = {
            table.name: [c for c in pooled if table.name in pooled[c] and not coded & {(name, c) for name in pooled[c]}]
            for table in tables
        }
        told.append(
            {
                "what": "count, mean and variance",
                "key": "data.scaling: pooled",
                "columns": sorted({name for names in own.values() for name in names}),
                "numbers": {client: 3 * len(names) for client, names in own.items()},
            }
        )
    return told


def _moments(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each input, (n, d) float32, 1 where it is 0."""
    scale = x.double().std(0, correction=0)
    return tuple(x.double().mean(0).tolist()), tuple(torch.where(scale > 0, scale, 1.0).tolist())


def _notes(table: ClientTable, train: pd.DataFrame, task: Task, validation: Tensor) -> tuple[str, ...]:
    notes = []
    empty = [str(column) for column in train if train[column].isna().all()]
    constant = [str(column) for column in train if column not in empty and train[column].nunique(dropna=False) == 1]
    if empty:
        notes.append(f"{table.name}: no value in training rows, so without effect: {', '.join(empty)}")
    if constant:
        notes.append(f"{table.name}: the same value in all training rows: {', '.join(constant)}")
    for column in train.columns.intersection(list(table.categorical)):
        text = train[column].dropna().astype(str) if not is_numeric_dtype(train[column]) else train[column][:0]
        odd = text[pd.to_numeric(text, errors="coerce").isna()]
        if 0 < len(odd) < len(text) / 10:
            notes.append(
                f"{table.name}: {column} is taken for text, though all but {len(odd)} of its {len(text)} "
                "training values are "
                f"numbers ({odd.iloc[0]!r} is not)"
            )
    classes = sum(rows > 0 for rows in task.class_rows)
    if classes > 20 and classes > len(train) / 4:
        notes.append(
            f"{table.name}: {classes} classes in {len(train)} training rows; is {table.target.name!r} the target?"
        )
    if unseen := int((~task.known(validation)).sum()):
        notes.append(
            f"{table.name}: {unseen} validation rows have a label that no training row has; they count as wrong"
        )
    return tuple(notes)


def _check_kinds(tables: Sequence[ClientTable], *, across: bool) -> None:
    """Where columns of one name meet, they must be of one kind."""
    if not across:
        return
    for column in dict.fromkeys(str(column) for table in tables for column in table.features):
        if problem := two_kinds(tables, column):
            raise DataError(problem)


def _pool(clients: Sequence[EncodedClient]) -> EncodedClient:
    """All rows in one client that is scored on each of the former clients and on all."""
    names = [client.spec.name for client in clients]
    for name in names:
        if name.casefold() in (UNION_SITE, POOLED_CLIENT):
            raise DataError(
                f"client {name!r}: pool: true needs the names {UNION_SITE}, {POOLED_CLIENT}; rename the client"
            )
    first = clients[0].spec
    train = Rows(
        torch.cat([client.train.x for client in clients]),
        torch.cat([client.train.y for client in clients]),
        np.concatenate([client.train.row for client in clients]),
    )
    task = first.task.fit(train.y)
    sizes: dict[str, int] = {split: sum(client.spec.rows[split] for client in clients) for split in SPLITS}
    seen = tuple(sorted({position for client in clients for position in client.spec.sites[0].classes}))
    union = Site(UNION_SITE, seen, sizes, union=True)
    spec = ClientSpec(
        POOLED_CLIENT,
        first.features,
        first.classes,
        sizes,
        (*(client.spec.sites[0] for client in clients), union),
        task.class_rows,
        *_moments(train.x),
        task=task,
    )
    notes = tuple(note for client in clients for note in client.notes)
    sites = {client.spec.name: client.sites[client.spec.name] for client in clients}
    categorical = tuple(sorted({name for client in clients for name in client.categorical}))
    return EncodedClient(spec, train, sites, notes, categorical)
