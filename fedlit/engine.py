"""How an aligned step is executed. The plain engine is the reference: it equals a hand-written loop over clients,
bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedlit.data.loader import Batch

if TYPE_CHECKING:
    from fedlit.loop import FederatedLoop

__all__ = ["Engine", "PlainEngine"]


class Engine(ABC):
    """Executes aligned steps. Two engines agree to float32 tolerance; one engine with one thread count gives the
    same bits each time.
    """

    name: str

    @abstractmethod
    def step(self, loop: FederatedLoop, batches: Mapping[str, Batch], batch_idx: int) -> None:
        """Let every client take one step on its own batch (``loop.step_client`` is a client's step)."""


class PlainEngine(Engine):
    """One client after another, in the order of their names."""

    name = "plain"

    def step(self, loop: FederatedLoop, batches: Mapping[str, Batch], batch_idx: int) -> None:
        """See :class:`Engine`."""
        for name, client in loop.federation.items():
            loop.step_client(client, batches[name], batch_idx)
