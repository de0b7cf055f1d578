"""A coordinator's folder: making it, checking it, and keeping it up to date."""

import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from string import Template

from fedlit.errors import ConfigError, did_you_mean
from fedlit.institutions.certificates import (
    check_certificate,
    fingerprint,
    make_authority,
    make_server,
    read_public_key,
    write_new,
)
from fedlit.institutions.settings import (
    INVITATION,
    PORT,
    CoordinatorSettings,
    Invitation,
    read_coordinator,
    read_invitation,
)
from fedlit.run.allowed import check_shared
from fedlit.run.config import read_yaml, shown


def init(
    folder: Path, sites: Sequence[str], address: str = "localhost", port: int = PORT
) -> list[str]:
    """Make a coordinator's folder.

    Args:
        folder: a folder that does not exist yet, or that has no coordinator.
        sites: the names of the sites.
        address: a name or an IP address at which they reach this machine.
        port: the port at this address.

    Returns:
        What to do next, line by line.

    Raises:
        ConfigError: a name or the address does not fit, or there is a coordinator already; nothing
            is overwritten.
    """
    names = [name.strip() for name in sites]
    CoordinatorSettings(folder, address, port, tuple(names))  # refuses what does not fit
    if (folder / "coordinator.yaml").exists():
        raise ConfigError(
            f"{shown(folder)}: is a coordinator's folder already, and is not overwritten; choose "
            "another, or add a site to its coordinator.yaml"
        )
    try:
        for name in ("certificates", "keys", "invitations", "state"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"{folder}: expected to make a folder, found: {error.strerror}; choose another"
        ) from error
    make_authority(folder / "certificates", folder.resolve().name)
    make_server(folder / "certificates", address)
    settings = {
        "folder": shown(folder),
        "address": address,
        "port": port,
        "identity": secrets.token_hex(16),
    }
    write_new(
        folder / "federation.yaml",
        _filled("federation.yaml", sites=", ".join(sorted(names)), **settings),
    )
    write_new(
        folder / "coordinator.yaml", _filled("coordinator.yaml", sites=", ".join(names), **settings)
    )
    invite(read_coordinator(folder))
    return [
        f"Made {shown(folder)}. The authority's fingerprint (SHA-256), to be compared by telephone:",
        f"  {fingerprint(folder / 'certificates' / 'ca.crt')}",
        f"Edit {shown(folder / 'federation.yaml')} and {shown(folder / 'coordinator.yaml')}. Each "
        "site needs:",
        *(f"  {site}: the folder {shown(folder / 'invitations' / site)}" for site in sorted(names)),
        "There: fedlit site keys FOLDER, which makes site.yaml and a .pub file. Here, for each of "
        "these:",
        f"  fedlit coordinate add {shown(folder)} {sorted(names)[0]} {sorted(names)[0]}.pub",
        f"Then: fedlit coordinate start {shown(folder)}",
    ]


def add(settings: CoordinatorSettings, site: str, public: Path) -> list[str]:
    """Add a site's public key to the registry.

    Args:
        settings: the settings of the coordinator.
        site: the name of the site.
        public: the ``.pub`` file that the site sent.

    Returns:
        What was done, and what is missing.

    Raises:
        ConfigError: there is no such site or no such key, another key is there already, or the key
            is another site's.
    """
    if site not in settings.sites:
        raise ConfigError(
            f"expected one of {', '.join(settings.sites)}, found {site!r}; write it under sites: "
            f"in {shown(settings.folder / 'coordinator.yaml')} "
            f"first.{did_you_mean(site, settings.sites)}"
        )
    read_public_key(public)
    site_fingerprint = fingerprint(public)
    path = settings.keys / f"{site}.pub"
    for registered in settings.sites:
        registered_key = settings.keys / f"{registered}.pub"
        if (
            registered != site
            and registered_key.is_file()
            and fingerprint(registered_key) == site_fingerprint
        ):
            raise ConfigError(
                f"{public}: expected a key of {site}'s own, found that of {registered}; ask {site} for "
                "its own"
            )
    if path.is_file() and fingerprint(path) != site_fingerprint:
        raise ConfigError(
            f"{shown(path)}: another key of {site} is there ({fingerprint(path)}), and is not "
            "overwritten; move it away if the new one is right"
        )
    if not path.is_file():
        write_new(path, public.read_bytes())
    without_key = _without_key(settings)
    return [
        f"{site}: {site_fingerprint}. Compare it with what the site tells you by telephone.",
        f"Still without a key: {', '.join(without_key)}"
        if without_key
        else f"All sites have keys: fedlit coordinate start {shown(settings.folder)}",
    ]


