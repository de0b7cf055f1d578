"""``coordinator.yaml`` and ``site.yaml``: read and checked."""

# no postponed annotations: jsonargparse reads these types as they stand, and would take those of TYPE_CHECKING
import re
from argparse import ArgumentError
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jsonargparse import ArgumentParser
from jsonargparse.typing import NonNegativeFloat, NotEmptyStr, restricted_number_type, restricted_string_type

from fedlit.errors import ConfigError, did_you_mean
from fedlit.institutions.child import MOST
from fedlit.run.config import read_yaml, shown

__all__ = ["CoordinatorSettings", "SiteSettings", "check_init", "read_coordinator", "read_site"]

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")

if TYPE_CHECKING:
    SiteName = str
    Host = str
    Address = str
    Module = str
    Port = int
    Limit = int
else:
    _HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)"
    SiteName = restricted_string_type("SiteName", _SITE.pattern)
    Host = restricted_string_type("Host", _HOST + r"\Z")
    Address = restricted_string_type("Address", _HOST + r":[0-9]{1,5}\Z")
    Module = restricted_string_type("Module", r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
    Port = restricted_number_type("Port", int, [(">", 0), ("<", 65536)])
    Limit = restricted_number_type("Limit", int, (">=", 2**16))

_Settings = TypeVar("_Settings", "CoordinatorSettings", "SiteSettings")


@dataclass(frozen=True)
class CoordinatorSettings:
    """The settings of a coordinator, ``coordinator.yaml``.

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
    address: Host
    port: Port
    sites: tuple[SiteName, ...]
    listen: Host = "0.0.0.0"
    minimum: int | float = 1.0
    patience: NonNegativeFloat = 600.0
    most: Limit = MOST

    def __post_init__(self) -> None:
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise ConfigError(f"sites: expected names, none of them twice, found {list(self.sites)}")
        whole = isinstance(self.minimum, int)
        if not (1 <= self.minimum <= len(self.sites) if whole else 0 < self.minimum <= 1):
            raise ConfigError(
                f"minimum: expected a number of sites, at most {len(self.sites)}, or a share of them such as 0.5, "
                f"found {self.minimum}"
            )

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
        coordinator: ``HOST:PORT``.
        fingerprint: SHA-256 of ``certificate``, empty where it is not said.
        certificate: of the coordinator's authority.
        key: this site's private key.
        federation: the configuration that all sites have.
        data: what this site adds to it: ``source``, its own table.
        trust: installed modules whose classes ``federation`` may name, beside those that are always allowed.
        tell: what this site tells of its results: ``scores`` of validation rows, or ``nothing``.
        peers: site → fingerprint of its registered key, known by telephone; for masked sums.
        user: whom the process that speaks to the network runs as; None for whoever starts it.
        most: bytes of a message.
    """

    file: Path
    site: SiteName
    coordinator: Address
    data: dict[str, Any]
    fingerprint: str = ""
    certificate: Path = Path("ca.crt")
    key: Path = Path("site.key")
    federation: Path = Path("federation.yaml")
    tell: Literal["nothing", "scores"] = "nothing"
    trust: tuple[Module, ...] = ()
    peers: dict[str, str] = field(default_factory=dict)
    user: NotEmptyStr | None = None
    most: Limit = MOST

    def __post_init__(self) -> None:
        if not 0 < int(self.coordinator.rpartition(":")[2]) < 65536:
            raise ConfigError(f"coordinator: expected a port from 1 to 65535, found {self.coordinator!r}")
        if strange := [name for name in self.peers if not _SITE.match(name)]:
            raise ConfigError(f"peers: expected names of letters, digits, - and _, found {strange}")
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
    return kind(**{place: path, **{key: _plain(value) for key, value in found.items()}})


def _plain(value: Any) -> Any:
    """A value whose type is not jsonargparse's own: it is written into other files."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    for kind in (bool, str, int, float):
        if isinstance(value, kind):
            return kind(value)
    return value


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
        ConfigError: ``coordinator.yaml`` is missing, or says what does not fit.
    """
    make = "make one by fedlit coordinate init FOLDER --sites north,south,east"
    found = _read(CoordinatorSettings, folder / "coordinator.yaml", folder, make)
    return replace(found, sites=tuple(sorted(found.sites)))


def read_site(path: Path) -> SiteSettings:
    """Read a site's configuration. Whether its files are there is not looked at.

    Raises:
        ConfigError: it is missing, or says what does not fit.
    """
    found = _read(SiteSettings, path, path, "the coordinator has one in invitations/ for each site")
    files = {key: path.parent / getattr(found, key) for key in ("certificate", "key", "federation")}
    return replace(found, **files)


def check_init(sites: Iterable[str], address: str, port: int) -> list[str]:
    """Check what was typed for a new coordinator; the names of the sites.

    Raises:
        ConfigError: a name, the address or the port does not fit.
    """
    names = [name.strip() for name in sites]
    try:
        _checked(CoordinatorSettings, Path(), {"address": address, "port": port, "sites": names})
    except ConfigError as error:
        raise ConfigError(f"--{error}") from error
    return names
