"""Numbers in float64, on devices that have it and on those that do not."""

from __future__ import annotations

import torch
from torch import Tensor

_WITHOUT_FLOAT64 = frozenset({"mps"})
"""The types of devices that have no float64: Apple's GPUs."""


def widest(device: torch.device) -> torch.dtype:
    """Return the widest type of floating-point numbers that a device has.

    Example:
        >>> widest(torch.device("cuda")), widest(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    if device.type in _WITHOUT_FLOAT64:
        return torch.float32
    return torch.float64


def in_double(tensor: Tensor) -> Tensor:
    """Return a tensor as float64, where it is; on the CPU if its device has no float64. A device
    that has it is not synchronised.

    Example:
        >>> in_double(torch.ones(2))
        tensor([1., 1.], dtype=torch.float64)
    """
    if widest(tensor.device) != torch.float64:
        return double_on_cpu(tensor)
    return tensor.double()


def double_on_cpu(tensor: Tensor) -> Tensor:
    """Return a tensor as float64 on the CPU, for what is computed or wanted there. It is moved
    before it is converted.

    Example:
        >>> double_on_cpu(torch.ones(2))
        tensor([1., 1.], dtype=torch.float64)
    """
    return tensor.cpu().double()
