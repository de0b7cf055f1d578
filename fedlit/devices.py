"""Devices that the program runs ahead of, such as GPUs: to read a value of theirs is to wait for all
that is under way.
"""

from __future__ import annotations

import torch
from torch import Tensor


def runs_ahead(device: torch.device) -> bool:
    """Return whether the program goes on while a device computes, until it reads a value.

    Example:
        >>> runs_ahead(torch.device("cuda")), runs_ahead(torch.device("cpu"))
        (True, False)
    """
    return device.type != "cpu"


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy values from the CPU to a device, without waiting for a GPU, which requires pinned memory.

    Example:
        >>> to_device(torch.arange(2), torch.device("cpu"))
        tensor([0, 1])
    """
    if device.type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
