"""Four clients, each with another task: classes, counts, several labels, a number."""

from typing import Any

import numpy as np
import pandas as pd

from fedlit.data.sources.base import Source, check_tables
from fedlit.data.splitting import random_split
from fedlit.data.table import ClientTable

FOUR = ("class", "count", "labels", "number")


def rows_of(client: str, rows: int = 120) -> pd.DataFrame:
    """Columns of numbers and the target of a client's task, which depends on them; some labels are
    not known."""
    rng = np.random.default_rng(sum(map(ord, client)))
    x = rng.normal(size=(rows, 4))
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(4)])
    signal = x[:, 0] - x[:, 1]
    if client.startswith("class"):
        frame["ill"] = np.where(signal + 0.3 * rng.normal(size=rows) > 0, "yes", "no")
    elif client.startswith("count"):
        frame["visits"] = rng.poisson(np.exp(0.7 * signal + 0.5))
    elif client.startswith("labels"):
        frame["died"] = (signal > 0.5).astype(int)
        frame["back"] = np.where(x[:, 2] > 0, "yes", "no")
        frame["rare"] = 0
        frame.loc[rng.random(rows) < 0.2, "back"] = None
        frame.loc[rng.random(rows) < 0.2, "died"] = None
    else:
        frame["price"] = 500 + 40 * signal
    return frame


TARGETS: dict[str, Any] = {
    "class": "ill",
    "count": "visits",
    "labels": ["died", "back", "rare"],
    "number": "price",
}
TASKS: dict[str, Any] = {"class": None, "count": "counts", "labels": None, "number": "regression"}


class Four(Source):
    """Clients named after their tasks."""

    name = "four"
    about = "made data"

    def __init__(self, clients: tuple[str, ...] = FOUR, pooled: bool = False) -> None:
        self.clients = clients
        self.pooled = pooled

    def tables(self, seed: int) -> list[ClientTable]:
        tables = []
        for client in self.clients:
            kind = client.rstrip("123456")
            frame = rows_of(client)
            task = (
                {"name": "counts", "targets": "pooled"}
                if self.pooled and kind == "count"
                else TASKS[kind]
            )
            features = frame[[f"x{k}" for k in range(4)]]
            splits = random_split(len(frame), seed, 0.3, 0.2)
            tables.append(ClientTable(client, features, frame[TARGETS[kind]], splits, task=task))
        return check_tables(tables)
