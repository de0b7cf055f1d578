"""Devices that the program runs ahead of, such as GPUs: to read a value of theirs is to wait for all
that is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def choose_tf32(on: bool) -> Callable[[], None]:
    """Choose whether NVIDIA GPUs may compute float32 products in TensorFloat-32, with 10 binary digits
    instead of 23. Return a function that restores the choice before.

    Example:
        >>> restore = choose_tf32(True)
        >>> torch.backends.cuda.matmul.allow_tf32
        True
        >>> restore()
        >>> torch.backends.cuda.matmul.allow_tf32
        False
    """
    # PyTorch's own default is off for matrix products, and on for convolutions.
    libraries: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [library.allow_tf32 for library in libraries]

    def restore() -> None:
        for library, was_on in zip(libraries, before, strict=True):
            library.allow_tf32 = was_on

    for library in libraries:
        library.allow_tf32 = on
    return restore
