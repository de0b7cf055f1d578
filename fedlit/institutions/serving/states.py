"""The states of a coordinator between rounds: before training, in training, and over.

    Before ──── the first round is closed ────▶ Training ──── all sites are done ────▶ Over

While a round is being closed, the coordinator is in a fourth state
(:class:`~fedlit.institutions.serving.asking.Asking`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from fedlit.exchange.schedule import BEGIN
from fedlit.institutions.facts import odd_ones, too_long
from fedlit.institutions.messages import HEAD
from fedlit.institutions.serving.hub import Hub
from fedlit.institutions.serving.requests import Kind, Request
from fedlit.institutions.serving.rounds import Rounds
from fedlit.institutions.serving.serving import Serving, merged
from fedlit.institutions.serving.state import Handle, State

_log = logging.getLogger(__name__)

REST = 2**16
"""The bytes of a reply's text beside the facts in it."""


def first_state(hub: Hub) -> State:
    """Return the state in which a coordinator begins, or continues."""
    rounds = Rounds(hub)
    return Training(hub, rounds) if hub.journal.took else Before(hub, rounds)


class Before(Serving):
    """No round is closed. Sites send facts, topic by topic, and then the update of the first round.

    Args:
        hub: what all states share.
        rounds: closes the first round.
    """

    def __init__(self, hub: Hub, rounds: Rounds) -> None:
        super().__init__(hub)
        self._rounds = rounds

    @property
    def name(self) -> str:
        """See the base class."""
        return "before training"

    @property
    def accepts(self) -> Mapping[Kind, Handle]:
        """All but the end of training."""
        return {
            Kind.FACTS: self._take_facts,
            Kind.STANDING: self.tell_standing,
            Kind.UPDATE: self.keep_update,
            Kind.ANSWER: self.hear_again,
        }

    def _take_facts(self, request: Request) -> None:
        if request.topic in self.hub.journal.told:
            self.repeat_facts(request)
        else:
            self.hub.desk.keep(request)

    def advance(self) -> State:
        """Share the facts of a topic, or close the first round, once all sites have come."""
        hub = self.hub
        usual = hub.usual_request()
        if usual is None:
            return self
        missing = hub.waiting.missing()
        begins = usual.kind is Kind.FACTS or hub.journal.number == BEGIN
        if missing and begins:
            if not hub.waiting.may_begin_without(missing):
                return self
            hub.leave_out(missing)
        elif missing and not hub.waiting.may_close_without(missing):
            return self
        if hub.refuse_elsewhere():
            return self
        if usual.kind is Kind.FACTS:
            self._share(usual.topic)
            return self
        self._rounds.close(hub.desk.waiting)
        return Training(hub, self._rounds)

    def _share(self, topic: str) -> None:
        """Give the facts of all sites to each of them, unless some do not fit."""
        hub = self.hub
        facts_by_site = {site: request.facts for site, request in sorted(hub.desk.waiting.items())}
        facts = merged(facts_by_site)
        unfit = too_long(topic, facts, HEAD - REST) or odd_ones(topic, facts, hub.meet)
        if unfit:
            for site, why in unfit.items():
                hub.refuse(site, why)
            return
        if topic == "settings":
            _log.info("%s are here, and have the same settings", ", ".join(facts_by_site))
        hub.server.tell(topic, facts_by_site)
        hub.journal.tell(topic, facts_by_site)
        hub.bound()
        hub.desk.reply_to_all({site: {"facts": facts} for site in facts_by_site})


class Training(Serving):
    """A round is open, and at least one is closed. Sites send their updates.

    Args:
        hub: what all states share.
        rounds: closes rounds.
    """

    def __init__(self, hub: Hub, rounds: Rounds) -> None:
        super().__init__(hub)
        self._rounds = rounds

    @property
    def name(self) -> str:
        """See the base class."""
        return f"round {self.hub.journal.number + 1}"

    @property
    def accepts(self) -> Mapping[Kind, Handle]:
        """All; of facts, those that were sent before."""
        return {
            Kind.FACTS: self.repeat_facts,
            Kind.STANDING: self.tell_standing,
            Kind.UPDATE: self.keep_update,
            Kind.ANSWER: self.hear_again,
            Kind.END: self._end,
        }

    def check(self, request: Request) -> None:
        """See the base class. New facts are refused: the others have begun without them."""
        super().check(request)
        if request.kind is Kind.FACTS and request.topic not in self.hub.journal.told:
            raise self.unexpected(request)

    def _end(self, request: Request) -> None:
        """Note that training is over at a site."""
        hub = self.hub
        if request.site not in hub.journal.done:
            # A site that says so again and again keeps nobody waiting.
            hub.desk.since = time.monotonic()
        hub.journal.ended(request.site)
        hub.desk.forget(request.site)
        hub.desk.reply(request, {})

    def advance(self) -> State:
        """Close the open round once all sites have come that are still training."""
        hub = self.hub
        if self._is_over():
            return Over(hub)
        if hub.usual_request() is None:
            return self
        missing = hub.waiting.missing()
        if missing and not hub.waiting.may_close_without(missing):
            return self
        if not hub.refuse_elsewhere():
            self._rounds.close(hub.desk.waiting)
        return self

    def _is_over(self) -> bool:
        """Return whether all sites are done, or gone for longer than the others' patience after the
        last round.
        """
        hub = self.hub
        journal = hub.journal
        training = [site for site in journal.members if site not in journal.done]
        if not training:
            return True
        ended = bool(journal.done) or 0 < hub.rounds <= journal.number
        late = hub.desk.waited > hub.waiting.patience.seconds
        connected = hub.desk.line.sites()
        return (
            ended
            and late
            and not hub.desk.waiting
            and not any(site in connected for site in training)
        )


class Over(State):
    """The federation is over, and no request is taken any more."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @property
    def name(self) -> str:
        """See the base class."""
        return f"after round {self._hub.journal.number}"

    @property
    def accepts(self) -> Mapping[Kind, Handle]:
        """Nothing."""
        return {}

    def advance(self) -> State:
        """Return this state: none follows."""
        return self
