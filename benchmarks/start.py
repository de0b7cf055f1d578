"""CPU seconds of whole commands, from nothing imported to their end: the median of three runs, in
turn, for six made-up sites of 1,000 rows. ``python benchmarks/start.py [COMMAND ...]``
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

TURNS = 3
SITES = [f"site{number}.csv" for number in range(6)]
COMMANDS = {
    "import lightning.pytorch": ["-c", "import lightning.pytorch"],
    "init": ["-m", "fedlit", "init", *SITES, "--target", "y", "--out", "mine.yaml", "--force"],
    "check": ["-m", "fedlit", "check", "--config", "mine.yaml"],
    "fit": ["-m", "fedlit", "fit", "--config", "mine.yaml"],
    "describe": ["-m", "fedlit", "describe", "--config", "mine.yaml"],
    "test": ["-m", "fedlit", "test", "--config", "mine.yaml"],
    "predict": ["-m", "fedlit", "predict", "--config", "mine.yaml"],
    "predict --run": [
        *("-m", "fedlit", "predict", "--run", "mine", "--client", "site0"),
        *("--data", "site0.csv", "--out", "scores.csv"),
    ],
    "explain": ["-m", "fedlit", "explain", "--run", "mine", "--client", "site0"],
    "export": ["-m", "fedlit", "export", "--run", "mine", "--client", "site0"],
}


def write_tables(folder: Path) -> None:
    """Write the tables of the sites: 12 numbers, a category, and two classes."""
    rng = np.random.default_rng(1)
    for shift, name in enumerate(SITES):
        x = rng.normal(shift / 10, 1, (1000, 12)).round(3)
        frame = pd.DataFrame(x, columns=[f"x{column}" for column in range(12)])
        frame["sex"] = rng.choice(["m", "f"], 1000)
        frame["y"] = (x[:, :4].sum(1) + rng.normal(size=1000) > 0).astype(int)
        frame.to_csv(folder / name, index=False)


def cpu_seconds(command: list[str], folder: Path) -> float:
    """Return the CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Users have compiled modules.
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = {**os.environ, **compiled, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(names: list[str]) -> None:
    """Print a line for each command."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_tables(folder)
        for name in ("init", "fit"):
            cpu_seconds(COMMANDS[name], folder)
        for _ in range(TURNS):
            for name in names or COMMANDS:
                seconds[name].append(cpu_seconds(COMMANDS[name], folder))
    for name, values in seconds.items():
        if values:
            print(
                f"{name:26}{statistics.median(values):6.2f}  ({min(values):.2f}–{max(values):.2f})"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
