"""Scores the outputs of homogeneous clients in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlit.client.client import FederatedClient, has_hook
from fedlit.data.loader import Batch
from fedlit.tasks.base import Task

SAME_FOR_ALL = ("score", "predict", "probabilities", "loss")
"""Methods that a client must have as FederatedClient defines them."""


class OutputScorer:
    """Computes the predictions and losses of clients that share a stack. They agree with those of
    each client's ``score`` to float32 tolerance.

    Args:
        clients: the clients of the stack.
    """

    def __init__(self, clients: Sequence[FederatedClient]) -> None:
        self._clients = clients
        self._task = clients[0].spec.task
        inherits = all(map(_scores_as_defined, clients))
        self._in_one_pass = inherits and type(self._task).row_losses is not Task.row_losses
        groups: dict[tuple[object, ...], list[int]] = {}
        for position, client in enumerate(clients):
            task = client.spec.task
            key = (type(task), task.classes, task.fingerprint)
            groups.setdefault(key, []).append(position)
        self._groups = list(groups.values())  # positions of clients whose tasks predict alike

    def __call__(self, logits: Tensor, batches: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        """Return (predictions, loss) of each client for its batch.

        Args:
            logits: (clients, n, outputs), or (clients, n, members, outputs) of ensembles; what is
                behind the rows of a client with fewer than n does not count.
            batches: the clients' batches.
        """
        plain = logits.dim() == 3 and all(
            batch.weight is None and batch.y.dim() == 1 for batch in batches
        )
        if not (plain and self._in_one_pass):
            return self._one_by_one(logits, batches)
        lengths = [len(batch.y) for batch in batches]
        predictions = self._predictions(logits)
        if len(set(lengths)) > 1:
            parts = zip(predictions, lengths, strict=True)
            predictions = [of_client[:length] for of_client, length in parts]
        return list(zip(predictions, self._losses(logits, batches), strict=True))

    def _one_by_one(self, logits: Tensor, batches: Sequence[Batch]) -> list[tuple[Tensor, Tensor]]:
        return [
            client.score(outputs[: len(batch.y)], batch)
            for client, outputs, batch in zip(self._clients, logits, batches, strict=True)
        ]

    def _predictions(self, logits: Tensor) -> list[Tensor]:
        """Return each client's predictions (n, width)."""
        if len(self._groups) == 1:
            return _predicted(self._task, logits)
        predictions = [logits] * len(self._clients)
        for positions in self._groups:
            task = self._clients[positions[0]].spec.task
            of_group = _predicted(task, logits[positions])
            for position, of_client in zip(positions, of_group, strict=True):
                predictions[position] = of_client
        return predictions

    def _losses(self, logits: Tensor, batches: Sequence[Batch]) -> list[Tensor]:
        """Return each client's mean loss over rows whose label it knows; NaN if there are none."""
        y = torch.nn.utils.rnn.pad_sequence([batch.y for batch in batches], batch_first=True)
        lengths = torch.tensor([len(batch.y) for batch in batches], device=y.device)
        labelled = self._task.known(y.flatten()).view(y.shape)
        labelled &= torch.arange(y.shape[1], device=y.device) < lengths[:, None]
        target = y.masked_fill(~labelled, 0).flatten()
        losses = self._task.row_losses(logits.flatten(0, 1), target)
        assert losses is not None, "the task has them"
        counted = torch.where(labelled, losses.view(y.shape), 0.0)
        return list((counted.sum(1) / labelled.sum(1)).unbind())


def _scores_as_defined(client: FederatedClient) -> bool:
    return not any(has_hook(client, name) for name in SAME_FOR_ALL)


def _predicted(task: Task, logits: Tensor) -> list[Tensor]:
    """Return the predictions (n, width) of clients, given outputs (clients, n, outputs)."""
    predictions = task.predict(logits.flatten(0, 1))
    return list(predictions.view(*logits.shape[:2], -1).unbind())
