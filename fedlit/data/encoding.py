"""A client's table as tensors, and the pooled client of the centralized baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlit.data.moments import own_edges
from fedlit.data.table import SPLITS, Split
from fedlit.errors import DataError
from fedlit.inputs import Input
from fedlit.spec import ClientSpec
from fedlit.tasks.metrics import Site

POOLED_CLIENT = "centralized"
UNION_SITE = "all"


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of one split.

    Attributes:
        x: (n, d) float32.
        y: as the client's task encodes its target: (n,) int64, position of the label in the
            client's ``classes``, −1 for a label that is not among them; (n,) float32, a
            standardised number or a count; or (n, labels) float32, 1 where a label is true, 0 where
            it is not, NaN where that is not known.
        row: (n,) int64, the rows' numbers in the source.
        weight: (n,) float32, how much each row counts; None if all count alike.
    """

    x: Tensor
    y: Tensor
    row: np.ndarray
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def merged(self, other: Rows) -> Rows:
        """Return these rows and others in ascending order of row number, as
        :func:`fedlit.data.folds.fold_of` expects them.

        Example:
            >>> def rows(*numbers: int) -> Rows:
            ...     return Rows(torch.tensor([[float(n)] for n in numbers]), torch.tensor(numbers), np.array(numbers))
            >>> rows(5, 1).merged(rows(3)).y.tolist()
            [1, 3, 5]
        """
        row = np.concatenate([self.row, other.row])
        order = np.argsort(row, kind="stable")
        positions = torch.from_numpy(order)
        x = torch.cat([self.x, other.x])[positions]
        y = torch.cat([self.y, other.y])[positions]
        weight = joined([self, other])
        if weight is not None:
            weight = weight[positions]
        return Rows(x, y, row[order], weight)

    def some(self, chosen: np.ndarray) -> Rows:
        """Return the chosen rows (n,) bool, in their order."""
        positions = torch.from_numpy(chosen)
        weight = self.weight
        if weight is not None:
            weight = weight[positions]
        return Rows(self.x[positions], self.y[positions], self.row[chosen], weight)


def joined(parts: Sequence[Rows]) -> Tensor | None:
    """Return the weights of all rows; None if no part has any. In a part without weights each row
    counts once.
    """
    if all(part.weight is None for part in parts):
        return None
    return torch.cat(
        [torch.ones(len(part)) if part.weight is None else part.weight for part in parts]
    )


@dataclass(frozen=True, eq=False)
class EncodedClient:
    """A client's tensors: its training rows, and the rows of every split for each of its sites.

    ``notes`` says what a person should know about the table: columns without information, labels
    unseen in training. ``categorical`` names the features that are category codes. ``groups`` maps
    a row's number to the group of rows that stay together; None if there are no groups.
    """

    spec: ClientSpec
    train: Rows
    sites: Mapping[str, Mapping[Split, Rows]]
    notes: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    groups: Mapping[int, Any] | None = None

    def groups_of(self, rows: Rows) -> np.ndarray | None:
        """Return the group of each row (n,), or None if there are no groups."""
        if self.groups is None:
            return None
        return np.array([self.groups[row] for row in rows.row.tolist()], object)

    @property
    def about(self) -> dict[str, Any]:
        """What every process of a job knows about the client: its concept, whether it belongs to no
        group, and its notes.
        """
        return {"concept": self.spec.concept, "alone": self.spec.common == {}, "notes": self.notes}

    def fingerprint(self) -> str:
        """Return a hash that changes with any number, label or split. A checkpoint uses it to
        recognise its training data.
        """
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.spec.features, self.spec.classes)).encode())
        digest.update(self.spec.task.fingerprint.encode())
        if self.spec.common:
            digest.update(repr(sorted(self.spec.common.items())).encode())
        for site, splits in sorted(self.sites.items()):
            for split, rows in splits.items():
                digest.update(f"{site}/{split}/{len(rows)}".encode())
                for values in (rows.x.numpy(), rows.y.numpy(), rows.row):
                    digest.update(np.ascontiguousarray(values).data)
                if rows.weight is not None:
                    digest.update(np.ascontiguousarray(rows.weight.numpy()).data)
        return digest.hexdigest()


def pool_clients(
    clients: Sequence[EncodedClient], num_bins: int = 32, ending: str = ""
) -> EncodedClient:
    """Pool the rows of all clients in one client, which is scored on the rows of each former client
    and on all rows.

    Args:
        clients: the clients, which have the same inputs.
        num_bins: the largest number of bins of an input.
        ending: the ending of its name and of the name of the site of all rows.

    Raises:
        DataError: a client already has the name of the pooled one.
    """
    union_name = UNION_SITE + ending
    pooled = POOLED_CLIENT + ending
    for name in (client.spec.name for client in clients):
        if name.casefold() in (union_name, pooled):
            raise DataError(
                f"client {name!r}: expected another name than {union_name} and {pooled}, which "
                f"pool needs, found {name!r}; rename the client"
            )
    first = clients[0].spec
    train = Rows(
        torch.cat([client.train.x for client in clients]),
        torch.cat([client.train.y for client in clients]),
        np.concatenate([client.train.row for client in clients]),
        joined([client.train for client in clients]),
    )
    task = first.task.fit(train.y)
    sizes = dict[str, int]()
    for split in SPLITS:
        sizes[split] = sum(client.spec.rows[split] for client in clients)
    sites = tuple(client.spec.sites[0] for client in clients)
    seen = tuple(sorted({*chain(*(site.classes for site in sites))}))
    concept = first.concept if ending else None
    spec = ClientSpec(
        pooled,
        first.features,
        first.classes,
        sizes,
        (*sites, Site(union_name, seen, sizes, union=True)),
        task.class_rows,
        concept=concept,
        task=task,
        inputs=_pooled_inputs([client.spec.inputs for client in clients], train.x, num_bins),
    )
    return EncodedClient(
        spec,
        train,
        {client.spec.name: client.sites[client.spec.name] for client in clients},
        tuple(chain(*(client.notes for client in clients))),
        tuple(sorted({*chain(*(client.categorical for client in clients))})),
    )


def _pooled_inputs(
    inputs: Sequence[Sequence[Input]], x: Tensor, num_bins: int
) -> tuple[Input, ...]:
    """Return the inputs of pooled rows. Bins that differ between clients are computed anew; agreed
    bins do not differ.
    """
    pooled = []
    for position, versions in enumerate(zip(*inputs, strict=True)):
        item = versions[0]
        if len(set(versions)) > 1:
            item = replace(item, edges=own_edges(x[:, position].numpy(), num_bins))
        pooled.append(item)
    return tuple(pooled)
