"""Lies and oddities between a coordinator and its sites: each is refused by name, and harms nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fedlit.errors import FedlitError
from fedlit.exchange.rules import Mean
from fedlit.exchange.server import Server
from fedlit.exchange.wire import pack, unpack
from fedlit.institutions.agreed import wrong_settings
from fedlit.institutions.journal import Journal
from fedlit.institutions.sites_server import Patience, SitesServer

__all__ = ["lies"]

Rows = list[tuple[str, int, int, str]]
SITES = ["east", "north", "south"]
OWN = {"seed": 1, "version.wire": 1}


class _Line:
    def __init__(self) -> None:
        self.said: dict[str, dict[str, Any]] = {}

    def sites(self) -> frozenset[str]:
        return frozenset(SITES)

    def reply(self, site: str, content: bytes) -> None:
        self.said[site] = unpack(content)

    def requests(self, timeout: float) -> list[Any]:
        return []


def _told(folder: Path, *messages: tuple[str, dict[str, Any]]) -> dict[str, str]:
    """Site → why it was refused, after sites have said these."""
    line = _Line()
    hub = SitesServer(Server(Mean(), 0), line, Journal(folder, SITES, 0), OWN, Patience(60, 2))
    for site, message in messages:
        hub._take(site, pack({"site": site, "saved": -1, **message}))
        hub._advance()
    return {site: str(own["failed"]) for site, own in line.said.items() if "failed" in own}


def _facts(topic: str, site: str, facts: Any) -> tuple[str, dict[str, Any]]:
    return site, {"key": f"share:{topic}", "facts": {site: facts}}


def _stale(folder: Path) -> bool:
    return set(_told(folder, _facts("settings", "south", {**OWN, "seed": 2}))) == {"south"}


def _odd(folder: Path) -> bool:
    said = [_facts("values" if site == "south" else "columns", site, {}) for site in SITES]
    return set(_told(folder, *said)) == {"south"}


def _coloured(folder: Path) -> bool:
    (why,) = _told(folder, _facts("settings", "south", {**OWN, "\x1b[31mred\x07": 2})).values()
    return why.replace("\n", "").isprintable()


def _patched(folder: Path) -> bool:
    from fedlit.institutions.agreed import settings_of
    from fedlit.privacy.settings import Privacy

    own: Any = SimpleNamespace(settings={"seed": 1})
    before = settings_of(own, Privacy())
    known, torch.__version__ = torch.__version__, "99.9.9"
    try:
        return not wrong_settings(before, settings_of(own, Privacy()))
    finally:
        torch.__version__ = known


def _removed(folder: Path) -> bool:
    Journal(folder, SITES, 0).tell("clients", {site: {site: {}} for site in SITES})
    return Journal(folder, SITES[:2], 0).sites == SITES[:2]


LIES: dict[str, Callable[[Path], bool]] = {
    "a stale federation.yaml is told at once, to one site": _stale,
    "one site at another point before training": _odd,
    "escape sequences in a message": _coloured,
    "another version of PyTorch": _patched,
    "a site that is no longer under sites:": _removed,
}


def lies(folder: Path, tries: int) -> Rows:
    """One row for each of :data:`LIES`."""
    rows = []
    for number, (name, held) in enumerate(LIES.items()):
        try:
            passed, note = held(folder / str(number)), ""
        except (FedlitError, ValueError) as error:
            passed, note = False, str(error)[:120]
        rows.append((f"lies: {name}", 1, int(passed), note))
    return rows
