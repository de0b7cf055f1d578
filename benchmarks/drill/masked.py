"""Kills in federations whose sums are masked: coordinator, sites and Flower's processes are real.
What was answered under masks is looked up in each site's ledger, and what left it in its record of
traffic.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from drill.real import PATIENCE, Rows, twin, undisturbed, wrong_of
from institutions import Federation, children, kill_one, processes

ROUNDS = 24
EACH = 10
"""Most kills of one federation."""
WINDOW = 20
"""Seconds within which a site's ledger should change."""


def masked_kills(folder: Path, tries: int) -> Rows:
    """Kill at random, and every third time while a masked answer is written or under way. With
    ``--resume``, federations that were finished before count.
    """
    alone, expected = undisturbed(folder, ROUNDS)
    record = folder / "kills.jsonl"
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    done = [json.loads(line) for line in lines]
    while (left := tries - sum(sum(own["kills"].values()) for own in done)) > 0:
        number = len(done)
        drawn = random.Random(number)
        federation = twin(alone, folder / f"{number}")
        kills, wrong = _killed(federation, min(left, EACH), drawn)
        wrong += wrong_of(federation, federation.wait(PATIENCE), expected, ROUNDS)
        time.sleep(2)
        wrong += [f"orphan: {words}" for words in processes(federation.folder)]
        done.append({"kills": kills, "wrong": wrong})
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(
            f"masked federation {number + 1}: {kills}, {wrong or 'same bits'}",
            file=sys.stderr,
            flush=True,
        )
        if not wrong:
            shutil.rmtree(federation.folder)
    count = sum((Counter(own["kills"]) for own in done), Counter[str]())
    passed = sum(sum(own["kills"].values()) for own in done if not own["wrong"])
    note = f"{len(done)} federations, {dict(count)}; "
    note += (
        "; ".join(why for own in done for why in own["wrong"])
        or "same bits, no orphans, each answer given once"
    )
    return [("kills, masked", count.total(), passed, note)]


def _killed(
    federation: Federation, quota: int, drawn: random.Random
) -> tuple[dict[str, int], list[str]]:
    """Kill and start again; return how often what was killed, and what went wrong."""
    kills = Counter[str]()
    wrong = list[str]()
    for name in ("coordinator", *federation.sources):
        federation.start(name)
    while kills.total() < quota and not wrong:
        if kills.total() % 3 == 2:
            done = _kill_answering(federation, drawn)
        else:
            time.sleep(0.1 * 150 ** drawn.random())
            done = kill_one(federation, drawn, wrong)
        kills.update([done] if done else [])
        codes = {name: process.poll() for name, process in federation.processes.items()}
        wrong += [f"{name} ended with exit status {code}" for name, code in codes.items() if code]
        if all(code is not None for code in codes.values()):
            break
    return dict(kills), wrong


def _kill_answering(federation: Federation, drawn: random.Random) -> str:
    """Kill a site while it writes into its ledger, or it or what speaks for it while a masked
    answer is under way.
    """
    site = drawn.choice(list(federation.sources))
    what = drawn.choice(["site, writing", "site, answering", "speaker, answering"])
    journal, traffic = (
        federation.folder / site / name for name in ("privacy/memory.db-journal", "traffic.jsonl")
    )
    process = federation.processes[site]
    until = time.monotonic() + WINDOW
    begun = _size(traffic)
    while time.monotonic() < until and process.poll() is None:
        time.sleep(0.0005)
        reached = journal.exists() if what == "site, writing" else _answers(traffic, begun)
        victim = process.pid
        if what == "speaker, answering":
            victim = next(iter(children(process.pid).get("speaker", [])), 0)
        if not begun or not reached or not victim:
            begun = begun or _size(traffic)
            continue
        os.kill(victim, signal.SIGKILL)
        if victim == process.pid:
            process.wait()
            federation.start(site)
        return what
    return ""


def _answers(traffic: Path, begun: int) -> bool:
    """Return whether the newest message of a site is a masked answer, and was noted after so many
    bytes.
    """
    return _size(traffic) > begun and b'"masked"' in traffic.read_bytes().splitlines()[-1]


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
