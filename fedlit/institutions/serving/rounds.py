"""Closes rounds: applies the rule to what sites have sent, keeps the replies in the journal, and
sends them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from fedlit.errors import FedlitError, RunError
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.schedule import BEGIN
from fedlit.institutions.plain import Message
from fedlit.institutions.serving.asking import Asking, UnansweredError
from fedlit.institutions.serving.hub import VOID, Hub
from fedlit.institutions.serving.requests import Request
from fedlit.privacy.coordinator import Gathering

_log = logging.getLogger(__name__)

Present = Mapping[str, Message]
"""Maps the sites that take part in a round to their messages, in the order of their names."""


class Rounds:
    """Closes one round after another.

    Args:
        hub: what all states share.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._begun = time.monotonic()
        self._bytes_before = 0
        self._unused = 0
        """The rounds in a row in which the rule got answers that it cannot use."""

    def close(self, requests: Mapping[str, Request]) -> None:
        """Close the open round, and reply to the sites that took part.

        Args:
            requests: maps each of these sites to its request.

        Raises:
            FedlitError: the federation cannot continue.
        """
        hub = self.hub
        number = hub.journal.number
        present = {site: request.content for site, request in sorted(requests.items())}
        outcome, took = self._outcome(present)
        records = {key: float(value) for key, value in outcome.records.items()}
        replies = {site: self._reply(site, outcome, records) for site in hub.journal.members}
        hub.journal.close(took, replies, hub.server.memory(), outcome.void)
        if outcome.void:
            self._check_void()
        for name in outcome.lost:
            why = "it sits out" if present[name].get("unfit") else "its update was not finite"
            _log.warning("round %d: %s is left out: %s", number + 1, name, why)
        # Who was lost has just been said.
        hub.server.count(replace(outcome, lost=()), number, took)
        if number != BEGIN:
            self._log_round(number, took)
        self._begun = time.monotonic()
        self._bytes_before = hub.desk.bytes
        hub.desk.reply_to_all(
            {site: {**replies[site], "next": hub.journal.after(number, site)} for site in took}
        )

    def _log_round(self, number: int, took: list[str]) -> None:
        sites = ", ".join(took)
        away = [site for site in self.hub.journal.members if site not in took]
        if away:
            sites += f" (without {', '.join(away)})"
        _log.info(
            "round %d: %s; %.1f s, %s bytes",
            number + 1,
            sites,
            time.monotonic() - self._begun,
            f"{self.hub.desk.bytes - self._bytes_before:,}",
        )

    def _outcome(self, present: Present) -> tuple[Outcome, list[str]]:
        """Return the outcome of the round and the sites that took part. While it runs, the
        coordinator is in the state :class:`~fedlit.institutions.serving.asking.Asking`.
        """
        hub = self.hub
        before = hub.journal.memory or hub.server.memory()
        outside = hub.state
        asking = Asking(hub, outside)
        hub.state = asking
        try:
            outcome, took = self._aggregate(hub.journal.number, present, asking)
            self._unused = 0
        except FedlitError as error:
            outcome, took = self._without_answers(error, present, before, asking)
        finally:
            hub.state = outside
        return outcome, took

    def _aggregate(
        self, number: int, present: Present, asking: Asking
    ) -> tuple[Outcome, list[str]]:
        """Apply the rule, and return the outcome and the sites that took part."""
        server = self.hub.server
        masked = self.hub.privacy.masked
        updates: dict[str, Message] = {}
        for message in present.values():
            updates |= message["updates"]
        unfit = tuple(site for site, message in present.items() if message.get("unfit"))
        if masked is None:
            outcome = server.round(number, server.updates_of(updates), asking.ask, measure=True)
            return replace(outcome, lost=tuple(sorted({*outcome.lost, *unfit}))), list(present)
        if unfit:
            return Outcome({}, void=unfit), list(present)
        flags = {
            site: (True, message["flags"])
            for site, message in present.items()
            if "flags" in message
        }
        gathering = Gathering(
            masked, server.rule, server.sharing, number, flags, asking.ask_for_sums
        )
        ask = gathering.asking(asking.ask)
        outcome = server.round(number, gathering.gather(), ask, measure=False, guarded=False)
        return outcome, list(present)

    def _without_answers(
        self, error: FedlitError, present: Present, before: Message, asking: Asking
    ) -> tuple[Outcome, list[str]]:
        """Close a round in which the rule got no answers that it can use: nobody receives anything,
        and the next round counts. What clients start from cannot be left open: that is asked again,
        of the others.

        Args:
            error: why the round has no result.
            present: maps the sites that took part to their messages.
            before: the state of the rule and the guard before the round.
            asking: the questions of the round.

        Raises:
            FedlitError: the error has another reason, or there were several such rounds in a row.
        """
        hub = self.hub
        missing = list(error.sites) if isinstance(error, UnansweredError) else []
        answered = {site: message for site, message in present.items() if site not in missing}
        begin = hub.journal.number == BEGIN
        self._unused += 1
        if not missing and (
            begin or not asking.any_asked or hub.privacy.on or self._unused >= VOID
        ):
            raise error
        hub.desk.silent.update(missing)
        for site in missing:
            # If it is there after all, it is asked where it is.
            hub.desk.close(site)
        hub.server.recall(before)
        if begin:
            _log.warning(
                "before training: the others begin without %s, which did not answer",
                ", ".join(missing),
            )
            hub.leave_out(missing)
            return self._aggregate(BEGIN, answered, asking)
        hub.desk.away.update(missing)
        _log.warning(
            "round %d has no result, and the next one counts: %s", hub.journal.number + 1, error
        )
        return Outcome({}), list(answered)

    def _check_void(self) -> None:
        """Stop after several rounds without a sum, once the last one is in the journal.

        Raises:
            RunError: there were too many in a row.
        """
        journal = self.hub.journal
        rounds = journal.void_in_a_row()
        if BEGIN not in rounds and len(rounds) < VOID:
            return
        names: set[str] = set()
        for number in rounds:
            names |= set(journal.void[number])
        raise RunError(
            f"masked sums: expected every site to have a fit update at least once in {VOID} "
            f"rounds, found none summed in the last {len(rounds)} because of "
            f"{', '.join(sorted(names))}, "
            "whose log says why. Mend it, and start all again from their checkpoints; or take it "
            "off the list of sites, which are new terms that a person at each of the others "
            "accepts"
        )

    def _reply(self, site: str, outcome: Outcome, records: Mapping[str, float]) -> Message:
        """Return the reply to a site, without what was measured of other sites."""
        hidden = tuple(f"{name}/" for name in self.hub.sites if name != site)
        state = outcome.received.get(site, {})
        return {
            "received": {name: value.detach().cpu().clone() for name, value in state.items()},
            "lost": [name for name in outcome.lost if name == site],
            "records": {key: value for key, value in records.items() if not key.startswith(hidden)},
            "bytes": outcome.bytes,
            "verdict": outcome.verdict.to_dict([site]),
            "void": list(outcome.void),
        }
