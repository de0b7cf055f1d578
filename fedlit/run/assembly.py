"""The parts from which a run is assembled, and the folder that its processes share."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer

from fedlit.data.module import FederatedData
from fedlit.errors import expect
from fedlit.exchange.exchange import Exchange
from fedlit.exchange.place import find_place
from fedlit.exchange.transport import Transport
from fedlit.run.folders import check_name, new_folder
from fedlit.run.resolved import Resolved
from fedlit.run.scoring import ScoreSettings
from fedlit.run.trainer import check_options
from fedlit.train.callbacks import Checkpoints
from fedlit.train.limits import check_least
from fedlit.train.logger import BoardSettings
from fedlit.train.loop import FederatedLoop
from fedlit.train.whole import CHECKPOINTS, LAST


class Assembly:
    """The loop, the data, the exchange and the settings of a run; :class:`~fedlit.run.run.Run`
    describes the arguments.

    Attributes:
        config: the configuration with all its keys; None for a run that was made in Python.
        folder: the folder of the run; None before the first command.
        trainer: the trainer of the last command; None before the first command.
    """

    def __init__(
        self,
        loop: FederatedLoop,
        data: FederatedData,
        exchange: Exchange | None = None,
        *,
        name: str = "fedlit",
        root: str | Path = "lightning_logs",
        checkpoints: Checkpoints | None = None,
        board: BoardSettings | None = None,
        score: ScoreSettings | None = None,
        transport: Transport | None = None,
        config: Resolved | None = None,
        **trainer: Any,
    ) -> None:
        expect(0 <= loop.seed < 2**32, "seed", "a number from 0 to 2**32 - 1", loop.seed)
        expect(loop.seed == data.seed, "seed", "one for loop and data", (loop.seed, data.seed))
        check_name(name, "name")
        self.loop = loop
        self.data = data
        self.config = config
        exchange = exchange or Exchange()
        self.untrained_exchange = deepcopy(exchange)
        self.attach(exchange, transport or _everywhere())
        check_options(trainer, ranks=self.group.size)
        if loop.federation.ending.stop is not None:
            check_least(trainer)
        self.name = name
        self.root = Path(root).absolute()
        self.checkpoints = checkpoints or Checkpoints()
        self.board = board or BoardSettings()
        self.score = score or ScoreSettings()
        self.trainer_options = trainer
        self.folder: Path | None = None
        self.trainer: Trainer | None = None

    @property
    def config_text(self) -> str | None:
        """The configuration as YAML, as ``config.yaml`` has it."""
        return None if self.config is None else self.config.text

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """Maps each dotted key of the configuration to its value."""
        return None if self.config is None else self.config.keys

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.loop.seed

    @property
    def group(self) -> Transport:
        """The processes to which its clients are dealt."""
        return self.exchange.transport

    @property
    def exchange(self) -> Exchange:
        """The exchange of the clients."""
        return self.loop.federation.exchange

    @exchange.setter
    def exchange(self, exchange: Exchange) -> None:
        self.attach(exchange, self.exchange.transport)

    def attach(self, exchange: Exchange, transport: Transport) -> None:
        """Connect the clients by an exchange over a transport."""
        exchange.transport = transport
        self.loop.federation.exchange = exchange
        self.loop.federation.settings = self.settings

    def renew(self) -> None:
        """Replace the clients and the exchange by untrained ones."""
        transport = self.exchange.transport
        self.loop = FederatedLoop(**self.loop.arguments)
        self.attach(deepcopy(self.untrained_exchange), transport)

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint that the next command would use, if there is one."""
        if self.folder is None:
            return None
        path = self.folder / CHECKPOINTS / LAST
        return path if path.is_file() else None

    def share_folder(self, folder: Path | None) -> Path:
        """Return the run's folder, or a new one if None. If there are several processes, the first
        of them creates it for all.
        """
        if folder is None and self.group.rank == 0:
            folder = new_folder(self.root, self.name)
        return Path(self.group.first("the folder of the run", str(folder)))


def _everywhere() -> Transport:
    """Return the transport to the clients of the processes that torchrun or srun started with this
    one; if there are none, the transport within this process.
    """
    if find_place() is None:
        return Transport()
    from fedlit.exchange.ranks import join

    return join() or Transport()
