"""Sites in threads whose updates go through :mod:`fedlit.privacy`: a transport of the least that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from federations import SHAPES, make_run
from loopback import Channel, Loopback, LoopbackServer, in_threads
from sites import hub_of

from fedlit.exchange.outcome import Outcome
from fedlit.exchange.rule import Update
from fedlit.exchange.server import Server
from fedlit.exchange.transport import Answer
from fedlit.exchange.wire import pack, question_from, unpack
from fedlit.privacy.coordinator import Gathering
from fedlit.privacy.keys import advert, fingerprint, mask_key
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import Privacy
from fedlit.privacy.site import Shield
from fedlit.run.run import Run

ID = "0123456789abcdef" * 2
SITES = ("ash", "birch", "cedar", "dune")
SHAPES.setdefault("dune", (5, 3, 80))


class Shielded(Loopback):
    """A site that sends what its shield lets through."""

    def __init__(self, channel: Channel, shield: Shield) -> None:
        super().__init__(channel, shield.rule)
        self.shield, self._met = shield, False

    def exchange(
        self, server: Server, number: int, updates: Mapping[str, Update], answer: Answer, *, measure: bool
    ) -> Outcome:
        site = self.shield.site
        if not self._met:
            sharing = server.sharing
            refuse(self.shield.privacy, self.rule, sharing, len(sharing.names))
            blueprint = server._blueprint(site)
            start = blueprint.fresh(None)
            self.shield.meet(self.share("privacy", {site: self.shield.offer()}), sharing, start)
            self._met = True
        sent = {}
        for name, update in updates.items():
            sent[name] = {"unfit": self.shield.unfit(number, update)}
            sent[name]["flags"] = self.shield.flags(number, fit=not sent[name]["unfit"])
            if not sent[name]["unfit"]:
                own = self.shield.send(number, update)
                sent[name] |= {"state": own.state, "steps": own.steps}
        heard = self._ask({"exchange": number, "measure": False, "updates": sent})
        while "shield" in heard or "ask" in heard:
            if "shield" in heard:
                heard = self._ask(self.shield.answer(number, heard["shield"], partial(answer, site)))
                continue
            asked = question_from(heard["ask"][site])
            self.shield.refuse_single(asked)
            heard = self._ask({"answers": {site: answer(site, asked)}})
        received = heard["received"].get(site, {})
        self.shield.receive(number, received)
        return Outcome({site: received}, tuple(heard["lost"]), heard["records"], heard["bytes"])


class Gatherer(LoopbackServer):
    """A hub that asks for sums.

    Attributes:
        heard: all that each site has sent in rounds, as it came.
        spoil: changes what came: (number, site, message) → message.
    """

    privacy = Privacy()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.heard: list[tuple[int, str, dict[str, Any]]] = []
        self.spoil = lambda number, site, message: message
        self.took: dict[int, tuple[str, ...]] = {}
        self.received: dict[str, Any] = {}

    def _round(self, channels: Mapping[str, Channel], said: Any, number: int, measure: bool) -> Outcome:
        sent = {name: own for told in said.values() for name, own in told["updates"].items()}
        lost = tuple(sorted(name for name, own in sent.items() if own["unfit"]))
        fit = {name: own for name, own in sorted(sent.items()) if not own["unfit"]}

        def put(asked: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
            answers = {}
            for site, question in asked.items():
                channels[site].send_bytes(pack({"shield": question}))
                message = self.spoil(number, site, unpack(channels[site].recv_bytes()))
                self.heard.append((number, site, message))
                answers[site] = message
            return answers

        if self.privacy.masked:
            flags = {name: (not own["unfit"], own["flags"]) for name, own in sent.items()}
            gathering = Gathering(self.privacy.masked, self.rule, self.sharing, number, flags, put)
            updates, ask = gathering.gather(), gathering.asking(partial(self._ask, channels))
            self.took[number] = tuple(gathering.sites)
        else:
            self.heard += [(number, name, own) for name, own in fit.items()]
            updates = {
                name: Update(own["state"], parameters=self.sharing.parameters[name]) for name, own in fit.items()
            }
            ask = partial(self._ask, channels)
        outcome = self.round(number, updates, ask, measure=False, guarded=False)
        self.received = {site: own for site, own in outcome.received.items() if site in channels}
        return Outcome(self.received, lost, outcome.records, outcome.bytes)


def over_shields(
    folder: Path, privacy: Privacy, *, hub: Gatherer | None = None, signed: bool = True, **options: Any
) -> tuple[dict[str, Run], Gatherer, dict[str, Shield]]:
    """Trained runs by client, the hub, and shields by client."""
    clients = options.pop("clients", SITES)
    registered = {site: ec.generate_private_key(ec.SECP384R1()) for site in clients}
    peers = {}
    if signed:
        keys = {site: mask_key(_folder(folder, site) / "mask.key") for site in clients}
        peers = {site: fingerprint(advert(site, ID, keys[site], registered[site])["key"]) for site in clients}
    if hub is None:
        hub = gatherer(folder, privacy, clients=clients, **options)
    shields: dict[str, Shield] = {}

    def site(name: str, channel: Channel) -> Run:
        own = _folder(folder, name)
        shields[name] = Shield(name, privacy, hub.rule, own, ID, lambda number: clients, registered[name], peers)
        transport = Shielded(channel, shields[name])
        run = make_run(folder / name, clients=(name,), transport=transport, **options)
        run.fit(quiet=True)
        return run

    return in_threads(hub, {name: partial(site, name) for name in clients}), hub, shields


def gatherer(folder: Path, privacy: Privacy, **options: Any) -> Gatherer:
    """A hub of such a federation."""
    plain = hub_of(make_run(folder / "hub", **options))
    found = Gatherer(plain.rule, plain.seed, plain.minimum, plain._client)
    found.privacy = privacy
    return found


def _folder(folder: Path, site: str) -> Path:
    own = folder / site / "privacy"
    own.mkdir(parents=True, exist_ok=True)
    return own
