"""Sites in threads of this process and a line to them that can lose, repeat and delay, one site
computing at a time."""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from fedlit.errors import FedlitError, RunError
from fedlit.institutions.accepted import keep
from fedlit.institutions.certificates import make_site_keys
from fedlit.institutions.coordinator import coordinate
from fedlit.institutions.settings import SiteSettings
from fedlit.institutions.site import Site, join


@contextmanager
def given_up(turn: threading.Lock) -> Iterator[None]:
    """While one waits for others; one of several threads computes at a time: torch's generators
    belong to all."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


class Killed(BaseException):
    """What a test ends a site's thread with."""


class MemoryLine:
    """Both ends of a line. ``meddle(way, site, content)`` returns what arrives, a list; by default
    what was sent."""

    def __init__(
        self, sites: list[str], meddle: Callable[[str, str, bytes], list[bytes]] | None = None
    ) -> None:
        self.questions = {site: queue.SimpleQueue[bytes | None]() for site in sites}
        self.answered: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.here = set(sites)
        self.turn = threading.Lock()
        self.meddle = meddle or (lambda way, site, content: [content])
        self.over = False
        self.last: dict[str, bytes] = {}
        self.messages: list[tuple[str, str, bytes]] = []

    # the coordinator's end
    def sites(self) -> frozenset[str]:
        return frozenset(self.here)

    def reply(self, site: str, content: bytes) -> None:
        self.messages.append(("to", site, content))
        self.last[site] = content
        while not self.questions[site].empty():
            self.questions[site].get()
        for own in self.meddle("to", site, content):
            self.questions[site].put(own)

    def requests(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        found: list[tuple[str, bytes | RunError]] = []
        if self.over:
            raise RunError("all sites have ended")
        try:
            with given_up(self.turn):
                found.append(self.answered.get(timeout=min(timeout, 0.05)))
            while True:
                found.append(self.answered.get_nowait())
        except queue.Empty:
            return found


class SiteEnd:
    """A site's end of a :class:`MemoryLine`."""

    def __init__(self, line: MemoryLine, site: str) -> None:
        self.line = line
        self.site = site
        self.heard = False
        # a question that nobody answered is asked again
        if site in line.last and line.questions[site].empty():
            line.questions[site].put(line.last[site])

    def hear(self, seconds: float | None = None) -> bytes:
        with given_up(self.line.turn):
            try:
                found = self.line.questions[self.site].get(timeout=seconds)
            except queue.Empty:
                raise TimeoutError from None
        if found is None:
            raise Killed
        self.heard = True
        return found

    def answer(self, content: bytes) -> bool:
        if not self.heard:
            return False
        self.heard = False
        self.line.messages.append(("from", self.site, content))
        for own in self.line.meddle("from", self.site, content):
            self.line.answered.put((self.site, own))
        return True

    def close(self) -> None:
        pass


def in_threads(
    line: MemoryLine, works: Mapping[str, Callable[[], Any]], serve: Callable[[], Any]
) -> tuple[Any, dict[str, Any], dict[str, BaseException]]:
    """Sites in threads, the coordinator in this one: what it returned, what sites returned, and
    what went wrong."""
    results = dict[str, Any]()
    errors = dict[str, BaseException]()
    left = set(works)

    def live(name: str) -> None:
        with line.turn:
            try:
                results[name] = works[name]()
            except BaseException as error:
                errors[name] = error
            left.discard(name)
            line.here.discard(name)
            line.over = name in errors and not left

    threads = [
        threading.Thread(target=live, args=(name,), name=name, daemon=True) for name in works
    ]
    result = None
    with line.turn:  # the working directory and torch's generators belong to all threads
        for thread in threads:
            thread.start()
        try:
            result = serve()
        except FedlitError as error:
            errors["coordinator"] = error
    for thread in threads:
        thread.join(60)
    return result, results, errors


def federate(
    folder: Path,
    federation: Path,
    sources: Mapping[str, Any],
    *,
    line: MemoryLine | None = None,
    before: Callable[[str, Site], None] = lambda name, site: None,
    attempts: int = 1,
    coordinators: int = 1,
    **options: Any,
) -> tuple[dict[str, Any], dict[str, Site], dict[str, BaseException]]:
    """Run a federation of sites; what the coordinator returned, the sites, and what went wrong at
    which."""
    line = line or MemoryLine(list(sources))

    def live(name: str, left: int = attempts) -> Site:
        site = Site(settings_of(folder / name, name, federation, sources[name]))
        terms = site.terms()
        keep(site.settings.folder, terms)
        before(name, site)
        try:
            join(site, SiteEnd(line, name), terms, renew=lambda terms: None, quiet=True)
        except Killed:
            if left == 1:
                raise
            return live(name, left - 1)
        return site

    def serve() -> dict[str, Any]:
        for _ in range(coordinators):
            with suppress(Killed):
                return coordinate(federation, list(sources), folder / "state", line, **options)
        return {}

    result, sites, errors = in_threads(line, {name: partial(live, name) for name in sources}, serve)
    return result or {}, sites, errors


def settings_of(folder: Path, name: str, federation: Path, source: Any) -> SiteSettings:
    folder.mkdir(exist_ok=True)
    if not (folder / "site.key").exists() and "masked" in federation.read_text(encoding="utf-8"):
        make_site_keys(folder, name)
    return SiteSettings(
        file=folder / "site.yaml",
        site=name,
        coordinator="localhost:8443",
        data={"source": source},
        certificate=folder / "ca.crt",
        key=folder / "site.key",
        federation=federation,
    )
