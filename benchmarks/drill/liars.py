"""One side of a federation lies to the other: one message of a real federation is changed, a
thousand times.

Sites and coordinator are the stock ones (:class:`~fedlit.institutions.transport.SiteTransport`,
:class:`~fedlit.institutions.sites_server.SitesServer`), over a line in memory. Four sites say again
what real sites said once; their clients answer questions themselves.
"""

from __future__ import annotations

import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from drill.federation import TESTS

sys.path[:0] = [str(TESTS)]

Rows = list[tuple[str, int, int, str]]
SITES = ("east", "north", "south", "west")
LIAR = "south"
PATIENCE = 0.2
LATE = 120.0
ROUNDS = 2
GOOD = ("refused", "believed")
BAD = ("raw error", "federation ended", "honest site refused", "stalled")
ALIGNED = {"align": "both", "scaling": "pooled", "bins": "agreed", "facts_from": 1}
FORESTS = {"client": {"class_path": "fedlit.Forest"}}
FEDERATIONS: dict[str, dict[str, Any]] = {
    "mean": {},
    "aligned": {"data": ALIGNED, "exchange": {"federated": ["core", "head"]}},
    "ifca": {"exchange": {"rule": {"class_path": "fedlit.IFCA", "init_args": {"clusters": 2}}}},
    "forest": {
        "data": {"align": "both", "scaling": "pooled", "facts_from": 1},
        "model": FORESTS,
        "exchange": {
            "federated": [],
            "rule": {"class_path": "fedlit.GrowForest", "init_args": {"trees": 2}},
        },
    },
}
"""Name → how its configuration differs from that of the tests."""


@dataclass
class Script:
    """What the sites of one federation say, as they said it once.

    Attributes:
        run: the federation's configuration, as the coordinator reads it.
        requests: maps each site to its requests in order, each once, without answers to questions.
        answers: maps each site to the function that answers a rule's question from its rows.
        settings: what all must have in common.
    """

    run: Any
    requests: Mapping[str, Sequence[dict[str, Any]]]
    answers: Mapping[str, Callable[[Any], Any]]
    settings: Mapping[str, Any]


