"""A state of a coordinator: the requests that it accepts, what it does with each, and which state
follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from fedlit.errors import RunError
from fedlit.institutions.serving.requests import Kind, Request

Handle = Callable[[Request], None]
"""Replies to a request, or keeps it until its reply is known."""

_HINTS = {Kind.END: "is trainer.max_epochs 0 there?"}
_HINT = "do all sites run the same version, with the folders that they began with?"


class State(ABC):
    """A state of a coordinator."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the state, for messages."""

    @property
    @abstractmethod
    def accepts(self) -> Mapping[Kind, Handle]:
        """Maps each kind of request that the state accepts to what it does with it."""

    @abstractmethod
    def advance(self) -> State:
        """Do what is due once all sites have come, and return the state that follows."""

    def check(self, request: Request) -> None:
        """Refuse a request that the state does not accept.

        Raises:
            RunError: it is of another kind; the message names the state and the request.
        """
        if request.kind not in self.accepts:
            raise self.unexpected(request)

    def unexpected(self, request: Request) -> RunError:
        """Return the error for a request that the state does not accept."""
        expected = ", ".join(self.accepts) or "no request"
        hint = _HINTS.get(request.kind, _HINT)
        return RunError(
            f"{self.name}: expected {expected}, found {request.kind} ({request.key}); {hint}"
        )

    def take(self, request: Request) -> None:
        """Reply to a request that was checked, or keep it until its reply is known.

        Raises:
            FedlitError: the request cannot be replied to; its sender is told why.
        """
        self.accepts[request.kind](request)
