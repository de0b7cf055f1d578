"""Reads and checks ``coordinator.yaml`` and ``site.yaml``."""

import re
from argparse import ArgumentError
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from jsonargparse import ArgumentParser

from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.institutions.child import MOST
from fedlit.run.config import read_yaml, shown

PORT = 8443
"""The coordinator's port, unless another is set."""

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_Settings = TypeVar("_Settings", "CoordinatorSettings", "SiteSettings")


@dataclass(frozen=True)
class CoordinatorSettings:
    """The settings of a coordinator, ``coordinator.yaml``.

    Attributes:
        folder: the folder itself.
        address: a name or an IP address at which sites reach the coordinator.
        port: the port at this address.
        listen: the IP address of this machine to which it is bound.
        sites: the names of the sites, sorted.
        minimum: the least number of sites that a round needs: a number, or a share in (0, 1].
        patience: the time to wait for a site that stays away, in seconds.
        most: the largest number of bytes of a message.
    """

    folder: Path
    address: str
    port: int
    sites: tuple[str, ...]
    listen: str = "0.0.0.0"
    minimum: int | float = 1.0
    patience: float = 600.0
    most: int = MOST

    def __post_init__(self) -> None:
        _check_names("sites", self.sites)
        expect(len(set(self.sites)) == len(self.sites) > 0, "sites", "names, none of them twice", list(self.sites))
        for key in ("address", "listen"):
            expect(bool(_HOST.fullmatch(getattr(self, key))), key, "a name or an IP address", getattr(self, key))
        _check_numbers(self.port, self.most)
        expect(self.patience >= 0, "patience", "seconds, at least 0", self.patience)
        whole = isinstance(self.minimum, int)
        expect(
            1 <= self.minimum <= len(self.sites) if whole else 0 < self.minimum <= 1,
            "minimum",
            f"a number of sites, at most {len(self.sites)}, or a share of them such as 0.5",
            self.minimum,
        )

    @property
    def certificates(self) -> Path:
        """The folder of the authority and of the server certificate."""
        return self.folder / "certificates"

    @property
    def keys(self) -> Path:
        """The registry: ``<site>.pub`` of each site."""
        return self.folder / "keys"

    @property
    def state(self) -> Path:
        """The folder from which a restarted coordinator goes on."""
        return self.folder / "state"

    @property
    def federation(self) -> Path:
        """The configuration that all sites have."""
        return self.folder / "federation.yaml"


@dataclass(frozen=True)
class SiteSettings:
    """The settings of a site, ``site.yaml``. Paths are relative to its folder.

    Attributes:
        file: the configuration itself.
        site: this site's name.
        coordinator: the address of the coordinator, ``HOST:PORT``.
        fingerprint: the SHA-256 of ``certificate``; empty if it is not given.
        certificate: the certificate of the coordinator's authority.
        key: this site's private key.
        federation: the configuration that all sites have.
        data: what this site adds to it: ``source``, its own table.
        trust: installed modules whose classes ``federation`` may name, in addition to the modules that are always
            allowed.
        tell: which of its results this site sends: ``scores`` of validation rows, or ``nothing``.
        peers: maps each site to the fingerprint of its registered key, known by telephone; for masked sums.
        user: the user that the process which uses the network runs as; None for the user who starts it.
        most: the largest number of bytes of a message.
    """

    file: Path
    site: str
    coordinator: str
    data: dict[str, Any]
    fingerprint: str = ""
    certificate: Path = Path("ca.crt")
    key: Path = Path("site.key")
    federation: Path = Path("federation.yaml")
    tell: Literal["nothing", "scores"] = "nothing"
    trust: tuple[str, ...] = ()
    peers: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    most: int = MOST

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        named = bool(_HOST.fullmatch(host)) and port.isascii() and port.isdigit() and len(port) < 6
        expect(named, "coordinator", "HOST:PORT", self.coordinator)
        _check_numbers(int(port), self.most)
        _check_names("site", [self.site])
        _check_names("peers", self.peers)
        for module in self.trust:
            expect(bool(_MODULE.fullmatch(module)), "trust", "names of modules", module)
        expect(self.user != "", "user", "the name of a user", self.user)
        if set(self.data) != {"source"}:
            raise ConfigError(
                f"data: expected source: …, this site's own table, and nothing else, found {sorted(self.data)}"
            )

    @property
    def folder(self) -> Path:
        """The folder of the site's runs, of what it accepted and of what it sent."""
        return self.file.parent


def _checked(kind: type[_Settings], path: Path, content: Mapping[str, Any]) -> _Settings:
    place, *keys = (own.name for own in fields(kind))
    for key in content:
        if key not in keys:
            raise ConfigError(f"expected some of {', '.join(keys)}, found {key!r}.{did_you_mean(str(key), keys)}")
    for own in fields(kind)[1:]:
        if own.name not in content and own.default is MISSING and own.default_factory is MISSING:
            raise ConfigError(f"{own.name}: expected a value, found nothing")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, None, skip={place})
    try:
        found = parser.parse_object(dict(content)).as_dict()
    except ArgumentError as error:
        raise ConfigError(" ".join(str(error).removeprefix("Parser key ").replace('"', "").split())) from error
    return kind(**{place: path, **found})


def _check_names(key: str, names: Iterable[str]) -> None:
    """Check names that become those of files."""
    for name in names:
        expect(bool(_SITE.fullmatch(name)), key, "names of at most 40 letters, digits, - and _", name)


def _check_numbers(port: int, most: int) -> None:
    expect(0 < port < 65536, "port", "a number from 1 to 65535", port)
    expect(most >= 2**16, "most", f"at least {2**16} bytes", most)


def _read(kind: type[_Settings], file: Path, path: Path, make: str) -> _Settings:
    if not file.is_file():
        raise ConfigError(f"{shown(file)}: expected a file, found none; {make}")
    try:
        return _checked(kind, path, read_yaml(file))
    except ConfigError as error:
        raise ConfigError(f"{shown(file)}: {error}") from error


def read_coordinator(folder: Path) -> CoordinatorSettings:
    """Read a coordinator's folder.

    Raises:
        ConfigError: ``coordinator.yaml`` is missing, or has values that do not fit.
    """
    make = "make one by fedlit coordinate init FOLDER --sites north,south,east"
    found = _read(CoordinatorSettings, folder / "coordinator.yaml", folder, make)
    return replace(found, sites=tuple(sorted(found.sites)))


def read_site(path: Path) -> SiteSettings:
    """Read a site's configuration. It is not checked whether the files that it names exist.

    Raises:
        ConfigError: the file is missing, or has values that do not fit.
    """
    found = _read(SiteSettings, path, path, "the coordinator has one in invitations/ for each site")
    files = {key: path.parent / getattr(found, key) for key in ("certificate", "key", "federation")}
    return replace(found, **files)


def check_init(sites: Iterable[str], address: str, port: int) -> list[str]:
    """Check what was typed for a new coordinator, and return the names of the sites.

    Raises:
        ConfigError: a name, the address or the port does not fit.
    """
    names = [name.strip() for name in sites]
    try:
        _checked(CoordinatorSettings, Path(), {"address": address, "port": port, "sites": names})
    except ConfigError as error:
        raise ConfigError(f"--{error}") from error
    return names
