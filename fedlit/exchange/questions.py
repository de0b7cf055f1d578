"""What an exchange asks of a client for a rule that wants more than its update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.func import functional_call

from fedlit.client.build import build_client
from fedlit.client.client import FederatedClient
from fedlit.exchange.function import Part, entering, part_of
from fedlit.sharing import State, named_tensors
from fedlit.train.loop import FederatedLoop

__all__ = ["Asked", "bytes_of"]

ROWS = 4096
"""Rows that are evaluated at once."""


def bytes_of(state: State) -> int:
    """What a state weighs on its way.

    Example:
        >>> bytes_of({"w": torch.zeros(2, 3)})
        24
    """
    return sum(value.numel() * value.element_size() for value in state.values())


class Asked:
    """One client as a rule can ask it (:class:`~fedlit.exchange.rule.Party`).

    Args:
        loop: whose client it is.
        client: it.
        parameters: names of its federated parameters.

    Attributes:
        bytes: that the questions and answers took.
    """

    def __init__(self, loop: FederatedLoop, client: FederatedClient, parameters: Sequence[str]) -> None:
        self._loop, self._client, self._parameters = loop, client, parameters
        self.bytes = 0
        self._had: set[int] = set()

    def has(self, tensor: Tensor) -> bool:
        """Whether the client was asked about a tensor, and so has received it."""
        return tensor.data_ptr() in self._had

    def part(self) -> Part:
        """See :class:`~fedlit.exchange.rule.Party`; of the client as it was before training."""
        spec = self._client.spec
        return part_of(self._loop.fresh(spec), spec.num_features, self._parameters)

    def fresh(self, seed: int) -> State:
        """See :class:`~fedlit.exchange.rule.Party`."""
        drawn = named_tensors(build_client(self._loop.factory_of(self._client.spec), self._client.spec, seed))
        return {name: drawn[name].detach().to(self._loop.device) for name in self._client.federated}

    @torch.no_grad()
    def losses(self, states: Sequence[State]) -> Tensor:
        """See :class:`~fedlit.exchange.rule.Party`."""
        federated = self._client.federated
        asked = [{name: value for name, value in state.items() if name in federated} for state in states]
        self.bytes += sum(map(bytes_of, asked)) + 4 * len(asked)
        self._had |= {value.data_ptr() for state in asked for value in state.values()}
        rows = self._loop.data.train_loaders[self._client.spec.name].rows
        with self._evaluating():
            total = []
            for state in asked:
                parts = [
                    self._client.loss(functional_call(self._client, state, (x,)), y).double() * len(y)
                    for x, y in zip(rows.x.split(ROWS), rows.y.split(ROWS), strict=True)
                ]
                total.append(torch.stack(parts).sum() / len(rows))
        return torch.stack(total).float()

    @torch.no_grad()
    def input_range(self) -> Tensor:
        """See :class:`~fedlit.exchange.rule.Party`."""
        rows = self._loop.data.train_loaders[self._client.spec.name].rows
        with self._evaluating():
            found = [entering(self._client, self._parameters, x) for x in rows.x.split(ROWS)]
        both = torch.stack([torch.cat(found).amin(0), torch.cat(found).amax(0)])
        self.bytes += both.numel() * both.element_size()
        return both

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was = {module: module.training for module in self._client.modules()}
        self._client.eval()
        try:
            yield
        finally:
            for module, training in was.items():
                module.training = training
