"""A client's table as tensors, and the pooled client of the centralized baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlit.data.moments import own_edges
from fedlit.data.table import SPLITS, Split
from fedlit.errors import DataError, expect
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
        :func:`fedlit.data.splitting.fold_of` expects them.

        Example:
            >>> def rows(*numbers: int) -> Rows:
            ...     return Rows(torch.tensor([[float(n)] for n in numbers]), torch.tensor(numbers), np.array(numbers))
            >>> rows(5, 1).merged(rows(3)).y.tolist()
            [1, 3, 5]
        """
        row = np.concatenate([self.row, other.row])
        order = np.argsort(row, kind="stable")
        place = torch.from_numpy(order)
        weight = joined([self, other])
        return Rows(
            torch.cat([self.x, other.x])[place],
            torch.cat([self.y, other.y])[place],
            row[order],
            None if weight is None else weight[place],
        )

    def some(self, chosen: np.ndarray) -> Rows:
        """Return the chosen rows (n,) bool, in their order."""
        place = torch.from_numpy(chosen)
        weight = None if self.weight is None else self.weight[place]
        return Rows(self.x[place], self.y[place], self.row[chosen], weight)


def joined(parts: Sequence[Rows]) -> Tensor | None:
    """Return the weights of all rows; None if no part has any. In a part without weights each row
    counts once.
    """
    if all(own.weight is None for own in parts):
        return None
    return torch.cat([torch.ones(len(own)) if own.weight is None else own.weight for own in parts])


@dataclass(frozen=True, eq=False)
class EncodedClient:
    """A client's tensors: its training rows, and the rows of every split for each of its sites.

    ``notes`` says what a person should know about the table: columns without information, labels
    unseen in training. ``categorical`` names the features that are category codes. ``groups`` is
    row number → the group of rows that are never parted, where that is known.
    """

    spec: ClientSpec
    train: Rows
    sites: Mapping[str, Mapping[Split, Rows]]
    notes: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    groups: Mapping[int, Any] | None = None

    def groups_of(self, rows: Rows) -> np.ndarray | None:
        """Return the group of each row (n,), or None if there are no groups."""
        return (
            None
            if self.groups is None
            else np.array([self.groups[row] for row in rows.row.tolist()], object)
        )

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
        digest.update(repr(sorted(self.spec.common.items())).encode() if self.spec.common else b"")
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
        clients: over the same inputs.
        num_bins: the largest number of bins of an input.
        ending: what its name, and that of all rows, end with.

    Raises:
        DataError: a client has a name that this one needs.
    """
    whole = UNION_SITE + ending
    pooled = POOLED_CLIENT + ending
    for name in (client.spec.name for client in clients):
        told = f"another name than {whole} and {pooled}, which pool needs"
        free = name.casefold() not in (whole, pooled)
        expect(free, f"client {name!r}", told, name, "rename the client", DataError)
    first = clients[0].spec
    train = Rows(
        torch.cat([client.train.x for client in clients]),
        torch.cat([client.train.y for client in clients]),
        np.concatenate([client.train.row for client in clients]),
        joined([client.train for client in clients]),
    )
    task = first.task.fit(train.y)
    sizes: dict[str, int] = {
        split: sum(client.spec.rows[split] for client in clients) for split in SPLITS
    }
    seen = tuple(
        sorted({position for client in clients for position in client.spec.sites[0].classes})
    )
    union = Site(whole, seen, sizes, union=True)
    spec = ClientSpec(
        pooled,
        first.features,
        first.classes,
        sizes,
        (*(client.spec.sites[0] for client in clients), union),
        task.class_rows,
        concept=first.concept if ending else None,
        task=task,
        inputs=tuple(
            # clients' own bins differ, agreed ones do not
            replace(own[0], edges=own_edges(train.x[:, place].numpy(), num_bins))
            if len(set(own)) > 1
            else own[0]
            for place, own in enumerate(
                zip(*(client.spec.inputs for client in clients), strict=True)
            )
        ),
    )
    notes = tuple(note for client in clients for note in client.notes)
    sites = {client.spec.name: client.sites[client.spec.name] for client in clients}
    categorical = tuple(sorted({name for client in clients for name in client.categorical}))
    return EncodedClient(spec, train, sites, notes, categorical)
