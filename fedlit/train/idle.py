"""A warning about clients that train nothing in their first epoch."""

import logging

from fedlit.client import FederatedClient

_log = logging.getLogger(__name__)


class IdleClients:
    """Finds clients that returned no loss, or whose optimizers took no step, in their first epoch."""

    def __init__(self) -> None:
        self._trained: dict[str, FederatedClient] = {}
        self._with_loss: set[str] = set()
        self._with_step: set[str] = set()
        self._reported: set[str] = set()

    def observe_optimizers(self, name: str, client: FederatedClient) -> None:
        """Note when one of the client's optimizers takes a step. A stack takes steps in their place."""
        for optimizer in client._optimizers:
            optimizer.register_step_post_hook(lambda *_: self._with_step.add(name))

    def observe_batch(self, name: str, client: FederatedClient) -> None:
        """Note whether the client's training step has returned a loss."""
        if name not in self._reported:
            self._trained[name] = client
            if not client.skipped:
                self._with_loss.add(name)
            if client.stacked:
                self._with_step.add(name)

    def warn(self, epoch: int) -> None:
        """Warn once about the clients whose first epoch has ended.

        Args:
            epoch: the number of the epoch, from 0.
        """
        idle: dict[str, list[str]] = {}
        for name, client in self._trained.items():
            if client.takes_steps and any(True for _ in client.parameters()) and (problem := self._problem(name)):
                idle.setdefault(f"{type(client).__name__}{problem}", []).append(name)
        for problem, names in idle.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            _log.warning("client %s%s: in epoch %d %s", ", ".join(map(repr, names[:3])), more, epoch + 1, problem)
        self._reported.update(self._trained)
        self._trained.clear()

    def _problem(self, name: str) -> str:
        if name not in self._with_loss:
            return ".training_step returned None in every step; return the loss (detached, if the client descends)"
        if name not in self._with_step:
            return (
                " took no optimizer step; return optimizers from configure_optimizers and, where "
                "automatic_optimization is False, call self.descend(loss, optimizers, ...) in training_step"
            )
        return ""
