"""The desk of a coordinator: requests that wait for their reply, and which sites are there, away or
refused.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping

from fedlit.exchange.wire import pack
from fedlit.institutions.messages import MOST
from fedlit.institutions.plain import Message
from fedlit.institutions.serving.line import Line
from fedlit.institutions.serving.requests import Request

_log = logging.getLogger(__name__)


class Desk:
    """Keeps requests until their reply is known, and sends replies.

    Args:
        line: the connection to the sites.
        sites: all sites of the federation.

    Attributes:
        waiting: maps each site to its request that will be replied to when all sites have come.
        away: the sites that the others do not wait for again.
        refused: maps each site to why its last message was refused.
        silent: maps each site to the number of rounds that were lost because it did not answer the
            rule.
        scores: maps each site to the scores that it last sent, if it agreed to send any.
        bytes: the bytes of all messages, both ways, since the coordinator was started.
        most: the largest number of bytes of a request.
        since: when the others began to wait, as :func:`time.monotonic` has it.
    """

    def __init__(self, line: Line, sites: Collection[str]) -> None:
        self.line = line
        self.sites = sites
        self.waiting: dict[str, Request] = {}
        self.away: set[str] = set()
        self.refused: dict[str, str] = {}
        self.silent = Counter[str]()
        self.scores: dict[str, object] = {}
        self.bytes = 0
        self.most = MOST
        self.since = time.monotonic()
        self._open: dict[str, str] = {}
        """Maps each site to the key of its request that has no reply yet."""
        self._sent = dict.fromkeys(sites, self.since)

    @property
    def waited(self) -> float:
        """For how many seconds the others have been waiting."""
        return time.monotonic() - self.since

    def why(self, site: str) -> str:
        """Return why there is no answer of a site."""
        if site in self.refused:
            return self.refused[site]
        return "it has not answered" if site in self.line.sites() else "it is not there"

    # ------------------------------------------------------------------ requests

    def keep(self, request: Request) -> None:
        """Keep a request until all sites have come."""
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting[request.site] = request
        self.open(request)

    def open(self, request: Request) -> None:
        """Note that a site waits for the reply to a request."""
        self._open[request.site] = request.key

    def is_open(self, site: str) -> bool:
        """Return whether a site waits for a reply."""
        return site in self._open

    def close(self, site: str) -> None:
        """Expect nothing of a site that waits for a reply: it gets none, and is asked where it is
        if it is there.
        """
        self._open.pop(site, None)

    def forget(self, site: str) -> None:
        """Forget the request of a site, which is asked for it again if it stays silent."""
        self.waiting.pop(site, None)
        self.close(site)

    # ------------------------------------------------------------------ replies

    def send(self, site: str, message: Message, key: str = "") -> None:
        """Send a message to a site.

        Args:
            site: the site.
            message: the message.
            key: the key of the request to which it replies. An empty key asks the site to repeat
                its request.
        """
        content = pack({**message, "to": key})
        self._sent[site] = time.monotonic()
        self.bytes += len(content)
        self.line.reply(site, content)

    def send_to_all(self, message: Message, key: str = "") -> None:
        """Send the same message to all sites."""
        for site in self.sites:
            self.send(site, message, key)

    def reply(self, request: Request, reply: Message) -> None:
        """Reply to a request that is not kept."""
        self.send(request.site, {"reply": reply}, request.key)

    def put(self, site: str, question: Message) -> None:
        """Send a question to a site that waits for a reply."""
        self.send(site, question, self._open.pop(site))

    def reply_to_all(self, replies: Mapping[str, Message]) -> None:
        """Reply to the requests that were kept. A site whose request came too late for that is
        asked where it is.
        """
        self.waiting = {}
        self.since = time.monotonic()
        for site, reply in replies.items():
            self.send(site, {"reply": reply}, self._open.pop(site, ""))
        for site in list(self._open):
            del self._open[site]
            self.send(site, {})

    def refuse(self, site: str, reason: str, *, left_out: bool = False) -> None:
        """Refuse a message and tell its sender why; the other sites go on.

        Args:
            site: the sender.
            reason: why it is refused.
            left_out: whether training began without the site. Why it was left out then says more
                than this refusal.
        """
        reason = f"site {site}: {reason}"
        if self.refused.get(site) != reason:
            _log.warning("%s; refused", reason)
        if not left_out or site not in self.refused:
            self.refused[site] = reason
        self.forget(site)
        self.send(site, {"failed": reason})

    def repeat(self, done: Collection[str], seconds: float) -> None:
        """Ask sites that have been silent for long where they are.

        Args:
            done: the sites at which training is over.
            seconds: for how long they have been silent.
        """
        now = time.monotonic()
        for site in self.sites:
            if not self.is_open(site) and site not in done and now - self._sent[site] > seconds:
                self.send(site, {})
