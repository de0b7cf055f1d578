"""Seconds a round and memory a client: many small clients in one process, and over ranks of this
machine.

python benchmarks/ranks.py [CLIENTS [RANKS [EPOCHS]]] prints a table; 1,000 clients on 1 and 2 ranks
by default. Each line is trained in processes of its own, one thread each, an exchange after each
epoch of two steps; then the same with one in a hundred taking part. Relations between lines count:
other work on the machine slows all.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROWS = 120
FEATURES = 20
WIDTH = 64


def train(clients: int, participation: float, epochs: int, folder: Path) -> None:
    """What one process does; the first prints what it took."""
    import numpy as np
    import pandas as pd
    import torch
    from lightning.pytorch import Callback

    from fedlit import MLP, FederatedClient, FederatedData, FederatedLoop, Run
    from fedlit.data.sources.base import Source
    from fedlit.data.splitting import random_split
    from fedlit.data.table import ClientTable
    from fedlit.exchange.exchange import Exchange
    from fedlit.train.callbacks import Checkpoints

    torch.set_num_threads(1)

    class Many(Source):
        name = "many"
        about = "made clients"

        def sizes(self) -> dict[str, int]:
            return {f"c{number:05d}": ROWS for number in range(clients)}

        def table(self, client: str, seed: int) -> ClientTable:
            rng = np.random.default_rng(int(client[1:]))
            x = rng.normal(size=(ROWS, FEATURES))
            frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(FEATURES)])
            y = pd.Series((x[:, 0] + rng.normal(size=ROWS) > 0).astype(int), name="y")
            return ClientTable(client, frame, y, random_split(ROWS, seed, 0.2, 0.2, client))

        def some(self, clients: Sequence[str], seed: int, share: Any = None) -> list[ClientTable]:
            return [self.table(client, seed) for client in clients]

        def tables(self, seed: int) -> list[ClientTable]:
            return self.some(list(self.sizes()), seed)

    class Clock(Callback):
        def __init__(self) -> None:
            self.rounds: list[float] = []

        def on_train_epoch_start(self, *_: Any) -> None:
            self.began = time.perf_counter()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.is_last_batch:  # behind the exchange, before validation
                self.rounds.append(time.perf_counter() - self.began)

    clock = Clock()
    loop = FederatedLoop(
        partial(FederatedClient, network=partial(MLP, hidden=[WIDTH, WIDTH])),
        engine="plain",
        threads=1,
    )
    exchange = Exchange(["core"], participation=participation)
    # no validation: what is measured is rounds
    options: dict[str, Any] = {
        "check_val_every_n_epoch": 1000,
        "callbacks": [clock],
        "logger": False,
    }
    run = Run(loop, FederatedData(Many(), batches=2), exchange, root=folder, max_epochs=epochs,
              checkpoints=Checkpoints(best=0, every=1000, seconds=1e9), **options)  # fmt: skip
    before = _resident()
    began = time.perf_counter()
    run.describe()
    built = _resident()
    ready = time.perf_counter() - began
    run.fit(quiet=True)
    sizes = [before, built, _resident(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]
    told = run.group.gather("memory", sizes)
    if run.group.rank == 0:
        rounds = sorted(clock.rounds[1:])
        totals = [sum(own[place] - own[0] for own in told) / clients for place in (1, 2, 3)]
        found = dict(zip(("built", "end", "most"), totals, strict=True))
        found |= {
            "round": rounds[len(rounds) // 2],
            "exchange": run.exchange.seconds / run.exchange.rounds,
            "ready": ready,
        }
        print("RESULT", json.dumps(found))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(clients: int, ranks: int, participation: float, epochs: int) -> dict[str, float]:
    """A line of the table."""
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        words = [__file__, "--train", str(clients), str(participation), str(epochs), folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [*start, *words], env=environment, capture_output=True, text=True, check=False
        )
    found = [line for line in ended.stdout.splitlines() if line.startswith("RESULT")]
    if not found:
        raise SystemExit(ended.stderr)
    told: dict[str, float] = json.loads(found[0].removeprefix("RESULT"))
    return told


def main() -> None:
    """See the module."""
    if sys.argv[1:2] == ["--train"]:
        train(int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
        return
    clients, ranks, epochs = [*map(int, sys.argv[1:]), *(1000, 2, 6)[len(sys.argv) - 1 :]]
    print(
        "clients  part  ranks  ready s  s/round  of 1 rank  s/exchange  kB/client: built   trained "
        "  peak"
    )
    for participation in (1.0, 0.01):
        first = 0.0
        for number in dict.fromkeys((1, ranks)):
            own = measure(clients, number, participation, epochs)
            first = first or own["round"]
            memory = "".join(f"{own[key] / 1000:10,.0f}" for key in ("built", "end", "most"))
            print(
                f"{clients:7,} {participation:5g} {number:6} {own['ready']:8.1f} "
                f"{own['round']:8.3f} {own['round'] / first:10.2f} {own['exchange']:11.4f}      "
                f"{memory}",
                flush=True,
            )


if __name__ == "__main__":
    main()
