"""What all states have in common in which sites are served: a request for something closed gets its
old reply.
"""

from __future__ import annotations

import logging

from fedlit.errors import RunError
from fedlit.institutions.messages import wrong_settings
from fedlit.institutions.plain import FactsOfTopics
from fedlit.institutions.serving.hub import Hub
from fedlit.institutions.serving.requests import Kind, Request
from fedlit.institutions.serving.state import State

_log = logging.getLogger(__name__)


class Serving(State):
    """A state in which sites are served.

    A request for the open round waits until the round is closed. A request for something closed
    gets the reply in the journal.

    Args:
        hub: what all states share.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._late: set[tuple[int, str]] = set()
        """Rounds and sites whose update came too late, which has been reported."""

    def check(self, request: Request) -> None:
        """See the base class. Rounds that are not open yet, and settings other than the
        coordinator's, are refused.
        """
        super().check(request)
        journal = self.hub.journal
        if request.kind is Kind.FACTS and request.topic == "settings":
            wrong = wrong_settings(self.hub.settings, request.facts[request.site])
            if wrong:
                raise RunError(
                    f"settings differ: {wrong}; give all sites the coordinator's federation.yaml"
                )
        if request.kind in (Kind.UPDATE, Kind.ANSWER) and (
            "federated" not in journal.told or request.number > journal.number
        ):
            raise RunError(
                f"it is at round {request.number + 1}, the others at {journal.number + 1} or "
                "before training; do all have the same federation.yaml, and the folders that they "
                "began with?"
            )

    # --------------------------------------------------------------- what is done with each request

    def repeat_facts(self, request: Request) -> None:
        """Reply to facts that a site has sent before, because it was started again."""
        topic = request.topic
        facts_by_site = self.hub.journal.told[topic]
        before = facts_by_site[request.site][request.site]
        if request.facts != {request.site: before}:
            wrong = wrong_settings(before, request.facts[request.site])
            raise RunError(
                f"{topic}: expected the same facts as before the restart, found something else "
                f"({wrong}); give it the same table and settings, or let all begin anew"
            )
        self.hub.desk.reply(request, {"facts": merged(facts_by_site)})

    def tell_standing(self, request: Request) -> None:
        """Reply to a site that begins, or begins again, with the round in which it may take
        part.
        """
        journal = self.hub.journal
        site = request.site
        if request.number > max(journal.number, 0):
            raise RunError(
                f"it is at round {request.number + 1}, the coordinator at {journal.number + 1}: "
                "the folder of the coordinator is of another federation, or was restored from a "
                "backup; begin anew at all sites"
            )
        after = journal.after(request.number - 1, site)
        reply: dict[str, object] = {"next": after}
        if after > request.number:
            reply["received"] = journal.read(after - 1, site)["received"]
            _log.info(
                "%s restarts at round %d; it missed %d", site, after + 1, after - request.number
            )
        self.hub.desk.reply(request, reply)

    def keep_update(self, request: Request) -> None:
        """Keep an update for the open round; one for a closed round is too late."""
        if request.number < self.hub.journal.number:
            self.reply_late(request)
        else:
            self.hub.desk.keep(request)

    def hear_again(self, request: Request) -> None:
        """Ask for the update again: a coordinator that was started again has forgotten what it
        asked.
        """
        if request.number < self.hub.journal.number:
            self.reply_late(request)
        else:
            self.hub.desk.send(request.site, {"again": True}, request.key)

    def reply_late(self, request: Request) -> None:
        """Reply to a request for a closed round: the reply of that round, or the newest if the site
        was not in it.
        """
        journal = self.hub.journal
        site = request.site
        number = request.number
        after = journal.after(number, site)
        last = number if after == max(number + 1, 0) else after - 1
        if number >= 0 and site not in journal.took[number] and (number, site) not in self._late:
            self._late.add((number, site))
            _log.warning(
                "%s: its update of round %d came too late and is not used; it goes on with round %d",
                site,
                number + 1,
                after + 1,
            )
        self.hub.desk.reply(request, {**journal.read(last, site), "next": after})


def merged(facts_by_site: FactsOfTopics) -> dict[str, object]:
    """Return the facts of all sites in one mapping, by client."""
    facts: dict[str, object] = {}
    for of_site in facts_by_site.values():
        facts |= of_site
    return dict(sorted(facts.items()))
