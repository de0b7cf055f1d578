"""Other frameworks and fedlit at the same work: CPU seconds and seconds of a round.

    python benchmarks/peers.py [--clients 4 10 100 1000] [--methods fedavg fedper ditto]
        [--peers NAME ...] [--blocks N] [--validate] [--pfllib FOLDER] [--out FILE] [--verbose]

First all train whole batches from one start, and the losses that they end at are printed: they
should differ in the last digits only. Then they train blocks of rounds in turn (A B C A B C …), each
in a process of its own with one thread, so that other work of the machine falls on all of them.
Rounds are counted from the second of each block. CPU seconds count; seconds on the clock mean
something on an otherwise free machine only.

The frameworks are installed beside fedlit, in an environment of its own with Python 3.11 or 3.12:

    pip install -e . pfl fedlab fluke-fl h5py
    pip install --no-deps --ignore-requires-python blazefl

PFLlib is no package: ``--pfllib`` names the folder ``system`` of its checkout. blazefl 3 is written for
Python 3.14; under an earlier one, take ``[T]`` out of two signatures in its ``core/utils.py``, and
begin that file and ``reproducibility/snapshot.py`` with ``from __future__ import annotations``. A
framework that cannot be imported is left out, and the reason is printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from measure import THREAD_VARIABLES

Reply = dict[str, Any]
PEERS = {
    "plain loop": "plain_loop",
    "PFLlib": "pfllib",
    "pfl-research": "pfl_research",
    "FedLab": "fedlab_run",
    "blazefl": "blazefl_run",
    "fluke": "fluke_run",
    "fedlit": "fedlit_run",
    "fedlit, plain engine": "fedlit_run",
}
SCORING = ("plain loop", "PFLlib", "pfl-research", "fedlit", "fedlit, plain engine")
"""Those that score rows in each round, of which PFLlib alone computes more than a loss."""
OURS = ("fedlit", "fedlit, plain engine")
HEADS = (
    "",
    "CPU s a round",
    "seconds a round",
    "rounds",
    "CPU s to 1st end",
    "loss",
    "fedlit / it",
)
BLOCKS = {4: (4, 16), 10: (4, 11), 100: (3, 5), 1_000: (2, 3)}
"""Clients → blocks, and rounds of a block."""


class Peer:
    """A process that trains with one framework whenever it is asked to.

    Args:
        name: the framework.
        pfllib: the folder ``system`` of PFLlib.
        verbose: whether what it writes to standard error is shown.
    """

    def __init__(self, name: str, pfllib: str, verbose: bool = False) -> None:
        self.name = name
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1") | {"TQDM_DISABLE": "1"}
        command = [sys.executable, __file__, "--serve", name, "--pfllib", pfllib]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        greeting = self.reply()
        self.failed: str = greeting.get("failed", "")
        self.methods: list[str] = greeting.get("methods", [])
        self.start_cpu: float = greeting.get("cpu", 0.0)

    def reply(self) -> Reply:
        """Return what the process answers next."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"failed": "its process ended"}

    def ask(self, work: Any) -> Reply:
        """Let the process train, and return what it measured."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(asdict(work)) + "\n")
        self.process.stdin.flush()
        return self.reply()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


# ---------------------------------------------------------------------- inside a peer's process


def serve(name: str, pfllib: str) -> None:
    """Train whatever standard input asks for."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # what frameworks print goes nowhere, also what is written below Python
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def answer(reply: Reply) -> None:
        answers.write(json.dumps(reply) + "\n")

    sys.path.append(pfllib)
    try:
        import torch

        torch.set_num_threads(1)
        module = importlib.import_module(f"peer.{PEERS[name]}")
    except Exception as error:
        return answer({"failed": repr(error)})
    train = module.train
    if name == "fedlit, plain engine":
        train = partial(train, engine="plain")
    answer({"methods": module.METHODS, "cpu": time.process_time()})
    for line in sys.stdin:
        try:
            answer(measured(train, json.loads(line)))
        except Exception as error:
            traceback.print_exc()
            answer({"failed": repr(error)})
    return None


def measured(train: Any, fields: dict[str, Any]) -> Reply:
    """Train, and return the seconds of each round, the CPU seconds until the first round has ended,
    and the loss.
    """
    from peer.work import Clock, Work, loss, make_tables

    work = Work(**fields)
    tables = make_tables(work.clients)
    clock = Clock()
    began = time.process_time()
    networks = train(work, tables, clock)
    first = clock.marks[1][0] - began
    return {**clock.rounds(), "first": first, "loss": loss(networks, tables)}


