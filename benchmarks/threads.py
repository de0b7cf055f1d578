"""Measures from which size of a step on clients are stepped side by side on threads: the table in
docs/speed.md.

    python benchmarks/threads.py [THREADS]
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from fedlit import MLP
from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.base import ClientStep, Engine, PlainEngine, ThreadedEngine
from fedlit.spec import ClientSpec

FEATURES = 20
REPEATS = 24
SIZES = ((16, 32), (64, 32), (64, 128), (128, 128), (128, 512), (256, 256), (256, 1024), (512, 512))
"""Width of two hidden layers, rows in a batch."""


def clients_of(count: int, width: int) -> list[FederatedClient]:
    """Return clients whose network has two hidden layers."""
    clients = []
    for number in range(count):
        features = tuple(f"x{column}" for column in range(FEATURES))
        spec = ClientSpec(f"site{number}", features, (0, 1, 2), {"train": 1000}, ())
        client = FederatedClient(spec, partial(MLP, hidden=[width, width]))
        client._optimizers = [torch.optim.SGD(client.parameters(), lr=0.1, fused=True)]
        clients.append(client)
    return clients


def step_of(client: FederatedClient, batch: Batch) -> Callable[[bool], bool]:
    """Return the step of a client alone."""

    def step(_: bool) -> bool:
        client.descend(client.objective(batch.x, batch.y), client._optimizers, ())
        return False

    return step


def seconds(engine: Engine, steps: dict[str, ClientStep]) -> float:
    """Return how long an aligned step takes."""
    start = time.perf_counter()
    engine.run(steps)
    return time.perf_counter() - start


def main() -> None:
    """Print, for each size, how long a client's step takes in turn and side by side."""
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.set_num_threads(1)
    print(f"{threads} threads; milliseconds a client-step: in turn, side by side; ratio of medians")
    for width, rows in SIZES:
        clients = clients_of(2 * threads, width)
        batch = Batch(torch.randn(rows, FEATURES), torch.randint(0, 3, (rows,)))
        steps = {
            client.spec.name: ClientStep(client, batch, step_of(client, batch), dry=True)
            for client in clients
        }
        engines: dict[str, Engine] = {"in turn": PlainEngine(1), "threads": ThreadedEngine(threads)}
        times: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(REPEATS):
            for name, engine in engines.items():
                times[name].append(seconds(engine, steps) / len(clients) * 1e3)
        for engine in engines.values():
            engine.close()
        numbers = sum(parameter.numel() for parameter in clients[0].parameters())
        least = {name: min(values) for name, values in times.items()}
        median = {name: statistics.median(values) for name, values in times.items()}
        ratio = median["threads"] / median["in turn"]
        print(
            f"{width:4} {rows:5} {rows * numbers:12,} {least['in turn']:8.2f} "
            f"{least['threads']:8.2f} {ratio:6.2f}"
        )


if __name__ == "__main__":
    main()
