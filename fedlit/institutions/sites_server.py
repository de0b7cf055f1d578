"""The coordinator's side of a federation across institutions: one rule, and sites that may leave
and come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedlit.errors import FedlitError, RunError
from fedlit.institutions.coordinator_server import CoordinatorServer
from fedlit.institutions.extra import Lost
from fedlit.institutions.journal import Journal
from fedlit.institutions.plain import Facts, Message
from fedlit.institutions.serving.hub import POLL, Hub
from fedlit.institutions.serving.line import Line
from fedlit.institutions.serving.patience import Patience
from fedlit.institutions.serving.states import Over, first_state
from fedlit.privacy.settings import Privacy


def no_report(hub: Hub) -> None:
    """Report nothing."""


def no_meeting(facts: Facts) -> None:
    """Accept all facts."""


class SitesServer(Hub):
    """Applies the rule to what sites send, and replies to each request under its key.

    What it does with a request depends on its state (see
    :mod:`fedlit.institutions.serving.states`). A request that the state does not accept is refused
    with one message, and the other sites go on.

    Args:
        server: applies the rule.
        line: the connection to the sites.
        journal: what was sent and replied before.
        settings: the coordinator's own settings: key → value; every site must have the same.
        patience: when a round goes on without a site.
        report: called with this server, to report how far the federation is.
        privacy: what protects sites.
        rounds: the number of rounds, if it is known; otherwise 0.
        meet: raises an error if clients cannot agree on what they send of their columns, by client.
    """

    def __init__(
        self,
        server: CoordinatorServer,
        line: Line,
        journal: Journal,
        settings: Mapping[str, Any],
        patience: Patience,
        report: Callable[[Hub], None] = no_report,
        privacy: Privacy | None = None,
        rounds: int = 0,
        meet: Callable[[Facts], object] = no_meeting,
    ) -> None:
        super().__init__(
            server, line, journal, settings, patience, report, privacy or Privacy(), rounds, meet
        )
        self.state = first_state(self)

    def advance(self) -> None:
        """Do what is due, if all sites have come."""
        self.state = self.state.advance()

    def run(self) -> None:
        """Serve until all sites are done.

        Raises:
            FedlitError: the federation cannot continue; all sites are informed.
            Lost: the line is gone; a new server, with a new line, continues where this one was.
        """
        try:
            self.desk.send_to_all({})
            self.advance()
            while not isinstance(self.state, Over):
                self.pulse()
                self.advance()
            self._end({"reply": {}}, "done")
        except Lost:
            raise
        except FedlitError as error:
            self._end({"failed": str(error)})
            raise
        except Exception as error:
            self._end(
                {"failed": "the coordinator failed; look at its messages, and let it start again"}
            )
            raise RunError(f"the coordinator failed: {type(error).__name__}: {error}") from error

    def _end(self, message: Message, key: str = "") -> None:
        """Send a last message to all sites, and give the line a moment to carry it."""
        self.desk.send_to_all(message, key)
        self.desk.line.requests(POLL)
