"""The batches of the clients of a stack, as one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedlit.data.loader import Batch
from fedlit.devices import to_device
from fedlit.stacks import one_after_another


def together(batches: Sequence[Batch]) -> Batch:
    """Return batches one after another. If their lengths differ, the shorter ones end in rows of
    zeros, whose weight is 0.

    Args:
        batches: one for each client, whose rows all have the same weight.

    Example:
        >>> short, long = (Batch(torch.ones(n, 2), torch.ones(n)) for n in (1, 3))
        >>> together([short, long]).weight
        tensor([1., 0., 0., 1., 1., 1.])
    """
    lengths = tuple(len(batch.y) for batch in batches)
    x = [batch.x for batch in batches]
    y = [batch.y for batch in batches]
    if len(set(lengths)) == 1:
        return Batch(one_after_another(x), one_after_another(y))
    weights = _weights(lengths, x[0].device)
    return Batch(_padded(x), _padded(y), weights)


def _padded(tensors: list[Tensor]) -> Tensor:
    """Return tensors one after another, the shorter ones with zeros at their end."""
    return pad_sequence(tensors, batch_first=True).flatten(0, 1)


@lru_cache(maxsize=64)
def _weights(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return 1 for each row and 0 for each row of zeros, client after client."""
    row = torch.arange(max(lengths))
    return to_device((row < torch.tensor(lengths)[:, None]).float().flatten(), device)
