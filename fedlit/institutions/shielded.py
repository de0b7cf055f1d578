"""What a site does to its updates before they leave, where ``privacy`` of ``federation.yaml`` asks for it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization

from fedlit.exchange.rule import Rule
from fedlit.institutions.settings import SiteSettings
from fedlit.privacy.keys import fingerprint, registered_key
from fedlit.privacy.refusals import refuse
from fedlit.privacy.settings import Privacy
from fedlit.privacy.site import Shield
from fedlit.privacy.words import lines
from fedlit.sharing import Sharing
from fedlit.show.shown import say

if TYPE_CHECKING:
    from fedlit.institutions.transport import SiteTransport
    from fedlit.run.run import Run

__all__ = ["protected", "shielded"]


def protected(privacy: Privacy, rule: Rule, sharing: Sharing, site: str, rounds: int) -> tuple[str, ...]:
    """What is done to updates, in words for the terms; ε before anything is spent among them."""
    if not privacy.on:
        return ()
    values = sum(prod(sharing.forms[name][1]) for name in sharing.names[site])
    return tuple(lines(privacy, rule, rounds, privacy.masked.least if privacy.masked else 1, values))


def shielded(privacy: Privacy, settings: SiteSettings, run: Run, transport: SiteTransport) -> Shield:
    """What stands between a site's client and the coordinator.

    Args:
        privacy: what is asked for.
        settings: of the site.
        run: whose clients are built.
        transport: by which keys are told.

    Raises:
        ConfigError: what privacy cannot be had with.
        RunError: keys that are not what they should be.
    """
    name, exchange = settings.site, run.exchange
    sharing, members = exchange.sharing, run.loop.federation
    refuse(privacy, exchange.rule, sharing, len(sharing.names), exchange.optimizer_state, exchange.published[name])
    registered = None
    if privacy.masked is not None and settings.key.is_file():
        registered = registered_key(settings.key)
    folder = settings.folder / "privacy" / transport.federation
    peers = dict(settings.peers) or None
    if peers is not None and registered is not None:
        form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        peers[name] = fingerprint(registered.public_key().public_bytes(*form).decode())
    shield = Shield(name, privacy, exchange.rule, folder, transport.federation, registered, peers)
    offers = transport.share("privacy", {name: shield.offer()})
    shield.meet(offers, sharing, exchange._blueprint(members, name).fresh(None))
    for note in shield.notes:
        say(f"Note: {note}")
    return shield
