"""A coordinator that is killed while its processes start, and bits that flip in what it keeps on disk."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from drill.forks import free_port

from fedlit.errors import ConfigError
from fedlit.institutions.journal import Journal

__all__ = ["flipped", "orphan"]

Rows = list[tuple[str, int, int, str]]
SITES = ["east", "north", "south"]

# ---------------------------------------------------------------------- killed while its processes start


def orphan(folder: Path, tries: int) -> Rows:
    """Kill a coordinator in the first seconds of its SuperLink: nothing lives on, and the next coordinator serves."""
    drawn, port, wrong = random.Random(0), free_port(), list[str]()
    _fedlit(folder, "coordinate", "init", "coordinator", "--sites", "north,south", "--port", str(port)).wait()
    for site in ("north", "south"):
        invited = f"coordinator/invitations/{site}"
        _fedlit(folder, "site", "keys", invited).wait()
        _fedlit(folder, "coordinate", "add", "coordinator", site, f"{invited}/{site}.pub").wait()
    for number in range(tries):
        first = _fedlit(folder, "coordinate", "start", "coordinator")
        begun = _until(lambda: any("superlink" in words for words in _below(folder).values()), 60)
        time.sleep(drawn.uniform(0, 3))
        before = _below(folder)
        first.kill()
        first.wait()
        second = _fedlit(folder, "coordinate", "start", "coordinator")
        gone = _until(lambda: not set(before) & set(_below(folder)), 15)  # noqa: B023
        served = gone and _until(lambda: _answers(port) or second.poll() is not None, 90) and second.poll() is None  # noqa: B023
        second.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            second.wait(60)
        left = _below(folder)
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not (begun and gone and served and not left):
            found = f"started {begun}, children gone {gone}, served {served}, left {len(left)}"
            wrong.append(f"kill {number + 1}: {found}")
    said = "".join(path.read_text() for path in (folder / "log", folder / "coordinator" / "state" / "superlink.log"))
    rows = [("coordinator killed while it starts", tries, tries - len(wrong), "; ".join(wrong[:3]) or "no orphan")]
    return [*rows, ("no traceback in its logs", 1, int("Traceback" not in said), "")]


def _fedlit(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fedlit", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _below(folder: Path) -> dict[int, str]:
    """Processes of the folder's coordinator that it has started: number → command."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            ended = (path / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if "fedlit.institutions" in words and os.readlink(path / "cwd") == str(folder.resolve()) and not ended:
                found[int(path.name)] = words
    return found


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _until(condition: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# ---------------------------------------------------------------------- bits that flip


def flipped(folder: Path, tries: int) -> Rows:
    """Flip a bit of the journal: the same content, or refused by the file's name."""
    logging.getLogger("fedlit").setLevel(logging.ERROR)
    journal = Journal(folder, SITES, 0)
    journal.tell("columns", {site: {site: {"columns": {"age": "numbers"}}} for site in SITES})
    for _ in range(3):
        replies = {site: {"received": {"w": torch.randn(500)}, "lost": [], "records": {}, "bytes": 0} for site in SITES}
        journal.close(SITES, replies, {"momentum": torch.randn(500)})

    def known() -> dict[str, Any]:
        found = Journal(folder, SITES, 0)
        replies = {site: found.read(2, site) for site in SITES}
        return {key: getattr(found, key) for key in ("number", "memory", "told", "took", "done")} | replies

    return [_flip("journal", [folder / "journal.db"], known, tries)]


def _flip(what: str, paths: list[Path], read: Callable[[], dict[str, Any]], tries: int) -> tuple[str, int, int, str]:
    drawn, expected, wrong, same = random.Random(0), _bits(read()), list[str](), 0
    for _ in range(tries):
        contents = {path: path.read_bytes() for path in paths}
        for path, content in contents.items():
            damaged = bytearray(content)
            damaged[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
            path.write_bytes(damaged)
        try:
            found = _bits(read()) == expected
            same += found
            wrong += [] if found else ["other content"]
        except ConfigError as error:
            wrong += [] if any(path.name in str(error) for path in paths) else [str(error)]
        except Exception as error:
            wrong.append(f"{type(error).__name__}: {error}")
        for path, content in contents.items():
            path.write_bytes(content)
    note = "; ".join(sorted(set(wrong))[:3]) or f"{same} with the same content, {tries - same} refused by name"
    return f"bits flipped in the {what}", tries, tries - len(wrong), note


def _bits(content: Any) -> Any:
    """Tensors as bytes, so that all can be compared."""
    if isinstance(content, torch.Tensor):
        return content.numpy().tobytes()
    if isinstance(content, dict):
        return {key: _bits(value) for key, value in content.items()}
    return content
