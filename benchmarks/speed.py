"""The plain loop (``plain.py``) against fedlit as it ships (``shipped.py``), in turn, each in a
process of its own.

    python benchmarks/speed.py [CASE ...] [--repetitions N] [--epochs N] [--clients N ...]
    [--threads N ...]
        [--key KEY=VALUE ...]

Prints tables, and writes them to ``benchmarks/results/<case>*.csv``. Ratios are those of
measurements that followed each other. On a machine with other work, plain's threads wait for each
other: measure it with ``--threads 0 1``. Cases (all of them if none is named):

- ``covertype``: seconds per epoch of covertype_gl.yaml with validation after each; memory, ratios;
- ``clients``: time of a client's step and peak memory over the number of clients.
"""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from itertools import chain
from typing import Any

from measure import HERE, Figures, Thing, alone, in_turn, ratios, spread, table

MANY = str(HERE / "many.yaml")
WARM_UP = 2
HEART_STEPS = 15  # batches per epoch in many.yaml

PLAIN = "plain"
FEDLIT = "fedlit"
BF16 = "fedlit bf16"


def covertype(options: Namespace) -> None:
    """Seconds per epoch, memory; ratios."""
    arguments = {"config": "covertype_gl.yaml", "epochs": WARM_UP + options.epochs}
    found = in_turn(
        {
            **plain("plain:fit", options, **arguments),
            FEDLIT: ("shipped:fit", {**arguments, "keys": options.key}),
            BF16: (
                "shipped:fit",
                {**arguments, "keys": ["--trainer.precision=bf16-mixed", *options.key]},
            ),
        },
        options.repetitions,
    )
    rows = []
    for label, runs in found.items():
        for run in runs:
            run["mean epoch"] = sum(run["epochs"][WARM_UP:]) / options.epochs
            run["best epoch"] = min(run["epochs"][WARM_UP:])
        seconds = spread(chain(*(run["epochs"][WARM_UP:] for run in runs)), "epoch s")
        rows.append(
            {
                "side": label,
                **seconds,
                "warm-up epochs s": " ".join(
                    f"{second:.2f}" for run in runs for second in run["epochs"][:WARM_UP]
                ),
                **machine_columns(runs),
                "AUROC": " ".join(f"{run['auroc']:.3f}" for run in runs),
            }
        )
    table("covertype", rows)
    table("covertype_ratios", [*compare(found, "mean epoch"), *compare(found, "best epoch")])


def clients(options: Namespace) -> None:
    """Time of a client's step and peak memory over the number of clients; training only, one
    exchange an epoch.
    """
    rows: list[dict[str, Any]] = []
    keys = [
        "--trainer.check_val_every_n_epoch=1000",
        "--trainer.enable_checkpointing=false",
        *options.key,
    ]
    for number in options.clients:
        counted = max(1, min(options.epochs, 256 // number))
        arguments = {"config": MANY, "epochs": 1 + counted}
        source = f"--data.source.init_args.clients={number}"
        found = in_turn(
            {
                **plain("plain:fit", options, **arguments, validate=False, clients=number),
                FEDLIT: ("shipped:fit", {**arguments, "keys": [source, *keys]}),
            },
            options.repetitions,
        )
        for label, runs in found.items():
            steps = number * HEART_STEPS
            milliseconds = [1000 * second / steps for run in runs for second in run["epochs"][1:]]
            first = [1000 * run["epochs"][0] / steps for run in runs]
            rows.append(
                {
                    "clients": number,
                    "side": label,
                    **spread(milliseconds, "step ms"),
                    "first epoch, step ms": min(first),
                    **machine_columns(runs),
                }
            )
    table("clients", rows)


def machine_columns(runs: list[Figures]) -> dict[str, float]:
    """Largest peak of the processes, and how much of it came with training where that is known."""
    columns = {"peak MiB": max(run["peak_mib"] for run in runs)}
    if "before_mib" in runs[0]:
        columns["above start MiB"] = max(run["peak_mib"] - run["before_mib"] for run in runs)
    return columns


def plain(function: str, options: Namespace, **arguments: Any) -> dict[str, Thing]:
    """The plain side, once for each number of threads that was asked for."""
    names = {
        number: f"{PLAIN}, {number} thread{'s' if number > 1 else ''}" if number else PLAIN
        for number in options.threads
    }
    return {
        name: (function, {**arguments, "threads": number or None}) for number, name in names.items()
    }


def compare(found: dict[str, list[Figures]], key: str) -> list[dict[str, Any]]:
    """Ratios of the plain sides to fedlit's."""
    return ratios(found, key, [label for label in found if label.startswith(PLAIN)])


CASES: dict[str, Callable[[Namespace], None]] = {
    case.__name__: case for case in (covertype, clients)
}


def main() -> None:
    """Check the yardstick, then each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", default=list(CASES), help=", ".join(CASES)
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6, help="that count, behind the warm-up")
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[8, 32, 128, 512, 1000], help="numbers"
    )
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        default=[0],
        help="of the plain loop; 0: PyTorch's default",
    )
    parser.add_argument("--key", action="append", default=[], help="KEY=VALUE for fedlit's side")
    options = parser.parse_args()
    options.key = [f"--{key.removeprefix('--')}" for key in options.key]
    unknown = sorted(set(options.cases) - set(CASES))
    if unknown:
        parser.error(f"expected cases among {', '.join(CASES)}, found {', '.join(unknown)}")
    load = os.getloadavg()
    difference = alone("plain:check")["largest_difference"]
    print(f"The plain network gives fedlit's outputs to {difference:.0e}.")
    print(
        f"Load before this began, mean of 1 and of 15 minutes: {load[0]:.2f}, {load[2]:.2f}.\n",
        flush=True,
    )
    for case in options.cases:
        print(f"{case} …", file=sys.stderr)
        CASES[case](options)


if __name__ == "__main__":
    main()
