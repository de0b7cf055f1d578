"""A coordinator's line to its sites over Flower: messages that carry opaque bytes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fedlit.errors import RunError
from fedlit.institutions.courier import MOST
from fedlit.institutions.pieces import packed, unpacked

if TYPE_CHECKING:
    from flwr.serverapp import Grid

__all__ = ["FlowerLine"]

_FAST, _SLOW = 0.02, 0.5
_AGAIN = 2.0
_LIFE = 6 * 3600.0


class FlowerLine:
    """See :class:`~fedlit.institutions.line.Line`. A site is called what its key was registered as, whatever its
    messages say.

    Args:
        grid: Flower's, of a run that has begun.
        most: bytes of an answer.
    """

    def __init__(self, grid: Grid, most: int = MOST) -> None:
        self._grid, self._most = grid, most
        self._asked: dict[str, bytes] = {}  # questions under way
        self._sent: dict[str, tuple[str, str]] = {}  # site → (message, since when its node is there)
        self._due: dict[str, float] = {}

    def _nodes(self) -> dict[str, tuple[int, str]]:
        return {node.name: (node.node_id, node.last_activated_at) for node in self._grid.get_nodes() if node.name}

    def sites(self) -> frozenset[str]:
        """See :class:`~fedlit.institutions.line.Line`."""
        return frozenset(self._nodes())

    def ask(self, site: str, content: bytes) -> None:
        """See :class:`~fedlit.institutions.line.Line`."""
        self._asked[site] = content
        self._sent.pop(site, None)
        self._due[site] = 0.0
        self._push(self._nodes())

    def answers(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """See :class:`~fedlit.institutions.line.Line`."""
        end, wait, looked = time.monotonic() + timeout, _FAST, 0.0
        while True:
            if time.monotonic() - looked > _SLOW:
                self._push(self._nodes())
                looked = time.monotonic()
            found = self._pull()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(wait, left))
            wait = min(wait * 1.2, _SLOW)

    def _push(self, nodes: dict[str, tuple[int, str]]) -> None:
        """Send what is due to the nodes that are there; again where a node has come back, for it has forgotten."""
        from flwr.app import Message

        for site, content in self._asked.items():
            if site not in nodes:
                continue
            node, since = nodes[site]
            if site in self._sent and self._sent[site][1] == since:
                continue
            if self._due.get(site, 0.0) > time.monotonic():
                continue
            message = Message(packed(content), node, "query", ttl=_LIFE)
            for name in filter(None, self._grid.push_messages([message])):
                self._sent[site] = name, since
            self._due[site] = time.monotonic() + _AGAIN

    def _pull(self) -> list[tuple[str, bytes | RunError]]:
        waiting: dict[str, str] = {message: site for site, (message, _) in self._sent.items()}
        found: list[tuple[str, bytes | RunError]] = []
        for reply in self._grid.pull_messages(list(waiting)) if waiting else ():
            site = waiting.get(reply.metadata.reply_to_message_id)
            if site is None:
                continue
            self._sent.pop(site)
            if reply.has_error():  # its node is away, or the question's time is over: it is asked again
                self._due[site] = time.monotonic() + _AGAIN
                continue
            self._asked.pop(site)
            try:
                answer = unpacked(reply.content)
            except RunError as error:
                found.append((site, error))
                continue
            too_long = RunError(f"expected an answer of at most {self._most} bytes, found {len(answer)}")
            found.append((site, answer if len(answer) <= self._most else too_long))
        return found
