"""How a site protects its updates before they leave, if ``privacy`` in ``federation.yaml`` asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization

from fedlit.errors import ConfigError
from fedlit.exchange.schedule import cohort, cohort_size
from fedlit.institutions.federation import Federation
from fedlit.institutions.settings import SiteSettings
from fedlit.privacy.keys import fingerprint, registered_key
from fedlit.privacy.refusals import refuse
from fedlit.privacy.site import Shield
from fedlit.show.shown import say

if TYPE_CHECKING:
    from fedlit.institutions.transport import SiteTransport
    from fedlit.run.run import Run


def shielded(federation: Federation, settings: SiteSettings, run: Run, transport: SiteTransport) -> Shield:
    """Make what protects a site's updates.

    Args:
        federation: its identity, its sites, and the privacy that is asked for.
        settings: of the site.
        run: whose clients are built.
        transport: by which keys are told.

    Raises:
        ConfigError: what privacy cannot be had with.
        RunError: keys that are not what they should be.
    """
    name, exchange, privacy = settings.site, run.exchange, federation.privacy
    sharing, members = exchange.sharing, run.loop.federation
    if set(sharing.names) != set(federation.sites):
        raise ConfigError(
            f"federation.sites: expected {', '.join(federation.sites)}, as this site has accepted, found that "
            f"{', '.join(sharing.names)} take part; ask the coordinator for the federation.yaml of these sites"
        )
    taking_part = cohort_size(exchange.participation, len(federation.sites))
    refuse(privacy, exchange.rule, sharing, taking_part, exchange.published[name])
    registered, peers = None, dict(settings.peers)
    if privacy.masked is not None:
        registered = registered_key(settings.key)
        if peers:
            form = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            peers[name] = fingerprint(registered.public_key().public_bytes(*form).decode())

    def drawn(number: int) -> Iterable[str]:
        return cohort(exchange.participation, federation.sites, run.seed, number) or federation.sites

    folder = settings.folder / "privacy"
    shield = Shield(name, privacy, exchange.rule, folder, federation.id, drawn, registered, peers)
    offers = transport.share("privacy", {name: shield.offer()}) if privacy.masked else {}
    shield.meet(offers, sharing, exchange._blueprint(members, name).fresh(None))
    for note in shield.notes:
        say(f"Note: {note}")
    return shield
