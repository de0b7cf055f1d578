"""Federations whose clients are sites that know nothing of each other: the transport, the server
and the journal of institutions, over a line in memory, around the runs of :mod:`federations`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from federations import Killed, make_run, weights
from lines import MemoryLine, SiteEnd, in_threads
from torch import Tensor

from fedlit.client.build import build_client
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.rule import Rule
from fedlit.exchange.schedule import BEGIN
from fedlit.exchange.wire import unpack
from fedlit.institutions.accepted import PRIVATE
from fedlit.institutions.certificates import make_site_keys
from fedlit.institutions.consent import Consent, Terms
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.journal import Journal
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.settings import FederationFile, SiteSettings
from fedlit.institutions.site import shielded
from fedlit.institutions.sites_server import SitesServer
from fedlit.institutions.transport import SiteTransport, Traffic
from fedlit.privacy.keys import fingerprint_of
from fedlit.privacy.ledger import Ledger
from fedlit.privacy.settings import Privacy
from fedlit.privacy.site import Shield
from fedlit.run.run import Run
from fedlit.sharing import form_of

ID = "0123456789abcdef" * 2


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