def invite(settings: CoordinatorSettings) -> list[str]:
    """Write the invitation of each site: data that decides nothing about the site's machine.

    Returns:
        The sites whose invitation is new or has changed.
    """
    changed = []
    for site in settings.sites:
        folder = settings.folder / "invitations" / site
        folder.mkdir(parents=True, exist_ok=True)
        authority = fingerprint(settings.certificates / "ca.crt")
        invitation = {
            "site": site,
            "address": settings.address,
            "port": settings.port,
            "fingerprint": authority,
        }
        contents = {
            "federation.yaml": settings.federation.read_bytes(),
            "ca.crt": (settings.certificates / "ca.crt").read_bytes(),
            INVITATION: _filled(INVITATION, **invitation),
        }
        files = {name: folder / name for name in contents}
        if any(
            not path.is_file() or path.read_bytes() != contents[name]
            for name, path in files.items()
        ):
            changed.append(site)
        for name, path in files.items():
            path.write_bytes(contents[name])
    return changed


def read_invited(folder: Path) -> Invitation:
    """Read the invitation in a site's folder that has no settings yet.

    Raises:
        ConfigError: there is no invitation, or it has a ``site.yaml``, which would decide what runs
            here.
    """
    path = folder / "site.yaml"
    if path.exists():
        raise ConfigError(
            f"{shown(path)}: expected none before this site has a key, found one. It decides what "
            "runs here, so nobody else may write it: delete it, and fedlit site keys writes a new "
            "one. If you wrote it yourself, and need another key: fedlit site keys --again"
        )
    return read_invitation(folder / INVITATION)


def write_site(folder: Path, invitation: Invitation) -> Path:
    """Write the ``site.yaml`` of a site that was invited; returns the file."""
    path = folder / "site.yaml"
    write_new(path, _filled("site.yaml", **vars(invitation)))
    return path


def renew(settings: CoordinatorSettings) -> str:
    """Make a new server certificate by the same authority; sites need nothing new.

    Returns:
        A message that names the folder of the old one.
    """
    number = 1
    while (old := settings.certificates / f"old-{number}").exists():
        number += 1
    old.mkdir(mode=0o700)
    for name in ("server.crt", "server.key"):
        if (settings.certificates / name).is_file():
            shutil.move(settings.certificates / name, old / name)
    make_server(settings.certificates, settings.address)
    return f"Made {shown(settings.certificates / 'server.crt')}; the old one is in {shown(old)}"


def check(settings: CoordinatorSettings) -> list[str]:
    """Check that a coordinator can start from its folder.

    Returns:
        Warnings.

    Raises:
        ConfigError: a key, a certificate or the configuration is missing, or not valid.
    """
    folder = shown(settings.folder)
    if not settings.federation.is_file():
        raise ConfigError(
            f"{shown(settings.federation)}: expected the configuration of all sites, found no file"
        )
    if missing := _without_key(settings):
        raise ConfigError(
            f"{shown(settings.keys)}: expected the public key of each site, found none of "
            f"{', '.join(missing)}; fedlit coordinate add {folder} {missing[0]} {missing[0]}.pub"
        )
    check_shared(read_yaml(settings.federation), shown(settings.federation))
    for site in settings.sites:
        read_public_key(settings.keys / f"{site}.pub")
    registered = {path.stem for path in settings.keys.glob("*.pub")}
    warnings = [
        f"{shown(settings.keys / f'{site}.pub')}: {site} is not under sites: in coordinator.yaml, "
        "and is not let in"
        for site in sorted(registered - set(settings.sites))
    ]
    for name, mend in (
        ("ca.crt", "make a new folder"),
        ("server.crt", f"fedlit coordinate renew {folder}"),
    ):
        warnings.append(check_certificate(settings.certificates / name, mend))
    for site in settings.sites:
        path = settings.folder / "invitations" / site / "site.yaml"
        if path.exists():
            warnings.append(
                f"{shown(path)}: {site} refuses an invitation with this file, which each site has; "
                "delete it"
            )
    return [warning for warning in warnings if warning]


def _filled(name: str, **values: object) -> bytes:
    """Return a file of the folder ``templates`` with values in the places of their names."""
    template = Path(__file__).with_name("templates") / name
    return Template(template.read_text(encoding="utf-8")).substitute(values).encode()


def _without_key(settings: CoordinatorSettings) -> list[str]:
    return [site for site in settings.sites if not (settings.keys / f"{site}.pub").is_file()]
