"""Computes clients of the same structure as one: their tensors are stacked, and their matrix
products are batched.

A small network's step is mostly the cost of starting its operations, not of their arithmetic; a
stack starts each operation once for all its clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.engine.layers import PlainNetwork, StackValues
from fedlit.engine.outputs import OutputScorer
from fedlit.engine.stacked_optimizer import StackedOptimizer
from fedlit.engine.views import Watch, join
from fedlit.engine.vmapped import VmappedNetwork
from fedlit.seeding import Draws, draws_of
from fedlit.stacks import memory_of

MOST_PADDING = 2
"""How many times the clients' rows a stack may evaluate because batches differ in length."""


Seed = Callable[[], int]
"""Computes a seed. Few networks draw, and for thousands of clients this takes time."""


class Stack:
    """Several clients of the same structure, stepped and evaluated as one.

    Their parameters and buffers become views of stacked tensors, and so does the state of their
    optimizers: an exchange or a checkpoint reads and writes each client's tensors as before.

    Args:
        clients: clients that share a :func:`~fedlit.engine.stack_keys.stack_key`.
        compiled: whether compiled kernels may be used.
    """

    def __init__(
        self,
        clients: Sequence[FederatedClient],
        compiled: bool = False,
        tensors: tuple[dict[str, Tensor], dict[str, Tensor]] | None = None,
    ) -> None:
        self.clients = list(clients)
        self.network = network_of(clients[0], compiled)
        self.parameters, self.buffers = tensors or join(clients)
        for name, parameter in clients[0].named_parameters():
            self.parameters[name].requires_grad_(parameter.requires_grad)
        self._take_gradients()
        self._watch = Watch(self.clients)
        for client in clients:
            client.stacked = True
        self.optimizer = StackedOptimizer(self.clients, self.parameters)
        self._score = OutputScorer(self.clients)
        self._losses: list[Tensor] = []  # one for each step that was not reported

    def _take_gradients(self) -> None:
        """Take the gradients of batches that were accumulated before the clients were stacked."""
        parameters = [dict(client.named_parameters()) for client in self.clients]
        for name, stacked in self.parameters.items():
            gradients = [of_client[name].grad for of_client in parameters]
            if any(gradient is not None for gradient in gradients):
                zeros = torch.zeros_like(stacked[0], requires_grad=False)
                stacked.grad = torch.stack([zeros if g is None else g for g in gradients])

    def release(self) -> None:
        """Give each client separate tensors again, if it still has the stack's. The stack cannot be
        used afterwards.
        """
        self.report()
        stacked = (*self.parameters.values(), *self.buffers.values())
        shared = set(map(memory_of, stacked))
        for position, client in enumerate(self.clients):
            client.stacked = False
            stacked_ids = set(map(id, self._watch.tensors[position]))
            for name, parameter in client.named_parameters():
                accumulated = self.parameters[name].grad if id(parameter) in stacked_ids else None
                parameter.grad = None if accumulated is None else accumulated[position].clone()
            for tensor in (*client.parameters(), *client.buffers()):
                if memory_of(tensor) in shared:
                    tensor.data = tensor.data.clone()
        self.optimizer.separate()

    # ------------------------------------------------------------------ a step

    def step(
        self, rows: Batch, accumulate: int = 1, update: bool = True, seeds: Sequence[Seed] = ()
    ) -> None:
        """Take one step of every client.

        Args:
            rows: the clients' batches (see :func:`fedlit.engine.together.together`).
            seeds: compute the seed of each client's dropout in this step.
            accumulate: the number of batches per optimizer step.
            update: whether the optimizers step now.
        """
        x = rows.x.view(len(self.clients), -1, *rows.x.shape[1:])
        y = rows.y.view(len(self.clients), -1, *rows.y.shape[1:])
        generators: Draws = ()
        if self.network.draws:
            generators = draws_of([seed() for seed in seeds], x.device)
        weight = None
        if rows.weight is not None:
            weight = rows.weight.view(len(self.clients), -1)
        values = StackValues(self.parameters | self.buffers, generators, weight)
        losses = self.network.losses(x, y, values)
        # The sum's gradient with respect to each client is that of its own loss.
        total = losses.sum()
        if accumulate > 1:
            total = total / accumulate
        total.backward()
        self._losses.append(losses.detach())
        if update:
            self.optimizer.step()

    def report(self) -> None:
        """Record the losses of the steps since the last report with each client."""
        if not self._losses:
            return
        of_clients = torch.stack(self._losses, 1).unbind()
        self._losses = []
        for client, losses in zip(self.clients, of_clients, strict=True):
            client.log("loss", losses)

    @property
    def consistent(self) -> bool:
        """Whether the clients can still be stepped as one: their modules are as they were when they
        were stacked (:attr:`~fedlit.engine.views.Watch.as_stacked`), and their optimizers agree.
        """
        return self._watch.as_stacked and self.optimizer.consistent

    @property
    def replaced(self) -> list[FederatedClient]:
        """See :attr:`~fedlit.engine.views.Watch.replaced`."""
        return self._watch.replaced

    @property
    def scores_alike(self) -> bool:
        """Whether the clients can be scored as one, whatever their optimizers are."""
        return self._watch.as_stacked

    # ------------------------------------------------------------------ evaluation

    @torch.no_grad()
    def evaluate(self, batches: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Return the result of each client's ``evaluate`` for its batch. Shorter batches are
        padded, see :meth:`pads`.
        """
        x = torch.nn.utils.rnn.pad_sequence([batch.x for batch in batches], batch_first=True)
        values = StackValues(self.parameters | self.buffers)
        stacked_logits = self.network.outputs(x, values).contiguous()
        return self._score(stacked_logits, batches)

    def pads(self, lengths: Sequence[int]) -> bool:
        """Return whether batches of these lengths can be evaluated as one: the output of a row
        depends on no other row, and at most half of the rows are padding.
        """
        if len(set(lengths)) == 1:
            return True
        plain = isinstance(self.network, PlainNetwork)
        if not plain or max(lengths) * len(lengths) > MOST_PADDING * sum(lengths):
            return False
        return not any(module.training for module in self.clients[0].modules())


def network_of(client: FederatedClient, compiled: bool) -> PlainNetwork | VmappedNetwork:
    """Return what computes the network of a client and others like it: layer by layer where it can
    be, otherwise by ``vmap``.
    """
    return PlainNetwork.of_client(client) or VmappedNetwork(client, compiled)
