"""``fedlit site join``: this process holds table, model and Trainer; another, without them, speaks to the network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fedlit.errors import ConfigError, RunError
from fedlit.institutions.child import command
from fedlit.institutions.consent import Terms, at_stake
from fedlit.institutions.extra import QUIET
from fedlit.institutions.settings import SiteSettings
from fedlit.institutions.site import Site, accept, is_accepted, join, write_terms
from fedlit.institutions.socket_line import SocketLine
from fedlit.locks import exclusive
from fedlit.show.shown import print_notice, say
from fedlit.train.results import Results

__all__ = ["consent", "take_part"]

_ERROR = "fedlit: error: "


class _Speaking:
    """The speaking process, started again where it was killed."""

    def __init__(self, settings: SiteSettings, socket: Path) -> None:
        self._log = settings.folder / "speaker.log"
        own = {
            "--address": settings.coordinator,
            "--certificate": str(settings.certificate),
            "--key": str(settings.key),
            "--socket": str(socket),
            "--most": str(settings.most),
            **({"--user": settings.user} if settings.user else {}),
        }
        self._arguments = [word for pair in own.items() for word in pair]
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths, self._read, self._told = 0, 0, 0
        self._lines: list[str] = []

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._read, self._told = log.tell(), 0
            self._process = subprocess.Popen(
                command("fedlit.institutions.speaker", *self._arguments),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **QUIET},
                start_new_session=True,
            )

    def watch(self) -> None:
        """Start it again where it was killed; say what it says; fail where it says that speaking makes no sense."""
        assert self._process is not None
        self._repeat()
        code = self._process.poll()
        if code is None:
            return
        if code > 0:
            lines = [line.partition(_ERROR)[2] for line in self._lines if _ERROR in line]
            told = lines[-1] if lines else f"exit status {code}; see {self._log}"
            raise RunError(f"speaking to the coordinator failed: {told}")
        self._deaths += 1
        if self._deaths > 20:
            raise RunError(f"the speaking process was killed {self._deaths} times; see {self._log}")
        say(f"The process that speaks to the coordinator ended (status {code}); started again")
        time.sleep(min(self._deaths, 5))
        self.start()

    def _repeat(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read)
            content = log.read()
        self._lines = content.decode(errors="replace").splitlines()
        new = [line for line in self._lines[self._told :] if line.strip() and _ERROR not in line]
        self._told = len(self._lines)
        for line in new:
            print_notice(line)  # it has its time already

    def end(self) -> None:
        """End it."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()


def consent(
    site: Site, terms: Terms, hashes: Sequence[str], show: Callable[[list[str]], None], *, again: bool = False
) -> None:
    """Ask whether what would leave may leave, unless these very terms were accepted before.

    Args:
        site: whose person is asked.
        terms: what would leave.
        hashes: of terms that are accepted without being asked.
        show: prints lines.
        again: whether the first terms were agreed to, and facts told.

    Raises:
        ConfigError: nobody agreed. Nothing was sent of what these terms are about.
    """
    sent = "no tensor was sent; the facts that were agreed to before are told" if again else "nothing was sent"
    write_terms(site, terms)
    show([*terms.lines(), ""])
    if again:
        show(["All sites have told what they have. These are the tensors that follow from it.", ""])
    if is_accepted(site, terms):
        show([f"Accepted before (hash {terms.hash})."])
        return
    show(at_stake(site.settings.folder / "accepted.json", terms))
    if terms.hash not in hashes:
        if not sys.stdin.isatty():
            raise ConfigError(
                f"expected somebody to agree to the above, found no terminal and no --accept {terms.hash}; {sent}. "
                f"Read it, then: fedlit site join --config {site.settings.file} "
                + " ".join(f"--accept {own}" for own in [*hashes, terms.hash])
            )
        try:
            word = input(f"Take part on these terms (hash {terms.hash})? [yes/no] ").strip()
        except EOFError:
            word = ""
        if word != "yes":
            raise ConfigError(f"expected yes, found {word!r}; {sent}")
    accept(site, terms)


@contextmanager
def _speaking(settings: SiteSettings) -> Iterator[SocketLine]:
    path = Path(settings.socket) if settings.socket else settings.folder.absolute() / "site.sock"
    speaking = _Speaking(settings, path)
    line = SocketLine(path, settings.most, speaking.watch, settings.user)
    try:
        speaking.start()
        yield line
    finally:
        speaking.end()
        line.close()


def take_part(
    settings: SiteSettings, hashes: Sequence[str], show: Callable[[list[str]], None], *, quiet: bool = False
) -> tuple[Site, Results]:
    """Show what would leave, ask, and take part until training is over.

    Args:
        settings: of the site.
        hashes: of terms that are accepted without being asked.
        show: prints lines.
        quiet: print nothing of training.

    Raises:
        FedlitError: nobody agreed, the coordinator refused, or training had to stop.
    """
    expected = f"{settings.folder}: expected no other site to take part from this folder"
    with exclusive(settings.folder / "lock", expected, "end it first"):
        return _take_part(settings, hashes, show, quiet=quiet)


def _take_part(
    settings: SiteSettings, hashes: Sequence[str], show: Callable[[list[str]], None], *, quiet: bool
) -> tuple[Site, Results]:
    site = Site(settings)
    if (over := site.finished()) is not None:
        raise ConfigError(
            f"{over.parent.parent}: expected a training to take part in, found that it is over; score it by fedlit "
            f"test --config {over.parent.parent / 'config.yaml'}, or move the folder away to begin anew"
        )
    terms = site.terms()
    consent(site, terms, hashes, show)
    with _speaking(settings) as line:
        results = join(site, line, terms, renew=lambda new: consent(site, new, hashes, show, again=True), quiet=quiet)
    return site, results
