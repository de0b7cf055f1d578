"""CPU seconds and memory from a CSV file with a column of clients to the first training step.

    python benchmarks/setup.py [--clients 1000 10000] [--rows 50] [--columns 20]

Each size is a process of its own. Reading the file is timed apart.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd


def make(path: Path, clients: int, rows: int, columns: int) -> None:
    """Write numbers of four decimals, and a label of three classes that depends on two of them."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(clients * rows, columns)).round(4)
    score = x[:, 0] + 0.5 * x[:, 1] + 0.5 * generator.normal(size=len(x))
    frame = pd.DataFrame(x, columns=[f"x{position}" for position in range(columns)])
    frame.insert(0, "site", np.repeat([f"s{client:05d}" for client in range(clients)], rows))
    frame["y"] = np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.5])]
    frame.to_csv(path, index=False)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(path: str) -> None:
    """Set up the federation of a file, and print what it took."""
    from fedlit.data.module import FederatedData
    from fedlit.data.reading import read_table
    from fedlit.data.reading.options import ReadOptions
    from fedlit.data.sources import Tables

    began = cpu_seconds()
    read_table(path, ReadOptions(), "all")
    reading = cpu_seconds() - began
    data = FederatedData(Tables(path, "y", client_column="site"), batch_size=32)
    began = cpu_seconds()
    data.setup()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    seconds = cpu_seconds() - began - reading
    print(
        f"{len(data.clients):6,} clients  reading {reading:5.2f} s  set-up beyond it "
        f"{seconds:6.2f} s  peak {peak:,.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Make the files, and measure each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.file:
        measure(options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        for clients in options.clients:
            path = Path(folder) / f"{clients}.csv"
            make(path, clients, options.rows, options.columns)
            subprocess.run([sys.executable, __file__, "--file", str(path)], check=True)


if __name__ == "__main__":
    main()
