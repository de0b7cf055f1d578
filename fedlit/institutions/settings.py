"""``coordinator.yaml`` and ``site.yaml``: read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.institutions.socket_line import MOST
from fedlit.run.config import read_yaml, shown

__all__ = [
    "COORDINATOR",
    "SITE",
    "CoordinatorSettings",
    "SiteSettings",
    "check_address",
    "check_sites",
    "read_coordinator",
    "read_site",
]

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class CoordinatorSettings:
    """What a coordinator's folder says.

    Attributes:
        folder: the folder itself.
        address: a name or an IP address at which sites reach the coordinator.
        port: of the address.
        listen: the IP address of this machine to which it is bound.
        sites: names, sorted.
        minimum: how many sites a round needs at least: a number, or a share in (0, 1].
        patience: seconds to wait for a site that stays away.
        most: bytes of a message.
    """

    folder: Path
    address: str
    port: int
    listen: str
    sites: tuple[str, ...]
    minimum: int | float
    patience: float
    most: int

    @property
    def certificates(self) -> Path:
        """With the authority and the server certificate."""
        return self.folder / "certificates"

    @property
    def keys(self) -> Path:
        """The registry: ``<site>.pub`` of each site."""
        return self.folder / "keys"

    @property
    def state(self) -> Path:
        """What a coordinator that is started again goes on from."""
        return self.folder / "state"

    @property
    def federation(self) -> Path:
        """The configuration that all sites have."""
        return self.folder / "federation.yaml"


@dataclass(frozen=True)
class SiteSettings:
    """What a site's configuration says. Paths are relative to its folder.

    Attributes:
        file: the configuration itself.
        site: this site's name.
        coordinator: ``HOST:PORT``.
        fingerprint: SHA-256 of ``certificate``, empty where it is not said.
        certificate: of the coordinator's authority.
        key: this site's private key.
        federation: the configuration that all sites have.
        data: what this site adds to it: ``source``, its own table.
        trust: installed modules whose classes ``federation`` may name, beside those that are always allowed.
        tell: what this site tells of its results: ``scores`` of validation rows, or ``nothing``.
        peers: site → fingerprint of its registered key, known by telephone; for masked sums.
        socket: between its two processes; None for a file beside the configuration.
        user: whom the process that speaks to the network runs as; None for whoever starts it.
        most: bytes of a message.
    """

    file: Path
    site: str
    coordinator: str
    fingerprint: str
    certificate: Path
    key: Path
    federation: Path
    data: Mapping[str, Any]
    tell: str = "nothing"
    trust: Sequence[str] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    socket: str | None = None
    user: str | None = None
    most: int = MOST

    @property
    def folder(self) -> Path:
        """Where the site's runs lie, what it accepted, what it sent."""
        return self.file.parent


def _name(value: Any) -> bool:
    return isinstance(value, str) and _SITE.fullmatch(value) is not None


def _host(value: Any) -> bool:
    return isinstance(value, str) and _HOST.fullmatch(value) is not None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _port(value: Any) -> bool:
    return _whole(value) and 0 < value < 65536


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_name, value)) and len(set(value)) == len(value)


def _minimum(value: Any) -> bool:
    return (_whole(value) and value >= 1) or (isinstance(value, float) and 0 < value <= 1)


