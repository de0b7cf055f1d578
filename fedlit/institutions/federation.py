"""``federation.yaml``: a configuration without a source, the federation's identity, and its privacy settings."""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.run.config import flatten, read_yaml, shown

_KINDS: dict[str, type[Any]] = {"masked": Masked, "client_level": ClientLevel}
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Federation:
    """The keys of ``federation.yaml`` that do not belong to a configuration.

    Attributes:
        id: the federation's identity, 32 hexadecimal digits, drawn once; empty if the file has none.
        sites: all its sites, sorted; empty if the file lists none.
        privacy: what protects sites.
    """

    id: str
    sites: tuple[str, ...]
    privacy: Privacy

    @property
    def settings(self) -> dict[str, Any]:
        """Maps each key to its value, in the form in which settings are compared."""
        own = {"federation.id": self.id, "federation.sites": list(self.sites)} if self.id else {}
        return own | {f"privacy.{key}": value for key, value in flatten(asdict(self.privacy))}


def federation_of(path: Path) -> Federation:
    """Read the groups ``federation`` and ``privacy`` of a federation's configuration.

    Args:
        path: the file ``federation.yaml``.

    Raises:
        ConfigError: a key is not known, a value is out of range, there is no identity although privacy needs one, or
            there is a table's source, which belongs to a site.
    """
    content, where = read_yaml(path), shown(path)
    if "source" in (content.get("data") or {}):
        raise ConfigError(
            f"{where}: data.source: expected none, found one: each site has its own, in its site.yaml. Take it out, "
            "and give all sites the same file"
        )
    made: dict[str, Any] = {}
    for key, own in _mapping(content.get("privacy"), _KINDS, f"{where}: privacy").items():
        known = [field.name for field in fields(_KINDS[key])]
        try:
            made[key] = _KINDS[key](**_mapping(own, known, f"{where}: privacy.{key}"))
        except TypeError as error:
            raise ConfigError(f"{where}: privacy.{key}: expected {', '.join(known)}, found {own}") from error
    privacy, told = Privacy(**made), _mapping(content.get("federation"), ("id", "sites"), f"{where}: federation")
    if not told and not privacy.on:
        return Federation("", (), privacy)
    own, sites = told.get("id"), told.get("sites")
    if not isinstance(own, str) or not _ID.fullmatch(own):
        raise ConfigError(
            f"{where}: federation.id: expected 32 hexadecimal digits, drawn once for this federation, such as "
            f"{secrets.token_hex(16)}, found {own!r}"
        )
    if not isinstance(sites, list) or not sites or not all(isinstance(site, str) for site in sites):
        raise ConfigError(f"{where}: federation.sites: expected the names of all sites, found {sites!r}")
    return Federation(own, tuple(sorted(set(sites))), privacy)


def _mapping(told: Any, known: Iterable[str], where: str) -> Mapping[str, Any]:
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise ConfigError(f"{where}: expected {', '.join(known)}, found {told!r}")
    for key in told:
        if key not in known:
            raise ConfigError(f"{where}: expected {', '.join(known)}, found {key!r}.{did_you_mean(str(key), known)}")
    return told


def plain_federation(path: Path) -> dict[str, Any]:
    """Return the configuration without the keys that fedlit's other commands do not know."""
    return {key: value for key, value in read_yaml(path).items() if key not in ("federation", "privacy")}
