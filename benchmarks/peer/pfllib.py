"""PFLlib (github.com/TsingZ0/PFLlib), which is no package: its checkout's folder ``system`` must be on
the path.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from flcore.servers.serveravg import FedAvg
from flcore.servers.serverditto import Ditto
from flcore.servers.serverper import FedPer
from torch import nn

from peer.work import CLASSES, PULL, RATE, Clock, Tables, Work, start

METHODS = ("fedavg", "fedper", "ditto")
SERVERS = {"fedavg": FedAvg, "fedper": FedPer, "ditto": Ditto}
DATASET = "tables"
NEVER = 10**6


def write(tables: Tables, folder: Path) -> None:
    """Write the tables as PFLlib reads them: two files for each client."""
    for split, rows_of in (("train", tables.train), ("test", tables.scored)):
        (folder / DATASET / split).mkdir(parents=True)
        for client in range(len(tables.x)):
            x, y = rows_of(client)
            rows = {"x": x.numpy(), "y": y.numpy()}
            np.savez(folder / DATASET / split / f"{client}.npz", data=rows)  # type: ignore[arg-type]


def arguments(work: Work) -> SimpleNamespace:
    """Return the arguments of PFLlib's command line."""
    return SimpleNamespace(
        model=start(),
        device="cpu",
        dataset=DATASET,
        num_classes=CLASSES,
        # it trains one round more than it is asked for
        global_rounds=work.rounds - 1,
        local_epochs=work.epochs,
        plocal_epochs=work.epochs,
        batch_size=work.batch,
        local_learning_rate=RATE,
        mu=PULL,
        num_clients=work.clients,
        join_ratio=1.0,
        random_join_ratio=False,
        algorithm=work.method,
        eval_gap=1 if work.validate else NEVER,
        time_select=False,
        time_threthold=1e9,
        goal="peers",
        save_folder_name="items",
        top_cnt=100,
        auto_break=False,
        few_shot=0,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        dlg_eval=False,
        dlg_gap=NEVER,
        batch_num_per_client=2,
        num_new_clients=0,
        fine_tuning_epoch_new=0,
        learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
    )


def serve(work: Work, clock: Clock) -> Any:
    """Train, and return PFLlib's server."""
    server: Any = SERVERS[work.method](arguments(work), 0)
    select = server.select_clients

    def select_and_mark() -> Any:
        clock.mark()
        return select()

    server.select_clients = select_and_mark
    # what it does behind the last round
    server.save_results = clock.mark
    server.save_global_model = lambda: None
    if not work.validate:
        # it scores before the first round whatever eval_gap is, and at the end asks for a score
        server.evaluate = lambda: server.rs_test_acc.append(0.0)
        server.evaluate_personalized = lambda: None
    server.train()
    return server


def train(work: Work, tables: Tables, clock: Clock) -> Sequence[nn.Module]:
    """Train with its own server and clients, in a folder of its own."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write(tables, Path(folder) / "dataset")
        working = Path(folder) / "system"
        working.mkdir()
        with contextlib.chdir(working):
            server = serve(work, clock)
    if work.method == "fedavg":
        return [server.global_model]
    if work.method == "ditto":
        return [client.model_per for client in server.clients]
    server.send_models()
    return [client.model for client in server.clients]
