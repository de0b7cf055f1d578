"""The coordinator's line to its sites: Flower's Grid, which carries questions to nodes."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import httpx
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.run import Run, RunNotRunningException

from fedlit.errors import RunError
from fedlit.institutions.extra import Lost
from fedlit.institutions.flower.pieces import LIFE, packed, put_together, unpacked

LOST = (RunNotRunningException, httpx.HTTPError, httpx.StreamError)
"""The errors that the coordinator gets if the SuperLink or its run is gone; starting again may
help."""

_FAST = 0.02
_SLOW = 0.5
_RESEND = 2.0


def open_grid(address: str, run: int, token: str, most: int) -> Grid:
    """Return the coordinator's connection to the SuperLink, which takes the place of Flower's
    ServerApp.

    Args:
        address: ``HOST:PORT`` of the SuperLink on this machine.
        run: the number of the run, as :meth:`Link.begin` returned it.
        token: the token of the run, as :meth:`Link.begin` returned it.
        most: the largest number of bytes of an answer.
    """
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid, http_grid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = run
    TaskIdentity.node_id = 1
    TaskIdentity.task_id = 0
    # an answer is announced before its pieces are there: Flower would wait a second in each round
    http_grid.pull_objects = partial(http_grid.pull_objects, initial_backoff=0.02)  # type: ignore[attr-defined]
    http_grid.inflate_object_from_contents = partial(put_together, most=most)  # type: ignore[attr-defined]
    grid = HttpGrid(address, insecure=True, token=token)
    # it is on this machine, and started again where it is killed
    grid._retry_invoker.max_time = 3.0
    grid.set_run(Run.create_empty(run))
    return grid


@contextmanager
def _lost() -> Iterator[None]:
    """Raise errors of :data:`LOST` as :class:`~fedlit.institutions.extra.Lost`."""
    try:
        yield
    except LOST as error:
        raise Lost(str(error)) from error


@dataclass
class _Delivery:
    """A reply on its way to a site.

    Attributes:
        content: the reply.
        due: the time before which it is not sent, as :func:`time.monotonic` has it.
        message: the name of Flower's message that carries it; empty if it is not under way.
        since: since when the node that it was sent to is there.
    """

    content: bytes
    due: float = 0.0
    message: str = ""
    since: str = ""


class FlowerLine:
    """See :class:`~fedlit.institutions.serving.line.Line`. A site has the name that its key was
    registered with, whatever its messages claim. Flower's messages go to nodes, which answer them:
    a reply is a message to the site's node, and the answer to it is the site's next request.

    Args:
        grid: the Grid of Flower, for a run that has begun.
        most: the largest number of bytes of an answer.
    """

    def __init__(self, grid: Grid, most: int) -> None:
        self._grid = grid
        self._most = most
        self._deliveries: dict[str, _Delivery] = {}
        """Maps each site to the reply that it has not answered yet."""

    def _nodes(self) -> dict[str, tuple[int, str]]:
        """Map each site that is there to its node, and since when that is there."""
        return {
            node.name: (node.node_id, node.last_activated_at)
            for node in self._grid.get_nodes()
            if node.name
        }

    @_lost()
    def sites(self) -> frozenset[str]:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        return frozenset(self._nodes())

    @_lost()
    def reply(self, site: str, content: bytes) -> None:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        self._deliveries[site] = _Delivery(content)
        self._push(self._nodes())

    @_lost()
    def requests(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        end = time.monotonic() + timeout
        wait = _FAST
        pushed_at = 0.0
        while True:
            if time.monotonic() - pushed_at > _SLOW:
                self._push(self._nodes())
                pushed_at = time.monotonic()
            requests = self._pull()
            remaining = end - time.monotonic()
            if requests or remaining <= 0:
                return requests
            time.sleep(min(wait, remaining))
            wait = min(wait * 1.2, _SLOW)

    def _push(self, nodes: dict[str, tuple[int, str]]) -> None:
        """Send what is due to the nodes that are there. It is sent again if a node has come back,
        because the node has forgotten it.
        """
        for site, delivery in self._deliveries.items():
            if site not in nodes:
                continue
            node, since = nodes[site]
            under_way = delivery.message and delivery.since == since
            if under_way or delivery.due > time.monotonic():
                continue
            message = Message(packed(delivery.content), node, "query", ttl=LIFE)
            for name in filter(None, self._grid.push_messages([message])):
                delivery.message = name
                delivery.since = since
            delivery.due = time.monotonic() + _RESEND

    def _pull(self) -> list[tuple[str, bytes | RunError]]:
        """Return the answers of nodes that have come."""
        sites = {
            delivery.message: site
            for site, delivery in self._deliveries.items()
            if delivery.message
        }
        requests: list[tuple[str, bytes | RunError]] = []
        for answer in self._grid.pull_messages(list(sites)) if sites else ():
            site = sites.get(answer.metadata.reply_to_message_id)
            if site is None:
                continue
            if answer.has_error():
                # The node is away, or the question's time is over: it is sent again.
                self._deliveries[site].message = ""
                self._deliveries[site].due = time.monotonic() + _RESEND
                continue
            del self._deliveries[site]
            requests.append((site, self._content_of(answer)))
        return requests

    def _content_of(self, answer: Message) -> bytes | RunError:
        """Return the request in an answer, or why it cannot be one."""
        try:
            content = unpacked(answer.content)
        except RunError as error:
            return error
        if len(content) > self._most:
            return RunError(
                f"expected an answer of at most {self._most} bytes, found {len(content)}"
            )
        return content
