"""The connection of a coordinator to its sites, whatever carries it."""

from __future__ import annotations

from typing import Protocol

from fedlit.errors import RunError


class Line(Protocol):
    """The connection to the sites. A request may arrive twice, or late. The line resends a reply
    that is lost.

    All methods raise :class:`~fedlit.institutions.extra.Lost` if the line is gone.
    """

    def sites(self) -> frozenset[str]:
        """Return the sites that are there now, by the names that their keys were registered
        with.
        """

    def reply(self, site: str, content: bytes) -> None:
        """Send a reply to a site, which answers with its next request. A new reply replaces one
        that is on its way.

        Args:
            site: the site, which may be away.
            content: the reply.
        """

    def requests(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """Return the requests that have come.

        Args:
            timeout: the time to wait for the first request, in seconds.

        Returns:
            (site, request) in the order in which they came. A request that is longer than allowed,
            or not one of fedlit, is replaced by its error.
        """
