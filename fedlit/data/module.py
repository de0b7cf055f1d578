"""The data side of a federation as a Lightning data module."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import CombinedLoader

from fedlit.data.encoding import Align, EncodedClient, Rows, Scaling, encode
from fedlit.data.loader import ClientLoader, EvalLoader
from fedlit.data.sources.base import Source
from fedlit.data.table import Split
from fedlit.errors import ConfigError, DataError
from fedlit.spec import ClientSpec

__all__ = ["FederatedData"]


class FederatedData(LightningDataModule):
    """Reads a source, encodes each client's table, hands out aligned batches.

    Args:
        source: where the tables come from.
        batches: B, batches per epoch, equal for all clients; a client's batch size is its training rows // B.
        align: common input space and label encoder for all clients (see :func:`fedlit.data.encoding.encode`):
            ``none`` for Global Layers and Local, ``both`` for FedAvg.
        scaling: numbers are standardised by each client's own training rows (``client``) or by those of all
            (``pooled``).
        pool: put all rows into one client (the centralized baseline).
        eval_batch_size: rows per batch in validation, test and prediction.
        predict: the split that ``predict`` writes predictions for.
        seed: the run's seed, for the splits that are random and the order of rows.

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
        batches: int = 10,
        align: Align = "none",
        scaling: Scaling = "client",
        pool: bool = False,
        eval_batch_size: int = 1024,
        predict: Split = "test",
        seed: int = 0,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        self.arguments: dict[str, Any] = arguments
        for name, value in (("batches", batches), ("eval_batch_size", eval_batch_size)):
            if value < 1:
                raise ConfigError(f"data.{name}: expected at least 1, found {value}")
        self.source, self.batches, self.align, self.scaling, self.pool = source, batches, align, scaling, pool
        self.eval_batch_size, self.predict, self.seed = eval_batch_size, predict, seed
        self.clients: list[EncodedClient] = []
        self.train_loaders: dict[str, ClientLoader] = {}
        self._moved: dict[int, Rows] = {}

    def setup(self, stage: str | None = None) -> None:
        """Read and encode, once."""
        if self.clients:
            return
        self.clients = encode(self.source.tables(self.seed), align=self.align, scaling=self.scaling, pool=self.pool)
        few = [f"{c.spec.name} ({len(c.train)})" for c in self.clients if len(c.train) < self.batches]
        if few:
            smallest = min(len(client.train) for client in self.clients)
            raise DataError(
                "data.batches: expected at most as many batches as the smallest client has training rows, "
                f"found {self.batches} batches and "
                f"fewer rows at {', '.join(few)}; set data.batches to at most {smallest}, or leave these clients out"
            )
        self.train_loaders = {
            client.spec.name: ClientLoader(client.train, self.batches, self.seed, client.spec.name)
            for client in self.clients
        }

    @property
    def specs(self) -> list[ClientSpec]:
        """The clients' descriptions, ordered by name; known after ``setup``."""
        return [client.spec for client in self.clients]

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
