"""What both sides of a comparison train: a configuration's tables, encoded, and its settings; no
Lightning.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fedlit.data.agree import negotiate
from fedlit.data.encoder import TableEncoder
from fedlit.data.encoding import EncodedClient
from fedlit.data.sources.base import Source
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable
from fedlit.data.terms import Terms
from fedlit.run.config import find_config


class Many(Source):
    """Any number of made clients of the size of Heart's cleveland: 303 rows, 13 numbers, 2 classes.

    Args:
        clients: how many.
    """

    name = "many"
    about = "made clients of the size of a hospital's table"

    def __init__(self, clients: int = 8) -> None:
        self.clients = clients

    def tables(self, seed: int) -> list[ClientTable]:
        """Gaussian columns and a label that depends on them, drawn for each client anew."""
        tables = []
        for number in range(self.clients):
            rng = np.random.default_rng((seed, number))
            x = rng.normal(size=(303, 13))
            y = pd.Series(
                (x @ rng.normal(size=13) + rng.normal(size=303) > 0).astype(int), name="y"
            )
            frame = pd.DataFrame(x, columns=[f"x{column}" for column in range(13)])
            tables.append(
                ClientTable(
                    f"c{number:04d}", frame, y, random_split(303, seed, test=0.33, validation=0.1)
                )
            )
        return tables


@dataclass
class Task:
    """A configuration as the plain loop needs it.

    Attributes:
        clients: tables as tensors.
        batches: B, per epoch, equal for all clients.
        epochs: of a whole run.
        network: further arguments of the network.
        federated: what is averaged once an epoch: the ``core``, everything (``*``) or nothing.
        seed: of the run.
    """

    clients: list[EncodedClient]
    batches: int
    epochs: int
    network: dict[str, Any]
    federated: str | None
    seed: int

    @staticmethod
    def of(config: str, seed: int | None = None, **source: Any) -> Task:
        """Read a configuration's file and its data.

        Args:
            config: name or path.
            seed: another seed than the file's.
            source: further arguments of the data's source.
        """
        settings = yaml.safe_load(find_config(config).read_text(encoding="utf-8"))
        data = settings["data"]
        seed = settings["seed"] if seed is None else seed
        module, _, name = data["source"]["class_path"].rpartition(".")
        arguments = {**data["source"].get("init_args", {}), **source}
        tables = getattr(import_module(module), name)(**arguments).tables(seed)
        tables = sorted(tables, key=lambda table: table.name)
        agreement, *_ = negotiate(tables, Terms(data.get("align", "none")))
        return Task(
            [TableEncoder(table.name, agreement).fit(table).encode(table) for table in tables],
            data["batches"],
            settings["trainer"]["max_epochs"],
            settings["model"]["client"]["init_args"]["network"].get("init_args", {}),
            next(iter(settings["exchange"]["federated"]), None),
            seed,
        )
