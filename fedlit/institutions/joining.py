"""``fedlit site join``: this process has table, model and Trainer; another one, without them, uses
the network.
"""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fedlit.errors import ConfigError, RunError
from fedlit.files import exclusive
from fedlit.institutions.accepted import (
    PRIVATE,
    accepted,
    at_stake,
    differences,
    given_up,
    keep,
    refuse_lost,
)
from fedlit.institutions.child import Child, Gone
from fedlit.institutions.consent import write
from fedlit.institutions.settings import SiteSettings
from fedlit.institutions.site import Site, join
from fedlit.institutions.terms import Terms
from fedlit.privacy.ledger import prepare
from fedlit.train.results import Results

QUIET = 120.0
"""The seconds of silence after which a site reports it, and again after as many."""

_log = logging.getLogger(__name__)


class Speaking:
    """See :class:`~fedlit.institutions.transport.Answering`. A child process is the only one that
    uses the network.

    Args:
        settings: the settings of the site.
    """

    def __init__(self, settings: SiteSettings) -> None:
        self._most = settings.most
        self._asked = False
        user = {"user": settings.user} if settings.user else {}
        self._child = Child(
            "The process that speaks to the coordinator",
            "speaker",
            settings.folder / "speaker.log",
            address=settings.coordinator,
            certificate=settings.certificate,
            key=settings.key,
            most=settings.most,
            **user,
        )

    def hear(self, seconds: float | None = None) -> bytes:
        """Wait for a message of the coordinator.

        Raises:
            RunError: the child cannot continue, or the message is longer than allowed.
            TimeoutError: no message came.
        """
        since = last_log = time.monotonic()
        while seconds is None or time.monotonic() < since + seconds:
            try:
                message = self._child.hear(1.0)
            except Gone:
                self._asked = False
                self._child.again()
                continue
            if message is not None:
                self._asked = True
                return message
            if time.monotonic() > last_log + QUIET:
                last_log = time.monotonic()
                _log.warning(
                    "heard nothing from the coordinator for %.0f seconds: it waits for other "
                    "sites, or is away",
                    last_log - since,
                )
        raise TimeoutError

    def answer(self, content: bytes) -> bool:
        """Send a message, once for each message that was heard; returns False if nobody takes it.

        Raises:
            RunError: the message is longer than allowed.
        """
        if len(content) > self._most:
            raise RunError(
                f"expected a message of at most {self._most:,} bytes, found one of "
                f"{len(content):,}; raise `most` at both ends"
            )
        is_asked = self._asked
        self._asked = False
        return is_asked and self._child.tell(content)

    def end(self) -> None:
        """End the child process."""
        self._child.end()


def consent(
    site: Site,
    terms: Terms,
    hashes: Sequence[str],
    show: Callable[[list[str]], None],
    *,
    without: Sequence[str] = (),
    again: bool = False,
) -> None:
    """Ask a person to accept the terms, unless exactly these were accepted before.

    Args:
        site: whose person is asked.
        terms: what would leave.
        hashes: of terms that are accepted without being asked.
        show: prints lines.
        without: protection that is given up with these hashes (see
            :data:`~fedlit.privacy.settings.WITHOUT`).
        again: whether the first terms were agreed to, and facts told.

    Raises:
        ConfigError: nobody agreed. Nothing was sent of what these terms are about.
    """
    sent = (
        "no tensor was sent; the facts that were agreed to before have been sent"
        if again
        else "nothing was sent"
    )
    folder = site.settings.folder
    write(folder, terms)
    show([*terms.lines(), ""])
    if again:
        show(["All sites have sent what they have. The tensors above follow from it.", ""])
    if accepted(folder, terms):
        show([f"Accepted before (hash {terms.hash})."])
        return
    show(at_stake(folder, terms))
    show(differences(folder, terms))
    gone = given_up(folder, terms)
    if terms.hash in hashes and set(gone) <= set(without):
        keep(folder, terms, gone)
        return
    command = [
        f"--accept {accepted_hash}" for accepted_hash in dict.fromkeys([*hashes, terms.hash])
    ]
    command += [f"--without {answer}" for answer in gone]
    if gone:
        raise ConfigError(
            "expected the protection that was accepted before, found terms without "
            f"{' and '.join(gone)}; {sent}. If you agree to that, run fedlit site check --config "
            f"{site.settings.file} at a terminal, or fedlit site join --config "
            f"{site.settings.file} {' '.join(command)}"
        )
    if not sys.stdin.isatty():
        raise ConfigError(
            "expected somebody to accept the terms above, found no terminal and no --accept "
            f"{terms.hash}; {sent}. Read it, then: fedlit site join --config {site.settings.file} "
            f"{' '.join(command)}"
        )
    if (answer := _typed(f"Take part on these terms (hash {terms.hash})? [yes/no] ")) != "yes":
        raise ConfigError(f"expected yes, found {answer!r}; {sent}")
    keep(folder, terms)


def give_up(folder: Path, terms: Terms, show: Callable[[list[str]], None]) -> None:
    """Show what differs from the terms that were accepted last, and let a person at a terminal type
    the protection that these terms give up.

    Args:
        folder: the site's.
        terms: the terms, which were shown.
        show: prints lines.

    Raises:
        ConfigError: something else was typed; the terms are not accepted.
    """
    if accepted(folder, terms):
        return
    show(differences(folder, terms))
    gone = given_up(folder, terms)
    if not gone:
        return
    phrase = f"without {' '.join(gone)}"
    show([f"THESE TERMS PROTECT THE SITE LESS THAN THOSE BEFORE: {phrase}"])
    if not sys.stdin.isatty():
        return
    answer = _typed(f"To take part all the same, type: {phrase}\n")
    if answer != phrase:
        raise ConfigError(f"expected {phrase!r}, found {answer!r}; these terms are not accepted")
    keep(folder, terms, gone)


def _typed(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        return ""


def take_part(
    settings: SiteSettings,
    hashes: Sequence[str],
    show: Callable[[list[str]], None],
    *,
    without: Sequence[str] = (),
    quiet: bool = False,
) -> tuple[Site, Results]:
    """Show what would leave, ask the user, and take part until training is over.

    Args:
        settings: the settings of the site.
        hashes: the hashes of terms that are accepted without asking.
        show: prints lines.
        without: protection that is given up with these hashes.
        quiet: whether to print nothing of training.

    Raises:
        FedlitError: nobody agreed, the coordinator refused, or training had to stop.
    """
    expected = f"{settings.folder}: expected no other site to take part from this folder"
    with exclusive(settings.folder / "lock", expected, "end it first"):
        site = Site(settings)
        if (over := site.finished()) is not None:
            folder = over.parent.parent
            raise ConfigError(
                f"{folder}: expected a training to take part in, found that it is over; score it "
                f"by fedlit test --config {folder / 'config.yaml'}, or move the folder away to "
                "begin anew"
            )
        terms = site.terms()
        refuse_lost(settings.folder, terms)
        prepare(settings.folder / PRIVATE)
        consent(site, terms, hashes, show, without=without)
        line = Speaking(settings)
        try:
            renew = partial(consent, site, hashes=hashes, show=show, without=without, again=True)
            return site, join(site, line, terms, renew=renew, quiet=quiet)
        finally:
            line.end()
