"""Sites in threads of this process, and a line to them that can lose, repeat and delay; one
thread computes at a time.

:func:`federate` runs sites of files, as the commands do; :func:`over_sites` runs the transport,
the server and the journal of institutions around the runs of :mod:`federations`.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from federations import Killed, make_run, weights
from torch import Tensor

from fedlit.client.build import build_client
from fedlit.errors import FedlitError, RunError
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.rule import Rule
from fedlit.exchange.schedule import BEGIN
from fedlit.exchange.wire import unpack
from fedlit.institutions.accepted import PRIVATE, keep
from fedlit.institutions.certificates import make_site_keys
from fedlit.institutions.consent import Consent
from fedlit.institutions.coordinator import coordinate
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.journal import Journal
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.settings import FederationFile, SiteSettings
from fedlit.institutions.site import Site, join, shielded
from fedlit.institutions.sites_server import SitesServer
from fedlit.institutions.terms import Terms
from fedlit.institutions.traffic import Traffic
from fedlit.institutions.transport import SiteTransport
from fedlit.privacy.keys import fingerprint_of
from fedlit.privacy.ledger import Ledger
from fedlit.privacy.settings import Privacy
from fedlit.privacy.site import Shield
from fedlit.run.run import Run
from fedlit.sharing import form_of

ID = "0123456789abcdef" * 2


@contextmanager
def given_up(turn: threading.Lock) -> Iterator[None]:
    """While one waits for others; one of several threads computes at a time: torch's generators
    belong to all."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


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


def agreeing(rule: Rule) -> Any:
    """Return the consent of somebody who agrees to all that leaves, and to questions as far as the
    rule declares."""
    checks = dict.fromkeys(("check", "check_update"), lambda *_, **__: None)
    consent = Consent(
        Terms("", {}, {}, {}, questions=rule.facts.questions or {"*": QuestionTerms()})
    )
    terms: Any = consent.terms
    # how many depends on tensors, which are not known yet
    if any(kind.about for kind in terms.questions.values()):
        terms = SimpleNamespace(federation={}, most_questions=None)
    return SimpleNamespace(**checks, check_question=consent.check_question, terms=terms)


@dataclass
class Sites:
    """What came of a federation: runs and shields by site, what was said, and what the coordinator
    remembers."""

    runs: dict[str, Run]
    shields: dict[str, Shield]
    line: MemoryLine
    journal: Journal

    def weights(self) -> dict[str, Tensor]:
        """All tensors of all sites' clients, named as in one federation."""
        return {key: value for run in self.runs.values() for key, value in weights(run).items()}

    def heard(self, site: str) -> Iterator[dict[str, Any]]:
        """All messages that a site has sent."""
        return (
            unpack(content)
            for way, name, content in self.line.messages
            if way == "from" and name == site
        )


def over_sites(
    folder: Path,
    ckpt: str | None = None,
    *,
    killed: bool = False,
    privacy: Privacy | None = None,
    signed: bool = True,
    **options: Any,
) -> Sites:
    """Each client a site, in a thread.

    Args:
        folder: below which each site has its own, and the coordinator its journal, with which it
            goes on.
        ckpt: the file in a site's folder that it resumes from.
        killed: whether each site is to be killed.
        privacy: what protects sites.
        signed: whether sites know each other's keys.
        options: of the federation; ``callbacks`` makes a site's from its folder.

    Raises:
        BaseException: of the first site that failed by itself, else the coordinator's.
    """
    clients = options.pop("clients", ("ash", "birch", "cedar"))
    callbacks = options.pop("callbacks", lambda folder: [])
    whole = make_run(folder / "hub", clients=clients, **options)
    training = whole.loop.federation.training
    exchange = whole.exchange
    rule = exchange.rule
    line = MemoryLine(list(clients))
    shields = dict[str, Shield]()
    keys = _keys(folder, clients) if privacy is not None else {}

    def site(name: str) -> Run:
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(own / PRIVATE, ID)
        traffic = Traffic(own / "traffic.jsonl")
        end = SiteEnd(line, name)
        transport = SiteTransport(name, end, rule, agreeing(rule), traffic, ledger, seed=whole.seed)
        run = make_run(
            own, clients=(name,), transport=transport, callbacks=callbacks(own), **options
        )
        run.describe()
        if published := run.exchange.published[name]:
            forms = {key: form_of(value) for key, value in published.items()}
            transport.share("manifest", {name: {"published": forms}})
        if privacy is not None:
            peers = {peer: key for peer, key in keys.items() if signed and peer != name}
            named = {
                "file": own / "site.yaml",
                "site": name,
                "coordinator": "localhost:1",
                "key": own / "site.key",
            }
            settings = SiteSettings(**named, data={"source": ""}, peers=peers)  # type: ignore[arg-type]
            federation = FederationFile(privacy=privacy, id=ID, sites=tuple(sorted(clients)))
            transport.shield = shields[name] = shielded(federation, settings, run, transport)
        run.fit(own / ckpt if ckpt else None, quiet=True)
        transport.end()
        return run

    start = BEGIN if type(rule).begin is not Rule.begin else 0
    journal = Journal(folder / "state", sorted(clients), start)
    build = partial(build_client, training.client)
    server = CoordinatorServer(rule, whole.seed, exchange.minimum, exchange.guard, build)
    hub = SitesServer(server, line, journal, {}, Patience(600, len(clients)), privacy=privacy)
    _, runs, errors = in_threads(line, {name: partial(site, name) for name in clients}, hub.run)
    coordinator = errors.pop("coordinator", None)
    by_itself = [own for own in errors.values() if str(coordinator) not in str(own)]
    for error in (*by_itself, coordinator):
        if error is not None and not killed:
            raise error
    assert not killed or all(isinstance(own, Killed) for own in errors.values())
    return Sites(runs, shields, line, journal)


def _keys(folder: Path, clients: tuple[str, ...]) -> dict[str, str]:
    """Site → fingerprint of the key that it has now."""
    for name in clients:
        (folder / name).mkdir(parents=True, exist_ok=True)
        if not (folder / name / "site.key").exists():
            make_site_keys(folder / name, name)
    return {
        name: fingerprint_of((folder / name / f"{name}.pub").read_text().strip())
        for name in clients
    }


def history(run: Run, client: str | None = None) -> list[dict[str, str]]:
    """What was logged, to the last bit, but for clocks; of a client alone, or of all and the
    federation."""
    start = f"{client}/" if client else ""
    wanted = [
        [key for key in own if key.startswith(start) and "seconds" not in key]
        for own in run.loop.history
    ]
    return [
        {key: repr(own[key]) for key in keys}
        for own, keys in zip(run.loop.history, wanted, strict=True)
    ]
