"""``federation.yaml``: a configuration without a source, and what it says of privacy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from fedlit.errors import ConfigError, did_you_mean
from fedlit.privacy.settings import ClientLevel, Masked, Privacy
from fedlit.run.config import flatten, read_yaml, shown

__all__ = ["plain_federation", "privacy_of", "privacy_settings"]

_KINDS: dict[str, type[Any]] = {"masked": Masked, "client_level": ClientLevel}


def privacy_of(path: Path) -> Privacy:
    """What a federation's configuration says under ``privacy``.

    Args:
        path: of ``federation.yaml``.

    Raises:
        ConfigError: keys that are not known, values out of range, or a table's source, which is a site's own.
    """
    content = read_yaml(path)
    if "source" in (content.get("data") or {}):
        raise ConfigError(
            f"{shown(path)}: data.source: expected none, found one: each site has its own, in its site.yaml. Take it "
            "out, and give all sites the same file"
        )
    told, where = content.get("privacy") or {}, f"{shown(path)}: privacy"
    if not isinstance(told, Mapping):
        raise ConfigError(f"{where}: expected {' or '.join(_KINDS)} with settings, found {told!r}")
    made: dict[str, Any] = {}
    for key, own in told.items():
        if key not in _KINDS:
            raise ConfigError(f"{where}: expected {' or '.join(_KINDS)}, found {key!r}." + did_you_mean(key, _KINDS))
        if own is None:
            own = {}
        known = [field.name for field in fields(_KINDS[key])]
        if not isinstance(own, Mapping) or (wrong := [name for name in own if name not in known]):
            found = own if not isinstance(own, Mapping) else wrong[0]
            raise ConfigError(f"{where}.{key}: expected {', '.join(known)}, found {found!r}.")
        try:
            made[key] = _KINDS[key](**own)
        except TypeError as error:
            raise ConfigError(f"{where}.{key}: expected {', '.join(known)}, found {dict(own)}") from error
    return Privacy(**made)


def privacy_settings(privacy: Privacy) -> dict[str, Any]:
    """Key → value, as all settings are compared."""
    return {f"privacy.{key}": value for key, value in flatten(asdict(privacy))}


@contextmanager
def plain_federation(path: Path) -> Iterator[Path]:
    """The configuration without what fedlit's other commands do not know, as a file for as long as it is needed."""
    content = {key: value for key, value in read_yaml(path).items() if key != "privacy"}
    with TemporaryDirectory(prefix="fedlit-") as place:
        plain = Path(place, path.name)
        plain.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), encoding="utf-8")
        yield plain
