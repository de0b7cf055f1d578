"""How a coordinator reaches its sites, whatever carries the bytes."""

from __future__ import annotations

import queue
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fedlit.errors import RunError
from fedlit.institutions.courier import MOST, Courier

__all__ = ["Line", "LocalLine"]


class Line(Protocol):
    """Questions to sites, and their answers. A question that is lost is asked again by the line itself; an answer may
    come twice, and one to a question whose place another took may come late.
    """

    def sites(self) -> frozenset[str]:
        """The sites that are there now, by the name that their key was registered with."""

    def ask(self, site: str, content: bytes) -> None:
        """Put a question to a site. One is outstanding at most: a new one takes the place of the old.

        Args:
            site: whether it is there or not.
            content: the question.
        """

    def answers(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """The answers that came.

        Args:
            timeout: seconds to wait for the first.

        Returns:
            (site, answer) in the order in which they came; in place of an answer that is longer than allowed, or none
            of fedlit, what is wrong with it.
        """


class LocalLine:
    """Speaks to sites' processes on this machine over their Unix sockets, without a network: for trials.

    Args:
        sockets: by site.
        most: bytes of an answer.
    """

    def __init__(self, sockets: Mapping[str, Path], most: int = MOST) -> None:
        self._answers: queue.SimpleQueue[tuple[Any, bytes | RunError]] = queue.SimpleQueue()
        self._couriers = {site: Courier(path, self._answers, most) for site, path in sockets.items()}

    def sites(self) -> frozenset[str]:
        """See :class:`Line`."""
        return frozenset(site for site, courier in self._couriers.items() if courier.there())

    def ask(self, site: str, content: bytes) -> None:
        """See :class:`Line`."""
        self._couriers[site].ask(site, content)

    def answers(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """See :class:`Line`."""
        found: list[tuple[str, bytes | RunError]] = []
        while True:
            try:
                site, answer = self._answers.get(timeout=0 if found else timeout)
            except queue.Empty:
                return found
            found.append((site, answer))

    def close(self) -> None:
        """Ask no more."""
        for courier in self._couriers.values():
            courier.close()