def table(folder: Path, site: str) -> dict[str, Any]:
    """Write a small table of a site, and return its source."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(len(site) + ord(site[0]))
    frame = pd.DataFrame(
        {"age": rng.normal(60, 9, 80).round(1), "pressure": rng.normal(130, 20, 80).round()}
    )
    frame["town"] = rng.choice(["Aachen", "Bonn", "Celle"], 80)
    frame["ill"] = np.where(frame["age"] + rng.normal(0, 5, 80) > 60, "yes", "no")
    path = folder / f"{site}.csv"
    frame.to_csv(path, index=False)
    return {
        "class_path": "fedlit.Tables",
        "init_args": {"files": {site: str(path)}, "target": "ill"},
    }


def recorded(folder: Path, changes: Mapping[str, Any]) -> Script:
    """Train a federation of real sites, and keep what they said."""
    import test_sites
    from sites import MemoryLine, federate

    from fedlit.exchange.answerer import Answerer
    from fedlit.exchange.wire import unpack
    from fedlit.institutions.coordinator import run_of
    from fedlit.institutions.messages import settings_of
    from fedlit.institutions.settings import federation_of

    federation = test_sites.written(folder, **changes, trainer={"max_epochs": ROUNDS})
    sources = {site: table(folder, site) for site in SITES}
    line = MemoryLine(list(SITES))
    _, sites, errors = federate(folder, federation, sources, line=line)
    if errors:
        raise next(iter(errors.values()))
    requests: dict[str, dict[str, dict[str, Any]]] = {site: {} for site in SITES}
    for way, site, content in line.messages:
        message = unpack(content)
        if way == "from" and "answers" not in message:
            requests[site].setdefault(message["key"], message)
    answers = {}
    for name, site in sites.items():
        federated = site.run.loop.federation
        parameters = site.run.exchange.sharing.parameters[name]
        answers[name] = Answerer(federated[name], parameters, federated.rows(name))
    said = {site: list(messages.values()) for site, messages in requests.items()}
    run = run_of(federation)
    return Script(run, said, answers, settings_of(run, federation_of(federation)))


def said_again(script: Script, site: str, line: Any, folder: Path) -> None:
    """Say all that a site said, and check what comes back as a site does."""
    from sites import SiteEnd, agreeing

    from fedlit.exchange.rule import Update
    from fedlit.institutions.traffic import Traffic
    from fedlit.institutions.transport import SiteTransport
    from fedlit.privacy.ledger import Ledger, prepare

    (folder / "privacy").mkdir(parents=True)
    prepare(folder / "privacy")
    ledger = Ledger(folder / "privacy", "f" * 32)
    transport = SiteTransport(
        site,
        SiteEnd(line, site),
        deepcopy(script.run.exchange.rule),
        agreeing(script.run.exchange.rule),
        Traffic(folder / "traffic.jsonl"),
        ledger,
    )
    none: Any = None
    for message in script.requests[site]:
        kind, _, what = message["key"].partition(":")
        if kind == "share":
            transport.share(what, message["facts"])
        elif kind == "at":
            transport.takes_part(int(what))
        elif kind == "round":
            updates = {name: Update(**update) for name, update in message["updates"].items()}
            answer = lambda name, asked: script.answers[name](asked)  # noqa: E731
            transport.exchange(none, int(what), updates, answer, measure=False)
        else:
            transport.end()


def coordinator(script: Script, line: Any, state: Path, minimum: float) -> Any:
    """Return a coordinator that has not begun (see
    :func:`fedlit.institutions.coordinator.coordinate`).
    """
    from fedlit.client.build import build_client
    from fedlit.exchange.minimum import least
    from fedlit.exchange.rule import Rule
    from fedlit.exchange.schedule import BEGIN
    from fedlit.institutions.coordinator_server import CoordinatorServer
    from fedlit.institutions.facts import agreed
    from fedlit.institutions.journal import Journal
    from fedlit.institutions.serving.patience import Patience
    from fedlit.institutions.sites_server import SitesServer

    run = script.run
    rule = deepcopy(run.exchange.rule)
    build = partial(build_client, run.loop.federation.training.client)
    server = CoordinatorServer(rule, run.seed, run.exchange.minimum, run.exchange.guard, build)
    journal = Journal(state, sorted(SITES), BEGIN if type(rule).begin is not Rule.begin else 0)
    patience = Patience(PATIENCE, least(minimum, len(SITES)), 0.2)
    meet = partial(agreed, terms=run.data.terms(known=False))
    return SitesServer(server, line, journal, script.settings, patience, rounds=ROUNDS, meet=meet)


@dataclass
class Told:
    """What came of a lie.

    Attributes:
        message: the key of the message that was changed; empty if no lie was told.
        errors: what went wrong, by site; ``coordinator`` is among them if it ended.
        seconds: how long all took.
    """

    message: str
    errors: Mapping[str, BaseException]
    seconds: float


def lied(
    script: Script, folder: Path, way: str, drawn: random.Random, minimum: float = 0.75
) -> Told:
    """Let four sites say all again, while one message is changed.

    Args:
        script: what they say.
        folder: for the files of the sites and the coordinator.
        way: ``from`` for a lie of a site, ``to`` for one of the coordinator to that site.
        drawn: draws the message and the lie.
        minimum: the share of the sites that a round needs.
    """
    from drill.lies import lie
    from sites import MemoryLine, in_threads

    from fedlit.errors import RunError
    from fedlit.exchange.wire import unpack

    begun = time.monotonic()
    place = drawn.randrange(len(script.requests[LIAR]))
    count = Counter[str]()
    before = dict[str, bytes]()
    told = list[str]()
    ways = {"from": "key", "to": "to"}

    def meddle(direction: str, site: str, content: bytes) -> list[bytes]:
        if time.monotonic() - begun > LATE:
            for questions in line.questions.values():
                questions.put(None)
            raise RunError("stalled")
        if (direction, site) != (way, LIAR):
            return [content]
        message = unpack(content)
        key = str(message.get(ways[way], ""))
        if not key or "failed" in message:
            return [content]
        count["sent"] += 1
        if count["sent"] - 1 != place:
            before[key] = content
            return [content]
        told.append(f"{key}, a question" if "n" in message else key)
        return lie(content, drawn, before)

    line = MemoryLine(list(SITES), meddle)
    heard = line.requests

    def requests(timeout: float) -> list[tuple[str, bytes | RunError]]:
        if time.monotonic() - begun > LATE:
            raise RunError("stalled")
        return heard(timeout)

    line.requests = requests  # type: ignore[method-assign]
    works = {site: partial(said_again, script, site, line, folder / site) for site in SITES}
    _, _, errors = in_threads(line, works, coordinator(script, line, folder / "state", minimum).run)
    if (
        errors.keys() == {LIAR, "coordinator"}
        and str(errors["coordinator"]) == "all sites have ended"
    ):
        del errors["coordinator"]  # the line says so where the last site to end was refused
    return Told("".join(told), errors, time.monotonic() - begun)


def outcome(told: Told) -> str:
    """Return what came of a lie, as one of :data:`GOOD` or :data:`BAD`."""
    from federations import Killed

    from fedlit.errors import FedlitError

    errors = told.errors
    ended = str(errors.get("coordinator", ""))
    if ended == "stalled":
        return "stalled"
    if ended.startswith("the coordinator failed"):
        return "raw error"
    if any(not isinstance(error, FedlitError | Killed | TimeoutError) for error in errors.values()):
        return "raw error"
    if ended:
        return "federation ended"
    if errors.keys() - {LIAR}:
        return "honest site refused"
    return "refused" if LIAR in errors else "believed"


def lies_of(folder: Path, tries: int, way: str, federations: Sequence[str]) -> tuple[int, str]:
    """Tell lies in each of some federations.

    Returns:
        How many of them harmed nobody, and counts of what came of them.
    """
    counts = Counter[str]()
    wrong = list[str]()
    scripts = dict[str, Script]()
    for number in range(tries):
        name = federations[number % len(federations)]
        if number < len(federations):
            scripts[name] = recorded(folder / name, FEDERATIONS[name])
        place = folder / f"{name}-{number}"
        told = lied(scripts[name], place, way, random.Random(f"{name} {way} {number}"))
        shutil.rmtree(place, ignore_errors=True)
        came = outcome(told)
        counts[came] += 1
        if came in BAD:
            wrong.append(f"{name} {number} ({told.message}): {came}")
    shown = ", ".join(f"{counts[came]} {came}" for came in (*GOOD, *BAD))
    return sum(counts[came] for came in GOOD), shown + "".join(f"; {own}" for own in wrong[:5])


def _rows(folder: Path, tries: int, way: str, what: str) -> Rows:
    logging.getLogger("fedlit").setLevel(logging.CRITICAL)
    passed, note = lies_of(folder, tries, way, list(FEDERATIONS))
    return [(what, tries, passed, note)]


def site_lies(folder: Path, tries: int) -> Rows:
    """One of four sites lies to the coordinator."""
    return _rows(folder, tries, "from", "lies of one of four sites")


def coordinator_lies(folder: Path, tries: int) -> Rows:
    """The coordinator lies to one of four sites."""
    return _rows(folder, tries, "to", "lies of a coordinator")