# ---------------------------------------------------------------------- comparing


def start_peers(names: Sequence[str], pfllib: str, verbose: bool) -> list[Peer]:
    """Start a process for each framework that can be imported."""
    peers = []
    for name in names:
        peer = Peer(name, pfllib, verbose)
        if peer.failed:
            print(f"{name} is left out: {peer.failed}", flush=True)
            peer.close()
        else:
            print(f"{name}: started in {peer.start_cpu:.1f} CPU s", flush=True)
            peers.append(peer)
    return peers


def check(peers: Sequence[Peer], methods: Sequence[str]) -> None:
    """Print at which loss all end after three rounds of whole batches. Who fails at a method takes no
    further part in it.
    """
    from peer.work import Work

    for method in methods:
        work = Work(method, clients=4, rounds=3, whole=True)
        reference = None
        for peer in [peer for peer in peers if method in peer.methods]:
            reply = peer.ask(work)
            if "failed" in reply:
                print(f"{method}: {peer.name} is left out: {reply['failed']}")
                peer.methods.remove(method)
                continue
            reference = reference or reply["loss"]
            difference = abs(reply["loss"] - reference)
            print(f"{method:6}  {peer.name:20}  loss {reply['loss']:.8f}  {difference:.1e}")
    print(flush=True)


def compare(peers: Sequence[Peer], work: Any, blocks: int) -> dict[str, Reply]:
    """Let all train a piece of work in turn, several times."""
    results: dict[str, Reply] = {}
    for _ in range(blocks):
        for peer in peers:
            reply = peer.ask(work)
            if "failed" in reply:
                print(f"{peer.name} failed: {reply['failed']}", flush=True)
                continue
            result = results.setdefault(peer.name, {"cpu": [], "wall": [], "first": []})
            result["cpu"] += reply["cpu"][1:]
            result["wall"] += reply["wall"][1:]
            result["first"].append(reply["first"])
            result["loss"] = reply["loss"]
    return results


def middle(values: Sequence[float]) -> str:
    """Return a median with least and most."""
    return f"{statistics.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def table(work: Any, results: dict[str, Reply]) -> None:
    """Print what a comparison found, and fedlit against each and against the best of the others."""
    medians = {name: statistics.median(result["cpu"]) for name, result in results.items()}
    others = {name: value for name, value in medians.items() if name not in OURS}
    ours = medians.get("fedlit", float("nan"))
    validating = ", with validation" if work.validate else ""
    print(f"## {work.method}, {work.clients} clients{validating}\n")
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{' --- |' * len(HEADS)}")
    for name, result in results.items():
        cells = [
            name,
            middle(result["cpu"]),
            middle(result["wall"]),
            str(len(result["cpu"])),
            f"{statistics.median(result['first']):.2f}",
            f"{result['loss']:.5f}",
            f"{ours / medians[name]:.2f}",
        ]
        print(f"| {' | '.join(cells)} |")
    if others:
        best = min(others, key=lambda name: others[name])
        print(f"\nfedlit / best peer ({best}): {ours / others[best]:.2f}\n", flush=True)


def main() -> None:
    """Compare, or serve as one of the peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=list(BLOCKS))
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedper", "ditto"])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--blocks", type=int, help="how often each trains a piece of work")
    parser.add_argument("--validate", action="store_true", help="score rows in each round")
    parser.add_argument("--pfllib", default="", help="the folder system of PFLlib's checkout")
    parser.add_argument("--out", type=Path, help="a JSON file for every figure")
    parser.add_argument("--verbose", action="store_true", help="show what frameworks warn of")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.pfllib)
    from peer.work import Work

    names = [name for name in options.peers if name in SCORING or not options.validate]
    peers = start_peers(names, options.pfllib, options.verbose)
    check(peers, options.methods)
    figures = []
    for clients, method in product(options.clients, options.methods):
        blocks, rounds = BLOCKS.get(clients, (2, 3))
        work = Work(method, clients, rounds, validate=options.validate)
        able = [peer for peer in peers if method in peer.methods]
        results = compare(able, work, options.blocks or blocks)
        table(work, results)
        figures.append({"work": asdict(work), "results": results})
        if options.out:
            options.out.write_text(json.dumps(figures))
    for peer in peers:
        peer.close()
    return None


if __name__ == "__main__":
    main()
