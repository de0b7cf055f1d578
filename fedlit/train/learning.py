"""Whether clients learn: names those whose loss is not finite, and those that never step."""

import logging
import math
from collections.abc import Mapping

from fedlit.client import FederatedClient
from fedlit.show.text import shorten

_log = logging.getLogger(__name__)


class Learning:
    """Notes which clients of a process have learnt, and warns of those that have not.

    Attributes:
        trained: the names of the clients that had a batch.
        stepped: the names of those whose optimizers have stepped.
    """

    def __init__(self) -> None:
        self.trained = set[str]()
        self.stepped = set[str]()
        self._diverged = set[str]()
        self._judged = set[str]()  # those whose first epoch was looked at
        self._idle_clients: dict[str, list[str]] = {}  # by problem, in this epoch

    def judge(
        self, name: str, client: FederatedClient, means: Mapping[str, float], epoch: int
    ) -> None:
        """Judge a client at the end of an epoch.

        Args:
            name: the name of the client.
            client: the client.
            means: the means of what it logged, by tag.
            epoch: the number of the epoch, from 0.
        """
        problem = self._idle(name, client, "loss" in means)
        if problem:
            self._idle_clients.setdefault(problem, []).append(name)
        if not math.isfinite(means.get("loss", 0.0)) and name not in self._diverged:
            self._diverged.add(name)
            _log.warning(
                "client %r: its training loss is not finite since epoch %d", name, epoch + 1
            )

    def report(self, epoch: int) -> None:
        """Warn of the clients that have learnt nothing in this epoch, their first."""
        for problem, names in self._idle_clients.items():
            _log.warning("client %s: in epoch %d %s", shorten(names, 3), epoch + 1, problem)
        self._idle_clients = {}

    def _idle(self, name: str, client: FederatedClient, has_loss: bool) -> str:
        """Return why a client has learnt nothing in the first epoch that it was trained in; empty
        if it has.
        """
        if name in self._judged or name not in self.trained:
            return ""
        self._judged.add(name)
        if not client.takes_steps or not any(True for _ in client.parameters()):
            return ""
        kind = type(client).__name__
        if not has_loss:
            return (
                f"{kind}.training_step returned None in every step; return the loss (detached, "
                "if it descends)"
            )
        if name in self.stepped:
            return ""
        return (
            f"{kind} took no optimizer step; return optimizers from configure_optimizers and, "
            "where automatic_optimization is False, call self.descend(loss, optimizers, ...) in "
            "training_step"
        )
