"""What the states of a coordinator share, and how a request reaches the state that the coordinator
is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedlit.errors import FedlitError, RunError, told_as
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.extra import Lost
from fedlit.institutions.facts import most_common
from fedlit.institutions.journal import Journal
from fedlit.institutions.messages import check_update, largest, read
from fedlit.institutions.plain import Facts
from fedlit.institutions.serving.desk import Desk
from fedlit.institutions.serving.line import Line
from fedlit.institutions.serving.patience import Patience, Waiting
from fedlit.institutions.serving.requests import Kind, Request, check_form, request_of
from fedlit.institutions.serving.state import State
from fedlit.privacy.settings import Privacy

POLL = 0.5
"""The seconds for which the coordinator waits for a request before it looks at what else is due."""
VOID = 3
"""The rounds in a row without a masked sum, or without answers that a rule can use, after which a
federation stops; and the rounds that a site may leave without its answer."""


class Hub:
    """The coordinator's part of a federation, whatever state it is in.

    Args:
        server: applies the rule.
        line: the connection to the sites.
        journal: what was sent and replied before.
        settings: the coordinator's own settings: key → value; every site must have the same.
        patience: when a round goes on without a site.
        report: called with this hub, to report how far the federation is.
        privacy: what protects sites.
        rounds: the number of rounds, if it is known; otherwise 0.
        meet: raises an error if clients cannot agree on what they send of their columns, by client.

    Attributes:
        state: the state that requests are taken by.
        desk: the requests that wait, and the replies.
        waiting: decides whether the others go on without a site.
    """

    state: State

    def __init__(
        self,
        server: CoordinatorServer,
        line: Line,
        journal: Journal,
        settings: Mapping[str, Any],
        patience: Patience,
        report: Callable[[Hub], None],
        privacy: Privacy,
        rounds: int,
        meet: Callable[[Facts], object],
    ) -> None:
        self.server = server
        self.journal = journal
        self.settings = settings
        self.privacy = privacy
        self.rounds = rounds
        self.meet = meet
        self.desk = Desk(line, journal.sites)
        self.waiting = Waiting(patience, self.desk, journal, all_needed=privacy.on)
        self._report = report
        if journal.begun:
            self._tell_server()
            if journal.memory:
                # Nothing is remembered before the first round.
                server.recall(journal.memory)
            self.bound()

    @property
    def sites(self) -> list[str]:
        """All sites of the federation."""
        return self.journal.sites

    def _tell_server(self) -> None:
        """Let the server know the facts in the journal, of all sites that take part."""
        for topic, facts_by_site in self.journal.told.items():
            self.server.tell(topic, facts_by_site)

    def leave_out(self, sites: Sequence[str]) -> None:
        """Begin training without sites, as if they had never said anything."""
        self.desk.away.update(sites)
        self.journal.leave_out(sites)
        self._tell_server()

    def bound(self) -> None:
        """Bound the bytes of a request, once it is known which tensors travel."""
        if self.server.sharing.forms:
            self.desk.most = largest(self.server.sharing.forms)

    # ------------------------------------------------------------------ requests

    def pulse(self) -> None:
        """Take the requests that come within a moment, and ask sites that are silent where they
        are.
        """
        for site, content in self.desk.line.requests(POLL):
            self.take(site, content)
        self.desk.repeat(self.journal.done, self.waiting.patience.repeat)
        self._report(self)

    def take(self, site: str, content: bytes | RunError) -> None:
        """Take a message, or refuse it: the other sites go on.

        Args:
            site: the name that the sender's key was registered with.
            content: the message; an error if the line could not read it.
        """
        if isinstance(content, RunError):
            self.refuse(site, str(content))
            return
        self.desk.bytes += len(content)
        try:
            # A disk or a line that fails here is no fault of the message.
            with told_as(_odd, passing=(OSError, Lost)):
                request = self._checked(site, content)
                self._note(request)
                self.state.take(request)
        except FedlitError as error:
            self.refuse(site, str(error))

    def _checked(self, site: str, content: bytes) -> Request:
        """Return a request that the present state accepts.

        Raises:
            RunError: it cannot be one, or its site does not take part any more.
        """
        request = request_of(site, read(content, self.desk.most))
        if site in self.journal.left_out:
            raise RunError(
                "training began without it; it can take part if all let the federation begin anew"
            )
        if self.desk.silent[site] >= VOID:
            raise RunError(
                f"{VOID} rounds were lost because it did not answer the rule; the others go on "
                "without it until the coordinator is started again"
            )
        check_form(request)
        self.state.check(request)
        if request.kind is Kind.UPDATE:
            manifest = self.journal.told.get("manifest", {}).get(site, {}).get(site, {})
            masked = self.privacy.masked is not None
            check_update(request.content, site, self.server.sharing, manifest, masked=masked)
        return request

    def _note(self, request: Request) -> None:
        """Note what a request shows whatever it asks for: its site is there, and up to where it was
        saved.
        """
        site = request.site
        self.desk.away.discard(site)
        self.desk.refused.pop(site, None)
        if "scores" in request.content:
            self.desk.scores[site] = request.content["scores"]
        saved = request.content.get("saved")
        if request.kind in (Kind.UPDATE, Kind.ANSWER) and isinstance(saved, int):
            self.journal.saved(site, saved)

    def refuse(self, site: str, reason: str) -> None:
        """Refuse a message and tell its sender why."""
        self.desk.refuse(site, reason, left_out=site in self.journal.left_out)

    def usual_request(self) -> Request | None:
        """Return a request at the point where most sites are; None if none has come."""
        keys = {site: request.key for site, request in self.desk.waiting.items()}
        if not keys:
            return None
        usual = most_common(keys) or next(iter(keys.values()))
        return next(request for request in self.desk.waiting.values() if request.key == usual)

    def refuse_elsewhere(self) -> bool:
        """Refuse sites that are elsewhere than most; return whether there were any. If two groups
        are of equal size, nobody can tell which is wrong: all are refused.
        """
        keys = {site: request.key for site, request in self.desk.waiting.items()}
        if len(set(keys.values())) == 1:
            return False
        usual = most_common(keys)
        for site, key in keys.items():
            if key == usual:
                continue
            elsewhere = ", ".join(sorted(set(keys.values()) - {key}))
            self.refuse(
                site,
                f"expected all sites at the same point, found it at {key} and others at {elsewhere}; "
                "do all have the same federation.yaml?",
            )
        return True


def _odd(error: Exception) -> RunError:
    """Turn an error that a message which nobody would send caused into a refusal."""
    return RunError(
        f"expected a message of a site, found one that cannot be one ({type(error).__name__})"
    )
