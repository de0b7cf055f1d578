"""For which sites the others wait, for how long, and what is said meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from fedlit.institutions.journal import Journal
from fedlit.institutions.serving.desk import Desk

_log = logging.getLogger(__name__)

SAY = 60.0
"""The seconds after which the coordinator repeats for whom it waits."""


@dataclass(frozen=True)
class Patience:
    """When a round goes on without a site.

    Attributes:
        seconds: the time that the others wait for a site that has not answered, in seconds.
        minimum: the number of sites that a round needs.
        repeat: the time in seconds after which a site that has not answered is asked where it is,
            because its message may be lost.
    """

    seconds: float
    minimum: int
    repeat: float = 60.0


class Waiting:
    """Decides whether the others go on without the sites that are missing, and reports for whom
    they wait.

    Args:
        patience: the limits.
        desk: knows who has come.
        journal: knows what sites have sent before.
        all_needed: whether no site may be missing before training, because what protects sites
            needs all of them.
    """

    def __init__(
        self, patience: Patience, desk: Desk, journal: Journal, *, all_needed: bool
    ) -> None:
        self.patience = patience
        self._desk = desk
        self._journal = journal
        self._all_needed = all_needed
        self._said_at = time.monotonic()

    def missing(self) -> list[str]:
        """Return the sites that have not come yet, and may still do so."""
        journal = self._journal
        return [
            site
            for site in journal.members
            if site not in journal.done and site not in self._desk.waiting
        ]

    def may_begin_without(self, missing: Sequence[str]) -> bool:
        """Return whether training may begin without sites. It waits for those that have never come.
        A site that was refused, or has come and says no more, is waited for as long as one in a
        round, unless protection needs all.
        """
        desk = self._desk
        waited = desk.waited
        come = desk.refused.keys() | self._journal.told.get("settings", {}).keys()
        enough = len(desk.waiting) >= self.patience.minimum and not self._all_needed
        if waited < self.patience.seconds or not enough or not come.issuperset(missing):
            self.say("before training", missing, waited)
            return False
        for site in missing:
            _log.warning("before training: the others begin without %s (%s)", site, desk.why(site))
        return True

    def may_close_without(self, missing: Sequence[str]) -> bool:
        """Return whether the open round may be closed without sites. Those that are known to be
        away are not waited for again.
        """
        desk = self._desk
        waited = desk.waited
        state = f"round {self._journal.number + 1}"
        if len(desk.waiting) < self.patience.minimum:
            self.say(state, missing, waited)
            return False
        new = [site for site in missing if site not in desk.away]
        if new and waited < self.patience.seconds:
            return False
        if new:
            desk.away.update(new)
            _log.warning(
                "%s: %s stayed away for %.0f seconds; the others go on",
                state,
                ", ".join(new),
                waited,
            )
        return True

    def may_answer_without(self, missing: Sequence[str], waited: float) -> bool:
        """Return whether the others may go on without the answers of sites to a question of the
        rule.
        """
        enough = len(self._desk.waiting.keys() - set(missing)) >= self.patience.minimum
        return waited > self.patience.seconds and enough and not self._all_needed

    def say(self, state: str, missing: Sequence[str], waited: float) -> None:
        """Say for whom the others wait, and why, as soon as patience is over and then every
        minute.
        """
        desk = self._desk
        now = time.monotonic()
        is_known = set(missing) <= desk.away and now - self._said_at < SAY
        if waited < self.patience.seconds or is_known:
            return
        desk.away.update(missing)
        self._said_at = now
        reasons = ", ".join(f"{site} ({desk.why(site)})" for site in missing)
        _log.warning(
            "%s: %d of at least %d sites have answered for %.0f seconds; waiting for %s",
            state, len(desk.waiting), self.patience.minimum, waited, reasons,
        )  # fmt: skip
