"""Weights of rows and classes, and means of rows and of an ensemble's members."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def weighted_mean(values: Tensor, weight: Tensor | None) -> Tensor:
    """Return the mean of values (n,), each of which counts as much as its weight.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([2.0, 1.0]))
        tensor(2.)
    """
    if weight is None:
        return values.mean()
    return (values * weight).sum() / weight.sum()


def mean_logit(logits: Tensor) -> Tensor:
    """Return the logits (n, outputs) of the mean over members of their probabilities: the logarithm
    of the mean σ(z), less that of the mean σ(−z).

    Args:
        logits: (n, members, outputs) float32.

    Example:
        >>> mean_logit(torch.tensor([0.25, 0.75]).logit().reshape(1, 2, 1)).sigmoid()
        tensor([[0.5000]])
    """
    positive = functional.logsigmoid(logits).logsumexp(1)
    negative = functional.logsigmoid(-logits).logsumexp(1)
    return positive - negative


def balanced(rows: Sequence[int]) -> Tensor:
    """Return weights by which all classes count equally: the inverse of each class's share, scaled
    to sum to the number of classes; 0 for a class without rows.

    Args:
        rows: the number of training rows of each class.

    Example:
        >>> balanced([30, 10, 0])
        tensor([0.5000, 1.5000, 0.0000])
    """
    count = torch.tensor(rows, dtype=torch.float32)
    present = count > 0
    inverse = torch.where(present, 1 / count.clamp_min(1), 0.0)
    return inverse * present.sum() / inverse.sum()
