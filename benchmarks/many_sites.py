"""One table of very many sites of 50 rows, fitted by the mixed model and by the forest that all
grow together.

    python benchmarks/many_sites.py [--sites 10000] [--only mixed forest]

Prints the wall time and the peak memory of each ``fedlit fit``, a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

ROWS = 50
POOLED = {"name": "regression", "targets": "pooled"}
CONFIGS = Path(__file__).parents[1] / "configs"


def make(path: Path, sites: int) -> None:
    """Five numbers, a category, and an outcome with an intercept of each site (standard deviation
    0.5; noise 1).
    """
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(sites), ROWS)
    x = rng.normal(size=(len(site), 5))
    y = x @ [1, 0.5, -0.5, 0.2, 0] + rng.normal(0, 0.5, sites)[site] + rng.normal(size=len(site))
    kind = rng.choice(list("abc"), len(site))
    pd.DataFrame(x, columns=[f"x{place}" for place in range(5)]).assign(
        kind=kind, y=y, site=site
    ).to_parquet(path)


def main() -> None:
    """Make the table, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", default=["mixed", "forest"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "sites.parquet"
        make(table, options.sites)
        for name in options.only:
            config = yaml.safe_load((CONFIGS / f"sites_{name}.yaml").read_text(encoding="utf-8"))
            config["data"]["source"] = {
                "class_path": "fedlit.Tables",
                "init_args": {
                    "files": str(table),
                    "target": "y",
                    "task": POOLED,
                    "client_column": "site",
                },
            }
            path = Path(folder) / f"{name}.yaml"
            path.write_text(yaml.safe_dump(config), encoding="utf-8")
            began = time.monotonic()
            fit = [sys.executable, "-P", "-m", "fedlit", "fit", "--config", str(path)]
            subprocess.run(
                fit,
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            # of the largest so far
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(
                f"{name:8} {options.sites:,} sites  {time.monotonic() - began:6.0f} s  peak "
                f"{peak:.2f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
