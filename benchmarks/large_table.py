"""One client with a large table in Parquet: read, typed, encoded, split and trained for an epoch.

    python benchmarks/large_table.py [--rows 10000000] [--columns 30] [--folder FOLDER]

Prints peak memory of the process and rows a second of each part. The file (8 bytes a cell) is made in FOLDER if it is
not there, in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path


def make(path: Path, rows: int, columns: int) -> None:
    """Normal numbers, twelve wards as text, and a target of two classes that two columns tell a little of."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, writer, part = np.random.default_rng(0), None, 1_000_000
    for start in range(0, rows, part):
        size = min(part, rows - start)
        own = {f"x{number}": rng.normal(size=size) for number in range(columns - 2)}
        own["ward"] = np.array([f"ward {number}" for number in range(12)])[rng.integers(0, 12, size)]
        own["code"] = rng.integers(0, 50, size)
        own["y"] = (own["x0"] + own["x1"] * rng.normal(size=size) > 0).astype(np.int64)
        table = pa.table(own)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def main() -> None:
    """Make the table if need be, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=30)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    path = options.folder / f"large_{options.rows}_{options.columns}.parquet"
    if not path.exists():
        maker = get_context("spawn").Process(target=make, args=(path, options.rows, options.columns))
        maker.start()
        maker.join()

    import fedlit
    from fedlit.nn import MLP

    def told(what: str, began: float) -> float:
        now, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{what:24} {now - began:7.1f} s  {options.rows / (now - began):12,.0f} rows/s  peak {peak:.2f} GiB",
            flush=True,
        )
        return time.monotonic()

    client = partial(fedlit.FederatedClient, network=partial(MLP, hidden=[64, 64, 64]))
    data = fedlit.FederatedData(fedlit.Tables({"large": str(path)}, "y"), batch_size=8192, eval_batch_size=65536)
    began = time.monotonic()
    data.setup()
    began = told("read, typed, encoded", began)
    loop = fedlit.FederatedLoop(client)
    with tempfile.TemporaryDirectory() as root:
        run = fedlit.Run(loop, data, fedlit.Exchange([]), name="large", root=root, max_epochs=1)
        run.fit(quiet=True)
        told("trained, validated", began)


if __name__ == "__main__":
    main()
