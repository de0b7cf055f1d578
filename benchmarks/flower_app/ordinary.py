"""Global Layers as an ordinary app of Flower's: FedAvg of the core by Flower's strategy, a plain PyTorch loop at each
site, whose private parts are kept in Flower's context. ``plain.py`` must be on the path.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from plain import Federation, Task

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One round at one site."""
    torch.set_num_threads(1)
    task = Task.of(str(context.run_config["config"]), clients=[context.node_config["site"]])
    federation = Federation(task)
    network: Any = federation.networks[0]
    if "private" in context.state:
        network.load_state_dict(context.state["private"].to_torch_state_dict(), strict=False)
    network.core.load_state_dict(message.content["arrays"].to_torch_state_dict())
    federation.train(1, validate=False)
    private = {name: value for name, value in network.state_dict().items() if not name.startswith("core.")}
    context.state["private"] = ArrayRecord(private)
    told = MetricRecord({"num-examples": len(task.clients[0].train.y)})
    return Message(RecordDict({"arrays": ArrayRecord(network.core.state_dict()), "metrics": told}), reply_to=message)


class Timed(FedAvg):
    """Notes when each round ended."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ends: list[float] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """As Flower does."""
        replies = list(replies)
        wrong = [reply.error.reason for reply in replies if reply.has_error()]
        if wrong:
            raise RuntimeError(f"a site failed: {wrong[0]}")
        found = super().aggregate_train(server_round, replies)
        self.ends.append(time.time())
        return found


@server.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds."""
    settings = context.run_config
    task = Task.of(str(settings["config"]))
    core = Federation(task).networks[0].core.state_dict()
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    begun = time.time()
    strategy.start(grid, ArrayRecord(core), num_rounds=int(settings["rounds"]), timeout=600)
    Path(str(settings["out"])).write_text(json.dumps([begun, *strategy.ends]), encoding="utf-8")
