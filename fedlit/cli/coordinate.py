"""``fedlit coordinate``: the coordinator's side of a federation across institutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from fedlit.institutions.extra import needs_flower
from fedlit.institutions.settings import PORT, read_coordinator
from fedlit.show.shown import for_terminal
from fedlit.show.text import Verbatim


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        print(for_terminal(Verbatim(line) if line.startswith("  ") else line))


def _folders() -> ModuleType:
    with needs_flower():
        from fedlit.institutions import folder
    return folder


def init(folder: Path, *, sites: str, address: str = "localhost", port: int = PORT) -> None:
    """Create the coordinator's folder: certificates, a registry of keys, settings, and invitations for sites.

    Args:
        folder: the coordinator's folder
        sites: the names of the sites, separated by commas
        address: the address at which sites reach this machine
        port: the port that is open to sites
    """
    _tell(_folders().init(folder, sites.split(","), address, port))


def add(folder: Path, site: str, key: Path) -> None:
    """Add a site's public key to the registry.

    Args:
        folder: the coordinator's folder
        site: the name of the site
        key: the .pub file that the site sent
    """
    _tell(_folders().add(read_coordinator(folder), site, key))


def renew(folder: Path) -> None:
    """Make a new server certificate; sites need nothing new.

    Args:
        folder: the coordinator's folder
    """
    _tell([_folders().renew(read_coordinator(folder))])


def start(folder: Path) -> int:
    """Wait for the sites and coordinate the training; if you start it again, it continues.

    Args:
        folder: the coordinator's folder
    """
    from fedlit.institutions import start as work
    from fedlit.institutions.log import with_time

    with_time()
    return work.start(folder)


def watch(folder: Path, *, once: bool = False) -> int:
    """Show rounds, participants, seconds and bytes.

    Args:
        folder: the coordinator's folder
        once: print the status once and exit
    """
    from fedlit.institutions import watch as work

    return work.watch(folder, once=once)
