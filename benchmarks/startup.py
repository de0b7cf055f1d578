"""CPU seconds (user and system) until commands have answered, least of several runs each; what is misspelt must not
wait for torch.

python benchmarks/startup.py
"""

from __future__ import annotations

import os
import subprocess
import sys

COMMANDS = (
    ["--help"],
    ["data", "list"],
    ["fit", "--config", "nosuch"],
    ["fit", "--config", "quickstart.yaml", "--lr", "1"],
    ["fit", "--help"],
    ["describe", "--config", "quickstart.yaml"],
)


def main(repeats: int = 5) -> None:
    """Print a table."""
    for command in COMMANDS:
        times = []
        for _ in range(repeats):
            before = os.times()
            subprocess.run([sys.executable, "-m", "fedlit", *command], check=False, capture_output=True)
            after = os.times()
            times.append(after.children_user - before.children_user + after.children_system - before.children_system)
        print(f"fedlit {' '.join(command):<42} {min(times):6.2f} s")


if __name__ == "__main__":
    main()
