"""Reads and checks ``coordinator.yaml``, ``site.yaml`` and ``federation.yaml``."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedlit.errors import ConfigError, expect
from fedlit.institutions.child import MOST
from fedlit.names import check_sites
from fedlit.privacy.settings import Privacy
from fedlit.run.allowed import check_trusted
from fedlit.run.config import flatten, read_yaml, shown
from fedlit.run.read import read

PORT = 8443
"""The coordinator's port, unless another is set."""

_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_FINGERPRINT = re.compile(r"[0-9A-F]{2}(:[0-9A-F]{2}){31}")
INVITATION = "invitation.yaml"
"""The file of an invitation that says who invites whom."""


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
        check_sites("sites", self.sites)
        expect(len(self.sites) > 0, "sites", "names", list(self.sites))
        for key in ("address", "listen"):
            expect(
                bool(_HOST.fullmatch(getattr(self, key))),
                key,
                "a name or an IP address",
                getattr(self, key),
            )
        _check_numbers(self.port, self.most)
        expect(self.patience >= 0, "patience", "seconds, at least 0", self.patience)
        whole = isinstance(self.minimum, int)
        valid = 1 <= self.minimum <= len(self.sites) if whole else 0 < self.minimum <= 1
        expect(
            valid,
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
class Invitation:
    """The content of ``invitation.yaml``, which a coordinator writes. It decides nothing about a
    site's machine.

    Attributes:
        site: the name of the site.
        coordinator: the address of the coordinator, ``HOST:PORT``.
        fingerprint: the SHA-256 of the certificate of the coordinator's authority.
    """

    site: str
    coordinator: str
    fingerprint: str

    def __post_init__(self) -> None:
        check_sites("site", [self.site])
        _check_address(self.coordinator)
        if not _FINGERPRINT.fullmatch(self.fingerprint):
            raise ConfigError(
                f"fingerprint: expected 32 bytes such as 8A:0F:…, found {self.fingerprint!r}; ask "
                "the coordinator for a new invitation"
            )


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
        data: what this site adds to it: ``source``, its own table, and ``known``, why nothing has
            to be done about what is found in a column of it.
        trust: installed modules whose classes ``federation`` may name, in addition to the modules
            that are always allowed.
        tell: which of its results this site sends: ``scores`` of validation rows, or ``nothing``.
        rare_classes: classes that fewer than ``data.facts_from`` training rows have, and whose
            names this site sends.
        peers: maps each site to the fingerprint of its registered key, known by telephone; for
            masked sums.
        user: the user that the process which uses the network runs as; None for the user who starts
            it.
        threads: the largest number of threads that ``federation`` may use here; all cores if None.
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
    rare_classes: tuple[str, ...] = ()
    peers: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    threads: int | None = None
    most: int = MOST

    def __post_init__(self) -> None:
        _check_numbers(_check_address(self.coordinator), self.most)
        check_sites("site", [self.site])
        check_sites("peers", self.peers)
        for module in self.trust:
            expect(bool(_MODULE.fullmatch(module)), "trust", "names of modules", module)
        check_trusted(self.trust, "trust")
        expect(self.user != "", "user", "the name of a user", self.user)
        expect(self.threads is None or self.threads > 0, "threads", "at least 1", self.threads)
        if not {"source"} <= {*self.data} <= {"source", "known"}:
            raise ConfigError(
                "data: expected source: …, this site's own table, and beside it at most known: "
                f"{{COLUMN: REASON}}, found {sorted(self.data)}"
            )

    @property
    def folder(self) -> Path:
        """The folder of the site's runs, of what it accepted and of what it sent."""
        return self.file.parent


def _check_address(address: str) -> int:
    """Return the port of an address; refuse what is none."""
    host, _, port = address.rpartition(":")
    named = bool(_HOST.fullmatch(host)) and port.isascii() and port.isdigit() and len(port) < 6
    expect(named, "coordinator", "HOST:PORT", address)
    return int(port)


def _check_numbers(port: int, most: int) -> None:
    expect(0 < port < 65536, "port", "a number from 1 to 65535", port)
    expect(most >= 2**16, "most", f"at least {2**16} bytes", most)


def _existing(file: Path, advice: str) -> Path:
    if not file.is_file():
        raise ConfigError(f"{shown(file)}: expected a file, found none; {advice}")
    return file


def read_coordinator(folder: Path) -> CoordinatorSettings:
    """Read a coordinator's folder.

    Raises:
        ConfigError: ``coordinator.yaml`` is missing, or has values that do not fit.
    """
    advice = "make one by fedlit coordinate init FOLDER --sites north,south,east"
    file = _existing(folder / "coordinator.yaml", advice)
    settings = read(CoordinatorSettings, file, folder=folder)
    return replace(settings, sites=tuple(sorted(settings.sites)))


def read_invitation(path: Path) -> Invitation:
    """Read ``invitation.yaml``, in the folder that a coordinator sent.

    Raises:
        ConfigError: the file is missing, or has other keys or values that do not fit.
    """
    return read(
        Invitation, _existing(path, "the coordinator has one in invitations/ for each site")
    )


def read_site(path: Path) -> SiteSettings:
    """Read a site's configuration. It is not checked whether the files that it names exist.

    Raises:
        ConfigError: the file is missing, or has values that do not fit.
    """
    advice = "fedlit site keys FOLDER writes one from an invitation"
    settings = read(SiteSettings, _existing(path, advice), file=path)
    files = {
        key: path.parent / getattr(settings, key) for key in ("certificate", "key", "federation")
    }
    return replace(settings, **files)


_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class _Identity:
    """The group ``federation``: ``id`` and ``sites`` as in :class:`FederationFile`."""

    id: str = ""
    sites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ConfigError(
                "id: expected 32 hexadecimal digits, drawn once for this federation, such as "
                f"{secrets.token_hex(16)}, found {self.id!r}"
            )
        expect(len(self.sites) > 0, "sites", "the names of all sites", list(self.sites))
        check_sites("sites", self.sites)


@dataclass(frozen=True)
class _Groups:
    """The groups of ``federation.yaml`` that do not belong to a configuration."""

    federation: _Identity | None = None
    privacy: Privacy = field(default_factory=Privacy)


@dataclass(frozen=True)
class FederationFile:
    """The keys of ``federation.yaml`` that do not belong to a configuration.

    Attributes:
        id: the federation's identity, 32 hexadecimal digits, drawn once; empty if the file has
            none.
        sites: all its sites, sorted; empty if the file lists none.
        privacy: what protects sites.
    """

    id: str
    sites: tuple[str, ...]
    privacy: Privacy

    @property
    def settings(self) -> dict[str, Any]:
        """Maps each key to its value, in the form in which settings are compared."""
        identity = (
            {"federation.id": self.id, "federation.sites": list(self.sites)} if self.id else {}
        )
        return identity | {f"privacy.{key}": value for key, value in flatten(asdict(self.privacy))}


def federation_of(path: Path) -> FederationFile:
    """Read the groups ``federation`` and ``privacy`` of a federation's configuration.

    Args:
        path: the file ``federation.yaml``.

    Raises:
        ConfigError: a key is not known, a value is out of range, there is no identity although
            privacy needs one, or there is a table's source, which belongs to a site.
    """
    content = read_yaml(path)
    file = shown(path)
    data = content.get("data")
    if isinstance(data, Mapping) and "source" in data:
        raise ConfigError(
            f"{file}: data.source: expected none, found one: each site has its own, in its "
            "site.yaml. Take it out, and give all sites the same file"
        )
    protections = content.get("privacy")
    if isinstance(protections, Mapping):
        # A protection without settings is not left out: it has its default settings.
        protections = {key: {} if value is None else value for key, value in protections.items()}
    identity = content.get("federation")
    if identity == {}:
        identity = None
    if identity is None and protections:
        identity = {}  # refused, because protection needs an identity
    groups = read(_Groups, {"federation": identity, "privacy": protections}, prefix=file)
    if groups.federation is None:
        return FederationFile("", (), groups.privacy)
    sites = tuple(sorted(groups.federation.sites))
    return FederationFile(groups.federation.id, sites, groups.privacy)


def plain_federation(path: Path) -> dict[str, Any]:
    """Return the configuration without the keys that fedlit's other commands do not know."""
    return {
        key: value for key, value in read_yaml(path).items() if key not in ("federation", "privacy")
    }
