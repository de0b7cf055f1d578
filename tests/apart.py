"""Each site of a federation in a process of its own, forked from one that has imported everything, and what it opens:
``python -m apart FOLDER FEDERATION SOURCES``.
"""

import json
import os
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from lines import settings_of

from fedlit.institutions.consent import keep
from fedlit.institutions.coordinator import coordinate
from fedlit.institutions.site import Site, join


class Pipes:
    """The coordinator's line: a pipe to each site."""

    def __init__(self) -> None:
        self.pipes: dict[str, Connection] = {}

    def sites(self) -> frozenset[str]:
        return frozenset(self.pipes)

    def reply(self, site: str, content: bytes) -> None:
        with suppress(OSError, KeyError):  # it has ended
            self.pipes[site].send_bytes(content)

    def requests(self, timeout: float) -> list[tuple[str, Any]]:
        found = []
        for site, pipe in [(site, pipe) for site, pipe in self.pipes.items() if pipe in wait([pipe], timeout / 10)]:
            try:
                found.append((site, pipe.recv_bytes()))
            except (EOFError, OSError):
                del self.pipes[site]
        return found


class End:
    """A site's end."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.heard = pipe, False

    def hear(self, seconds: float | None = None) -> bytes:
        if not self.pipe.poll(seconds):
            raise TimeoutError
        self.heard = True
        return self.pipe.recv_bytes()

    def answer(self, content: bytes) -> bool:
        heard, self.heard = self.heard, False
        if heard:
            self.pipe.send_bytes(content)
        return heard


def live(folder: Path, name: str, federation: Path, source: Any, pipe: Connection) -> None:
    """A site, from its table to its weights."""
    opened: set[str] = set()
    sys.addaudithook(lambda event, own: opened.add(str(own[0])) if event == "open" else None)
    site = Site(settings_of(folder / name, name, federation, source))
    terms = site.terms()
    keep(folder / name, terms)
    join(site, End(pipe), terms, quiet=True)
    (folder / name / "opened.json").write_text(json.dumps(sorted(opened)))
    torch.save(site.run.loop.federation[name].state_dict(), folder / name / "weights.pt")


def main(folder: Path, federation: Path, sources: dict[str, Any]) -> None:
    line, children = Pipes(), []
    for name, source in sources.items():
        line.pipes[name], theirs = Pipe()
        if not (child := os.fork()):
            live(folder, name, federation, source, theirs)
            os._exit(0)
        theirs.close()
        children.append(child)
    coordinate(federation, list(sources), folder / "state", line)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
