"""The data side of a federation as a Lightning data module."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import CombinedLoader

from fedlit.data.common import Common, Group, find_groups, of_several_kinds
from fedlit.data.encoding import Align, Categories, EncodedClient, Rows, Scaling, encode, told_before
from fedlit.data.loader import ClientLoader, EvalLoader, Pace, Steps
from fedlit.data.shaping.mutations import Mutation, Planted, mutate
from fedlit.data.sources.base import Source
from fedlit.data.table import ClientTable, Split, choose_columns
from fedlit.errors import ConfigError
from fedlit.spec import ClientSpec

__all__ = ["FederatedData"]


class FederatedData(LightningDataModule):
    """Reads a source, encodes each client's table, hands out aligned batches.

    Args:
        source: where the tables come from.
        batches: B, batches per epoch, equal for all clients; a client's batch size is its training rows // B. 10 if
            neither this nor ``batch_size`` is given.
        batch_size: rows per batch, equal for all clients, instead: a client then has training rows // size batches, and
            waits at the end of the epoch for those that have more.
        steps: how many steps a client takes in an epoch where not its number of batches: a number, or [least, most] to
            be drawn for each client and epoch; for all, or by client's name or pattern.
        align: common input space and label encoder for all clients (see :func:`fedlit.data.encoding.encode`):
            ``none`` for Global Layers and Local, ``both`` for FedAvg.
        scaling: numbers are standardised by each client's own training rows (``client``) or by what all tell of theirs
            (``pooled``), or stay as they are (``none``).
        categories: whether categories become ordinal ``codes`` or 0/1 ``indicators``.
        common: which columns clients have in common, for methods that treat these apart (CHFL): ``all`` for those that
            every client has, ``groups`` for those of every set of clients, or listed ones (see
            :func:`fedlit.data.common.find_groups`).
        pool: put all rows into one client (the centralized baseline).
        columns: names or patterns of the columns to use (see :func:`fedlit.data.table.choose_columns`: ``!`` takes
            out); all if None.
        mutations: faults to plant in chosen clients (see :class:`fedlit.data.shaping.mutations.Mutation`).
        eval_batch_size: rows per batch in validation, test and prediction.
        predict: the split that ``predict`` writes predictions for.
        seed: the run's seed, for the splits that are random and the order of rows.

    Attributes:
        clients: encoded, ordered by name; known after ``setup``, like all that follows.
        groups: of clients that share columns, if ``common`` asks for them.
        planted: the faults in their tables.
        told_before: what clients tell each other before the first step (see :func:`fedlit.data.encoding.told_before`).
        train_loaders: by client.
        steps: aligned steps of an epoch: those of the client that takes most.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> data = FederatedData(Bundled(clients=["wine"]), batches=4)
        >>> data.setup()
        >>> data.specs[0].num_features, data.specs[0].num_outputs
        (13, 3)
    """

    def __init__(
        self,
        source: Source,
        batches: int | None = None,
        batch_size: int | None = None,
        steps: Steps | None = None,
        align: Align = "none",
        scaling: Scaling = "client",
        categories: Categories = "codes",
        common: Common | None = None,
        pool: bool = False,
        columns: list[str] | None = None,
        mutations: list[Mutation] | None = None,
        eval_batch_size: int = 1024,
        predict: Split = "test",
        seed: int = 0,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        if eval_batch_size < 1:
            raise ConfigError(f"data.eval_batch_size: expected at least 1, found {eval_batch_size}")
        self.pace = Pace(10 if batches is None and batch_size is None else batches, batch_size, steps)
        self.source, self.align, self.scaling, self.pool = source, align, scaling, pool
        self.categories: Categories = categories
        self.common, self.columns = common, columns
        self.mutations = list(mutations or [])
        self.eval_batch_size, self.predict, self.seed = eval_batch_size, predict, seed
        self.clients: list[EncodedClient] = []
        self.groups: list[Group] = []
        self.planted: list[Planted] = []
        self.told_before: list[dict[str, Any]] = []
        self.train_loaders: dict[str, ClientLoader] = {}
        self.steps = 0
        self._apart: list[str] = []
        self._moved: dict[int, Rows] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read and encode, once."""
        if self.clients:
            return
        tables = self.tables()
        groups = None if self.common is None or self.pool else find_groups(tables, self.common)
        self.groups = groups or []
        self._apart = of_several_kinds(tables) if groups is not None and isinstance(self.common, str) else []
        self.clients = encode(
            tables,
            align=self.align,
            scaling=self.scaling,
            pool=self.pool,
            categories=self.categories,
            groups=groups,
        )
        self.told_before = [] if self.pool else told_before(tables, self.align, self.scaling, groups, self.common)
        self.pace.check({client.spec.name: len(client.train) for client in self.clients})
        self.train_loaders = {
            client.spec.name: ClientLoader(client.train, self.pace, self.seed, client.spec.name)
            for client in self.clients
        }
        self.steps = max(loader.length for loader in self.train_loaders.values())
        for loader in self.train_loaders.values():
            loader.length = self.steps

    def tables(self) -> list[ClientTable]:
        """The source's tables, with the columns that are to be used and the faults that are planted in them."""
        tables = self.source.tables(self.seed)
        if self.columns is not None:
            tables = choose_columns(tables, self.columns)
        tables, self.planted = mutate(tables, self.mutations, self.seed)
        return tables

    def table(self, client: str) -> ClientTable:
        """One client's table as :meth:`tables` has it; reads no other's where the source can do so and no fault is
        planted (which client gets one depends on all).
        """
        if self.mutations:
            tables = {table.name: table for table in self.tables()}
            return tables[client] if client in tables else self.source.table(client, self.seed)
        table = self.source.table(client, self.seed)
        return table if self.columns is None else choose_columns([table], self.columns, strict=False)[0]

    @property
    def specs(self) -> list[ClientSpec]:
        """The clients' descriptions, ordered by name; known after ``setup``."""
        return [client.spec for client in self.clients]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: who shares columns, planted faults and concepts, and what is odd about tables."""
        met = {name for group in self.groups for name in group.clients}
        alone = [spec.name for spec in self.specs if spec.common is not None and spec.name not in met]
        lines = [f"in no group, so without common columns: {', '.join(alone)}"] if alone else []
        tables = (note for client in self.clients for note in client.notes)
        concepts: dict[str, list[str]] = {}
        for spec in sorted(self.specs, key=lambda spec: spec.concept or ""):
            if spec.concept is not None:
                concepts.setdefault(spec.concept, []).append(spec.name)
        followed = "; ".join(f"concept {concept} at {', '.join(names)}" for concept, names in concepts.items())
        shift = [f"a concept shift was planted: {followed}"] if len(concepts) > 1 else []
        return (*map(str, self.groups), *lines, *self._apart, *map(str, self.planted), *shift, *tables)

    @property
    def rows_per_epoch(self) -> int:
        """Training rows that all clients step on in an epoch, at most."""
        return sum(loader.batch_size * loader.most for loader in self.train_loaders.values())

    def sites(self, split: Split) -> list[tuple[str, str, Rows]]:
        """(client, site, rows) in the order of the evaluation loaders."""
        return [
            (client.spec.name, site, splits[split]) for client in self.clients for site, splits in client.sites.items()
        ]

    def _resident(self, rows: Rows) -> Rows:
        """The rows on the Trainer's device, moved once, so that no batch has to travel during training."""
        device = self.trainer.strategy.root_device if self.trainer is not None else rows.x.device
        if device == rows.x.device:
            return rows
        if id(rows) not in self._moved:
            self._moved[id(rows)] = Rows(rows.x.to(device), rows.y.to(device), rows.row)
        return self._moved[id(rows)]

    def resident_loaders(self) -> dict[str, ClientLoader]:
        """The training loaders by client, whose rows are on the Trainer's device."""
        for loader in self.train_loaders.values():
            loader.rows = self._resident(loader.rows)
        return dict(self.train_loaders)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Nothing to do: the rows are on the device already."""
        return batch

    def train_dataloader(self) -> CombinedLoader:
        """One batch of every client per aligned step."""
        return CombinedLoader(self.resident_loaders(), "min_size")

    def _evaluation(self, split: Split) -> list[EvalLoader]:
        return [EvalLoader(self._resident(rows), self.eval_batch_size) for _, _, rows in self.sites(split)]

    def val_dataloader(self) -> list[EvalLoader]:
        """One loader per site."""
        return self._evaluation("validation")

    def test_dataloader(self) -> list[EvalLoader]:
        """One loader per site."""
        return self._evaluation("test")

    def predict_dataloader(self) -> list[EvalLoader]:
        """One loader per site, of the split named by ``predict``."""
        return self._evaluation(self.predict)
