"""``fedlit site join``: this process has table, model and Trainer; another one, without them, uses the network."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from fedlit.errors import ConfigError, RunError
from fedlit.files import exclusive
from fedlit.institutions.child import Child, Gone
from fedlit.institutions.consent import Terms, accepted, at_stake, keep, write
from fedlit.institutions.settings import SiteSettings
from fedlit.institutions.site import Site, join
from fedlit.train.results import Results

QUIET = 120.0
"""The seconds of silence after which a site reports it, and again after as many."""

_log = logging.getLogger(__name__)


class Speaking:
    """See :class:`~fedlit.institutions.transport.Answering`. A child process is the only one that uses the network.

    Args:
        settings: the settings of the site.
    """

    def __init__(self, settings: SiteSettings) -> None:
        self._most, self._asked = settings.most, False
        self._child = Child(
            "The process that speaks to the coordinator",
            "speaker",
            settings.folder / "speaker.log",
            address=settings.coordinator,
            certificate=settings.certificate,
            key=settings.key,
            most=settings.most,
            **({"user": settings.user} if settings.user else {}),
        )

    def hear(self, seconds: float | None = None) -> bytes:
        """Wait for a message of the coordinator.

        Raises:
            RunError: the child cannot continue, or the message is longer than allowed.
            TimeoutError: no message came.
        """
        since = told = time.monotonic()
        while seconds is None or time.monotonic() < since + seconds:
            try:
                found = self._child.hear(1.0)
            except Gone:
                self._asked = False
                self._child.again()
                continue
            if found is not None:
                self._asked = True
                return found
            if time.monotonic() > told + QUIET:
                told = time.monotonic()
                _log.warning(
                    "heard nothing from the coordinator for %.0f seconds: it waits for other sites, or is away",
                    told - since,
                )
        raise TimeoutError

    def answer(self, content: bytes) -> bool:
        """Send a message, once for each message that was heard; returns False if nobody takes it.

        Raises:
            RunError: the message is longer than allowed.
        """
        if len(content) > self._most:
            raise RunError(
                f"expected a message of at most {self._most:,} bytes, found one of {len(content):,}; raise `most` at "
                "both ends"
            )
        asked, self._asked = self._asked, False
        return asked and self._child.tell(content)

    def end(self) -> None:
        """End the child process."""
        self._child.end()


def consent(
    site: Site, terms: Terms, hashes: Sequence[str], show: Callable[[list[str]], None], *, again: bool = False
) -> None:
    """Ask a person to accept the terms, unless exactly these were accepted before.

    Args:
        site: whose person is asked.
        terms: what would leave.
        hashes: of terms that are accepted without being asked.
        show: prints lines.
        again: whether the first terms were agreed to, and facts told.

    Raises:
        ConfigError: nobody agreed. Nothing was sent of what these terms are about.
    """
    sent = "no tensor was sent; the facts that were agreed to before have been sent" if again else "nothing was sent"
    folder = site.settings.folder
    write(folder, terms)
    show([*terms.lines(), ""])
    if again:
        show(["All sites have sent what they have. The tensors above follow from it.", ""])
    if accepted(folder, terms):
        show([f"Accepted before (hash {terms.hash})."])
        return
    show(at_stake(folder, terms))
    if terms.hash not in hashes:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"expected somebody to accept the terms above, found no terminal and no --accept {terms.hash}; {sent}. "
                f"Read it, then: fedlit site join --config {site.settings.file} "
                + " ".join(f"--accept {own}" for own in [*hashes, terms.hash])
            )
        try:
            word = input(f"Take part on these terms (hash {terms.hash})? [yes/no] ").strip()
        except EOFError:
            word = ""
        if word != "yes":
            raise ConfigError(f"expected yes, found {word!r}; {sent}")
    keep(folder, terms)


def take_part(
    settings: SiteSettings, hashes: Sequence[str], show: Callable[[list[str]], None], *, quiet: bool = False
) -> tuple[Site, Results]:
    """Show what would leave, ask the user, and take part until training is over.

    Args:
        settings: the settings of the site.
        hashes: the hashes of terms that are accepted without asking.
        show: prints lines.
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
                f"{folder}: expected a training to take part in, found that it is over; score it by fedlit test "
                f"--config {folder / 'config.yaml'}, or move the folder away to begin anew"
            )
        terms = site.terms()
        consent(site, terms, hashes, show)
        line = Speaking(settings)
        try:
            renew = partial(consent, site, hashes=hashes, show=show, again=True)
            return site, join(site, line, terms, renew=renew, quiet=quiet)
        finally:
            line.end()
