"""``fedlit site``: a site's side of a federation across institutions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedlit.errors import ConfigError
from fedlit.exchange.named import check_left_out
from fedlit.institutions.extra import needs_flower
from fedlit.show.shown import for_terminal, say
from fedlit.show.text import Verbatim

if TYPE_CHECKING:
    from fedlit.institutions.settings import SiteSettings


def keys(folder: Path) -> None:
    """Make this site's key pair.

    Args:
        folder: the folder that the coordinator sent, with site.yaml
    """
    from fedlit.institutions.settings import read_site

    with needs_flower():
        from fedlit.institutions.certificates import make_site_keys
    site = read_site(folder / "site.yaml").site
    _shut(folder)
    mine = make_site_keys(folder, site)
    print(for_terminal(f"Made {folder / 'site.key'} (keep it secret) and {folder / f'{site}.pub'}."))
    print(for_terminal(f"Send {site}.pub to the coordinator, and tell them by telephone:"))
    print(for_terminal(Verbatim(f"  {mine}")))


def check(*, config: Path) -> None:
    """Show what would leave this site. This sends nothing.

    Args:
        config: the site's file, site.yaml
    """
    settings = _settings(config)
    from fedlit.institutions.consent import accepted, write
    from fedlit.institutions.site import Site

    _compare(settings)
    if not settings.key.is_file():
        say(f"Note: there is no {settings.key.name} yet, which join needs: fedlit site keys {settings.folder}")
    site = Site(settings)
    terms = site.terms()
    write(settings.folder, terms)
    _show([*terms.lines(), ""])
    known = "accepted before" if accepted(settings.folder, terms) else "not accepted yet"
    _show([f"Hash of all this: {terms.hash} ({known}). Nothing was sent."])


def join(*, config: Path, accept: tuple[str, ...] = ()) -> None:
    """Take part, once somebody has agreed to what would be sent.

    Args:
        config: the site's own file, site.yaml
        accept: accept the terms with this hash without asking a person; may be repeated
    """
    settings = _settings(config)
    for path, what in ((settings.certificate, "certificate"), (settings.key, "key")):
        if not path.is_file():
            how = "make one by fedlit site keys" if what == "key" else "the coordinator has one in invitations/"
            raise ConfigError(f"{settings.file}: {what}: expected a file, found no {path}; {how}")
    from fedlit.institutions.joining import take_part
    from fedlit.institutions.log import with_time

    with_time()
    _compare(settings)
    site, results = take_part(settings, accept, _show)
    print(for_terminal(results))
    if site.spent is not None and site.privacy.client_level is not None:
        delta = site.privacy.client_level.delta
        print(for_terminal(f"Privacy: epsilon {site.spent:.3g} spent at delta {delta:g} (privacy.json)"))
    print(for_terminal(f"Run folder: {site.run.folder}"))
    check_left_out(site.run.exchange.found)


def _compare(settings: SiteSettings) -> None:
    if not (settings.fingerprint and settings.certificate.is_file()):
        return
    with needs_flower():
        from fedlit.institutions.certificates import fingerprint
    found = fingerprint(settings.certificate)
    if found != settings.fingerprint:
        raise ConfigError(
            f"{settings.certificate}: expected the fingerprint {settings.fingerprint}, as {settings.file} says, found "
            f"{found}; ask the coordinator by telephone which is right"
        )


def _settings(config: Path) -> SiteSettings:
    from fedlit.institutions.settings import read_site

    settings = read_site(config.absolute())
    if not settings.federation.is_file():
        raise ConfigError(
            f"{settings.file}: federation: expected a file, found no {settings.federation}; the coordinator has one in "
            "invitations/ for each site"
        )
    _shut(settings.folder)
    os.chdir(settings.folder)  # its table, its runs: all paths are those of its folder
    return settings


def _shut(folder: Path) -> None:
    """Deny other users access to a site's folder and to all files that are written there from now on."""
    os.umask(0o077)
    with suppress(PermissionError):  # the folder is another user's, who decides
        folder.chmod(0o700)


def _show(lines: Sequence[str]) -> None:
    for line in lines:
        print(for_terminal(Verbatim(line)), flush=True)
