"""Sites that answer bytes by bytes, and coordinators that ask them: what real processes of tests run."""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import RunError

if TYPE_CHECKING:  # it imports torch, for which each process that speaks would wait
    from fedlit.institutions.sites_server import Line

ROUNDS = 10


class Site:
    """Answers each connection's question; knows nothing of fedlit."""

    def __init__(self, path: Path, answer: Callable[[bytes], bytes]) -> None:
        self.questions: list[bytes] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._path, self._answer = path, answer
        threading.Thread(target=self._live, daemon=True).start()

    def _live(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            with line, line.makefile("rb") as file:
                if len(head := file.read(8)) < 8:
                    continue
                self.questions.append(file.read(struct.unpack(">Q", head)[0]))
                try:
                    answer = self._answer(self.questions[-1])
                    line.sendall(struct.pack(">Q", len(answer)) + answer)
                except OSError:
                    continue

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._path.unlink()


def rounds(folder: Path, line: Line) -> None:
    """Asks each site in each round for its question backwards; goes on from the last round that it noted."""
    noted = folder / "state" / "rounds.jsonl"
    sites = ("north", "south")
    done = len(noted.read_text().splitlines()) if noted.is_file() else 0
    for number in range(done, ROUNDS):
        asked = {site: f"{number} {site} ".encode() + os.urandom(7_000_000 if number == 1 else 40) for site in sites}
        for site, question in asked.items():
            line.reply(site, question)
        missing = set(sites)
        while missing:
            for site, answer in line.requests(1.0):
                # a site's name, then its question backwards
                if answer == site.encode() + asked[site][::-1]:
                    missing.discard(site)
        with noted.open("a") as file:
            file.write(json.dumps({"round": number, "in": sorted(line.sites()), "pid": os.getpid()}) + "\n")
        while number == 3 and not (folder / "state" / "go").exists():
            time.sleep(0.05)
    (folder / "state" / "progress.json").write_text(json.dumps({"state": "finished"}))


def refuses(folder: Path, line: Line) -> None:
    """Fails as a federation does."""
    raise RunError("north: exchange.rate: expected 1.0, found 0.5")


def forgets(folder: Path, line: Line) -> None:
    """Ends without having finished."""
