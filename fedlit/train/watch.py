"""Whether clients do in their first epoch what their authors think that they do."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import torch
from torch import Tensor

from fedlit.client import FederatedClient

__all__ = ["Watch"]

_log = logging.getLogger(__name__)


class Watch:
    """Looks at each client's steps until one has changed a parameter and one has told a loss, and says at the end of
    the client's first epoch what none of them did. It reads, and changes nothing.

    Steps are looked at, not the epoch as a whole: in between an exchange may change what the client itself does not.
    """

    def __init__(self) -> None:
        self._before: dict[str, list[Tensor]] = {}
        self._stepped: dict[str, FederatedClient] = {}
        self._changed: set[str] = set()
        self._told: set[str] = set()
        self._done: set[str] = set()

    def before(self, name: str, client: FederatedClient) -> None:
        """A step of a client begins at whose end its optimizers step."""
        if name not in self._done and name not in self._changed:
            # for most clients in their very first step alone
            self._before[name] = [parameter.detach().clone() for parameter in client.parameters()]

    def after(self, name: str, client: FederatedClient) -> None:
        """A step has been taken."""
        if name in self._done:
            return
        self._stepped[name] = client
        if not client.skipped:
            self._told.add(name)
        before = self._before.pop(name, None)
        if before is not None and not all(map(torch.equal, before, client.parameters())):
            self._changed.add(name)

    def report(self, epoch: int) -> None:
        """An epoch has ended: say, once, what clients whose first one it was did not do; a line for each class.

        Args:
            epoch: from 0.
        """
        said: dict[str, list[str]] = {}
        for name, client in self._stepped.items():
            if name not in self._done and (line := self._problem(name, client)):
                said.setdefault(line, []).append(name)
        for line, names in said.items():
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            _log.warning("client %s%s: in epoch %d %s", ", ".join(map(repr, names[:3])), more, epoch + 1, line)
        self._done.update(self._stepped)
        self._stepped.clear()

    def _problem(self, name: str, client: FederatedClient) -> str:
        if not client.takes_steps:
            return ""
        kind = type(client).__name__
        if not any(True for _ in client.parameters()):
            return ""  # it learns otherwise
        silent, unchanged = name not in self._told, name not in self._changed
        if silent and client.automatic_optimization:
            return f"{kind}.training_step returned None in every step, so that nothing was learnt; return the loss"
        if unchanged and not client.automatic_optimization:
            return (
                f"{kind} changed none of its parameters: automatic_optimization is False, so that training_step has to "
                "descend; call self.descend(loss, optimizers, ...) there, or leave automatic_optimization as it is"
            )
        if silent:
            return (
                f"{kind}.training_step returned None in every step, so that no train/loss is logged and rules are told "
                "of no steps; return the loss, detached"
            )
        if unchanged:
            return f"{kind} changed none of its parameters: {_why_unchanged(client)}"
        return ""


def _why_unchanged(client: FederatedClient) -> str:
    if not client._optimizers:
        return "configure_optimizers gave no optimizer; return one"
    held = [parameter for own in client._optimizers for group in own.param_groups for parameter in group["params"]]
    if not _any_of(client.parameters(), held):
        return "configure_optimizers gave optimizers of other tensors; make them of self.parameters()"
    if not any(parameter.requires_grad for parameter in held):
        return "requires_grad is False for all that its optimizers hold; set it to True for what shall be trained"
    if not any(group["lr"] for own in client._optimizers for group in own.param_groups):
        return "its learning rate is 0; set model.optimizer, or model.scheduler, to another if that is not meant"
    return "its loss has no gradient for them, or one of 0; look at what training_step returns"


def _any_of(tensors: Iterable[Tensor], among: Iterable[Tensor]) -> bool:
    known = {id(own) for own in among}
    return any(id(own) in known for own in tensors)
