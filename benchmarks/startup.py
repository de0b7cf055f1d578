"""Seconds until commands answer, least of several runs each; the light ones must not wait for torch.

python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time

COMMANDS = (["--help"], ["--version"], ["data", "list"], ["fit", "--help"], ["describe", "--config", "quickstart.yaml"])


def main(repeats: int = 5) -> None:
    """Print a table."""
    for command in COMMANDS:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "fedlit", *command], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        print(f"fedlit {' '.join(command):<42} {min(times):6.2f} s")


if __name__ == "__main__":
    main()
