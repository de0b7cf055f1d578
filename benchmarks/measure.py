"""Helpers of the timed checks: each thing alone in a process of its own, in turn; tables.

python benchmarks/measure.py MODULE:FUNCTION JSON

calls a function of a module in this folder with keyword arguments and prints what it returns, and
the process's peak memory, as JSON. That is how :func:`alone` starts it.
"""

from __future__ import annotations

import csv
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
Figures = dict[str, Any]
Thing = tuple[str, dict[str, Any]]
"""What is measured: ``module:function`` in this folder, and its keyword arguments."""


def memory(kind: str = "VmHWM") -> float:
    """MiB of this process: its peak so far, or with ``VmRSS`` what it holds now.

    From /proc where there is one: ``ru_maxrss`` of a child begins at what its parent held when it
    was started.
    """
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition(f"{kind}:")[2].split()[0]) / 1024
    except OSError:
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def seconds(function: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def alone(function: str, **arguments: Any) -> Figures:
    """Call ``module:function`` in a fresh process, with PyTorch's default number of threads,
    whatever is set here.

    Returns:
        What it returned, with ``peak_mib``, the process's peak memory.

    Raises:
        RuntimeError: it failed; the message holds what it wrote.
    """
    environment = {key: value for key, value in os.environ.items() if key not in THREAD_VARIABLES}
    command = [sys.executable, str(HERE / "measure.py"), function, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        how = f"{function}({arguments}) ended with {done.returncode}"
        raise RuntimeError(f"{how}:\n{done.stdout[-2000:]}{done.stderr[-6000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def in_turn(things: Mapping[str, Thing], repetitions: int) -> dict[str, list[Figures]]:
    """Measure A B A B …, so that what else the machine does falls on all of them.

    Returns:
        label → figures of each repetition.
    """
    found: dict[str, list[Figures]] = {label: [] for label in things}
    for repetition in range(repetitions):
        for label, (function, arguments) in things.items():
            start = time.perf_counter()
            found[label].append(alone(function, **arguments))
            took = time.perf_counter() - start
            print(
                f"  {label}, {repetition + 1} of {repetitions}: {took:.0f} s in all",
                file=sys.stderr,
                flush=True,
            )
    return found


def spread(values: Iterable[float], name: str = "") -> dict[str, float]:
    """Columns ``<name> min``, ``<name> median`` and ``<name> max``."""
    values = list(values)
    columns = {"min": min(values), "median": statistics.median(values), "max": max(values)}
    return {f"{name} {key}".strip(): value for key, value in columns.items()}


def ratios(
    found: Mapping[str, Sequence[Figures]], key: str, yardsticks: Sequence[str]
) -> list[dict[str, Any]]:
    """One row for each yardstick and each other thing: yardstick / thing, repetition by
    repetition.
    """
    return [
        {
            "ratio": f"{yardstick} / {label}",
            "of": key,
            **spread(a[key] / b[key] for a, b in zip(found[yardstick], found[label], strict=True)),
        }
        for yardstick in yardsticks
        for label in found
        if label not in yardsticks
    ]


def table(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a table and write them to ``results/<name>.csv``."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (columns, ["-" * width for width in widths], *cells):
        print(
            "| "
            + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
            + " |"
        )
    print(flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    figures = getattr(importlib.import_module(module), function)(**json.loads(sys.argv[2]))
    print(json.dumps({**figures, "peak_mib": memory()}))