def _where(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return _host(host) and port.isdecimal() and _port(int(port))


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _source(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"source"}


def _modules(value: Any) -> bool:
    return isinstance(value, list) and all(_text(own) and all(map(str.isidentifier, own.split("."))) for own in value)


def _peers(value: Any) -> bool:
    return isinstance(value, dict) and all(_name(key) and _text(own) for key, own in value.items())


_Keys = Mapping[str, tuple[Callable[[Any], bool], str, Any]]
_NEEDED = object()
_NAMES = "names of letters, digits, - and _, such as [north, south], none of them twice"
COORDINATOR: _Keys = {
    "address": (_host, "a name or an IP address, such as fl.example.org", _NEEDED),
    "port": (_port, "a whole number from 1 to 65535", _NEEDED),
    "listen": (_host, "an IP address of this machine, such as 0.0.0.0", "0.0.0.0"),
    "sites": (_names, _NAMES, _NEEDED),
    "minimum": (_minimum, "a number of sites such as 2, or a share of them such as 0.5", 1.0),
    "patience": (lambda own: _number(own) and own >= 0, "seconds, such as 600", 600),
    "most": (lambda own: _whole(own) and own >= 2**16, "bytes, at least 65536", MOST),
}
"""Key → (whether a value will do, what is expected, what it is where it is not said)."""
SITE: _Keys = {
    "site": (_name, "a name of letters, digits, - and _", _NEEDED),
    "coordinator": (_where, "an address such as fl.example.org:8443", _NEEDED),
    "fingerprint": (lambda own: isinstance(own, str), "the fingerprint of ca.crt", ""),
    "certificate": (_text, "a file such as ca.crt", "ca.crt"),
    "key": (_text, "a file such as site.key", "site.key"),
    "federation": (_text, "a file such as federation.yaml", "federation.yaml"),
    "data": (_source, "source: …, this site's own table, and nothing else", _NEEDED),
    "trust": (_modules, "a list of installed modules, such as [our_networks]", []),
    "tell": (lambda own: own in ("nothing", "scores"), "nothing, or scores", "nothing"),
    "peers": (_peers, "site: fingerprint of each other site's key, as fedlit site keys prints it", {}),
    "socket": (lambda own: own is None or _text(own), "a path of at most 107 bytes, such as /run/north.sock", None),
    "user": (lambda own: own is None or _text(own), "a user of this machine, who may read no table", None),
    "most": (lambda own: _whole(own) and own >= 2**16, "bytes, at least 65536", MOST),
}
"""See :data:`COORDINATOR`."""


def _read(path: Path, keys: _Keys, make: str) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{shown(path)}: expected a file, found none; {make}")
    content = read_yaml(path)
    for key in content:
        if key not in keys:
            raise ConfigError(
                f"{shown(path)}: expected some of {', '.join(keys)}, found {key!r}.{did_you_mean(str(key), keys)}"
            )
    found = {}
    for key, (will_do, expected, default) in keys.items():
        value = content.get(key, default)
        if value is _NEEDED or not will_do(value):
            was = "nothing" if value is _NEEDED else repr(value)
            raise ConfigError(f"{shown(path)}: {key}: expected {expected}, found {was}")
        found[key] = value
    return found


def read_coordinator(folder: Path) -> CoordinatorSettings:
    """Read a coordinator's folder.

    Raises:
        ConfigError: ``coordinator.yaml`` is missing, or says what does not fit.
    """
    path = folder / "coordinator.yaml"
    found = _read(path, COORDINATOR, "make one by fedlit coordinate init FOLDER --sites north,south,east")
    sites = tuple(sorted(found.pop("sites")))
    if isinstance(found["minimum"], int) and found["minimum"] > len(sites):
        raise ConfigError(
            f"{shown(path)}: minimum: expected at most the number of sites, {len(sites)}, found {found['minimum']}"
        )
    return CoordinatorSettings(folder=folder, sites=sites, **found)


def read_site(path: Path) -> SiteSettings:
    """Read a site's configuration. Whether its files are there is not looked at.

    Raises:
        ConfigError: it is missing, or says what does not fit.
    """
    found = _read(path, SITE, "the coordinator has one in invitations/ for each site")
    for key in ("certificate", "key", "federation"):
        found[key] = path.parent / found[key]
    return SiteSettings(file=path, **found)


def check_sites(sites: Iterable[str]) -> list[str]:
    """Names of sites as they were typed.

    Raises:
        ConfigError: they are no names, or one stands twice.
    """
    names = [name.strip() for name in sites]
    if not _names(names):
        raise ConfigError(f"--sites: expected {_NAMES}, found {', '.join(map(repr, names))}")
    return names


def check_address(address: str, port: int) -> None:
    """An address as it was typed.

    Raises:
        ConfigError: it is none.
    """
    for flag, key, value in (("--address", "address", address), ("--port", "port", port)):
        if not COORDINATOR[key][0](value):
            raise ConfigError(f"{flag}: expected {COORDINATOR[key][1]}, found {value!r}")
