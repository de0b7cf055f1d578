"""What comes out of a round: what clients receive, who was left out, and what is logged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedlit.exchange.guard import Verdict
from fedlit.names import Clustering
from fedlit.sharing import State


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round.

    Attributes:
        received: maps each client of this process to its named tensors.
        lost: the names of the clients whose update was not finite, in all processes.
        void: the names of the clients whose update cannot be summed under masks, in all processes.
            If there are any, nothing was aggregated: ``received`` is what clients received last, to
            which they go back.
        records: the values to log, by key (``<client>/train/drift`` of the clients of this process,
            ``train/drift``, …).
        bytes: the bytes that travelled, from and to all clients.
        clustering: which clients belong together, if the rule finds clusters and runs in this
            process.
        verdict: the findings of the guard about all clients, or about those of this process.
    """

    received: Mapping[str, State]
    lost: tuple[str, ...] = ()
    records: Mapping[str, Tensor | float] = field(default_factory=dict)
    bytes: int = 0
    clustering: Clustering | None = None
    verdict: Verdict = field(default_factory=Verdict)
    void: tuple[str, ...] = ()

    def to_message(self, clients: Collection[str]) -> dict[str, Any]:
        """Return the message to some clients, in a form that :func:`fedlit.exchange.wire.pack`
        accepts.
        """
        return {
            "received": {name: state for name, state in self.received.items() if name in clients},
            "lost": self.lost,
            "records": {key: float(value) for key, value in self.records.items()},
            "bytes": self.bytes,
            "verdict": vars(self.verdict),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Outcome:
        """Restore an outcome from a message of :meth:`to_message`. Clusters are not part of it."""
        lost = tuple(message["lost"])
        verdict = Verdict(**message["verdict"])
        return cls(**{**message, "lost": lost, "verdict": verdict})
