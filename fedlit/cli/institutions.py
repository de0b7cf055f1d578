"""``fedlit coordinate`` and ``fedlit site``: both sides of a federation across institutions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from fedlit.errors import expect
from fedlit.institutions.extra import needs_flower
from fedlit.institutions.settings import PORT, SiteSettings, read_coordinator, read_site
from fedlit.show.shown import for_terminal, say
from fedlit.show.text import Verbatim


def _folders() -> ModuleType:
    with needs_flower():
        from fedlit.institutions import folder
    return folder


def init(folder: Path, *, sites: str, address: str = "localhost", port: int = PORT) -> None:
    """Create the coordinator's folder: certificates, a registry of keys, settings, and invitations
    for sites.

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
    from fedlit.institutions.progress import with_time

    with_time()
    return work.start(folder)


def watch(folder: Path, *, once: bool = False) -> int:
    """Show rounds, participants, seconds and bytes.

    Args:
        folder: the coordinator's folder
        once: print the status once and exit
    """
    from fedlit.institutions.progress import watch as follow

    return follow(folder, once=once)


def keys(folder: Path, *, again: bool = False) -> None:
    """Write this site's site.yaml from its invitation, and make its key pair.

    Args:
        folder: a copy of the folder that the coordinator sent
        again: make another key pair for a site.yaml that is yours; move the old one away first
    """
    with needs_flower():
        from fedlit.institutions.certificates import make_site_keys
    folders = _folders()
    file = folder / "site.yaml"
    key = folder / "site.key"
    has_settings = again or (file.is_file() and key.is_file())
    if has_settings:
        site = read_site(file).site
        _shut(folder)
        fingerprint = make_site_keys(folder, site)
    else:
        invitation = folders.read_invited(folder)
        site = invitation.site
        _shut(folder)
        fingerprint = make_site_keys(folder, site)
        folders.write_site(folder, invitation)
        _tell([f"Made {file}: enter the path of your table in it."])
    message = f"Made {key} (keep it secret) and {folder / f'{site}.pub'}."
    _tell(
        [
            message,
            f"Send {site}.pub to the coordinator, and tell them by telephone:",
            f"  {fingerprint}",
        ]
    )


def check(*, config: Path) -> None:
    """Show what would leave this site. This sends nothing.

    Args:
        config: the site's file, site.yaml
    """
    settings = _settings(config)
    from fedlit.institutions.accepted import accepted
    from fedlit.institutions.consent import write
    from fedlit.institutions.joining import give_up
    from fedlit.institutions.site import Site

    _compare(settings)
    if not settings.key.is_file():
        say(
            f"Note: there is no {settings.key.name} yet, which join needs: fedlit site keys "
            f"{settings.folder}"
        )
    site = Site(settings)
    terms = site.terms()
    write(settings.folder, terms)
    _tell([*terms.lines(), ""])
    give_up(settings.folder, terms, _tell)
    status = "accepted before" if accepted(settings.folder, terms) else "not accepted yet"
    _tell([f"Hash of all this: {terms.hash} ({status}). Nothing was sent."])


def join(*, config: Path, accept: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> None:
    """Take part, once somebody has agreed to what would be sent.

    Args:
        config: the site's own file, site.yaml
        accept: accept the terms with this hash without asking a person; may be repeated
        without: accept that these terms lack protection that those before had (masks, noise, norm
            or least); may be repeated
    """
    settings = _settings(config)
    for kind, path, advice in (
        ("certificate", settings.certificate, "the coordinator has one in invitations/"),
        ("key", settings.key, "make one by fedlit site keys"),
    ):
        expect(path.is_file(), f"{settings.file}: {kind}", "a file", str(path), advice)
    from fedlit.exchange.named import check_left_out
    from fedlit.privacy.settings import WITHOUT

    for protection in without:
        expect(protection in WITHOUT, "--without", ", ".join(WITHOUT), protection)
    from fedlit.institutions.joining import take_part
    from fedlit.institutions.progress import with_time

    with_time()
    _compare(settings)
    site, results = take_part(settings, accept, _tell, without=without)
    print(for_terminal(results))
    if site.spent is not None and site.privacy.client_level is not None:
        delta = site.privacy.client_level.delta
        print(
            for_terminal(
                f"Privacy: epsilon {site.spent:.3g} spent at delta {delta:g} (privacy.json)"
            )
        )
    print(for_terminal(f"Run folder: {site.run.folder}"))
    check_left_out(site.run.exchange.incident_counts)


def _compare(settings: SiteSettings) -> None:
    if not (settings.fingerprint and settings.certificate.is_file()):
        return
    with needs_flower():
        from fedlit.institutions.certificates import fingerprint
    actual = fingerprint(settings.certificate)
    expected = f"the fingerprint {settings.fingerprint}, as {settings.file} says"
    right = actual == settings.fingerprint
    expect(
        right,
        str(settings.certificate),
        expected,
        actual,
        "ask the coordinator by telephone which is right",
    )


def _settings(config: Path) -> SiteSettings:
    settings = read_site(config.absolute())
    how = "the coordinator has one in invitations/ for each site"
    expect(
        settings.federation.is_file(),
        f"{settings.file}: federation",
        "a file",
        str(settings.federation),
        how,
    )
    if settings.trust:
        how = "fedlit site keys makes one; without one, somebody else may have written this file"
        expect(
            settings.key.is_file(),
            f"{settings.file}: trust",
            "a key of this site",
            str(settings.key),
            how,
        )
        say(
            f"Note: code of {', '.join(settings.trust)} may run here from now on, because "
            "site.yaml trusts it"
        )
    _shut(settings.folder)
    os.chdir(settings.folder)  # paths in site.yaml are relative to the site's folder
    return settings


def _shut(folder: Path) -> None:
    """Deny other users access to a site's folder and to all files that are written there from now
    on.
    """
    os.umask(0o077)
    with suppress(PermissionError):  # another user owns the folder, and decides
        folder.chmod(0o700)


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        if line.startswith("  "):
            line = Verbatim(line)
        print(for_terminal(line), flush=True)
