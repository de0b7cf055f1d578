"""Compiled kernels for parts of networks that plain torch operations serve badly. Each has a torch
reference.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

Kernels = Literal["auto", "torch", "compiled"]

ROWS_WORTH_COMPILING = 50_000
"""The number of training rows, over clients and epochs, from which on compiling (3 to 4 s, once per
machine) pays: on Covertype the compiled kernel saves 0.09 ms per row (benchmarks/README.md)."""


class Fusable(nn.Module):
    """A part of a network that has a compiled twin.

    Attributes:
        fused: whether the twin is used; set by the loop, never by the part.
    """

    fused = False

    @abstractmethod
    def why_not_fused(self) -> str:
        """Return why the twin cannot be used; an empty text if it can."""


def use_kernels(
    clients: Mapping[str, nn.Module], kernels: Kernels
) -> tuple[bool, dict[str, list[str]]]:
    """Use compiled kernels from now on if they are wanted and possible; otherwise, use torch
    operations.

    Args:
        clients: the clients by name; their :class:`~fedlit.nn.native.Fusable` parts are switched.
        kernels: ``compiled`` for compiled kernels, anything else for torch operations.

    Returns:
        Whether any part uses a compiled kernel, and a mapping from reasons to the clients with a
        part that has a compiled twin but cannot use it.
    """
    used = False
    reasons = dict[str, list[str]]()
    for name, client in clients.items():
        for part in client.modules():
            if isinstance(part, Fusable):
                reason = part.why_not_fused() if kernels == "compiled" else ""
                part.fused = kernels == "compiled" and not reason
                used = used or part.fused
                if reason and name not in reasons.setdefault(reason, []):
                    reasons[reason].append(name)
    return used, reasons


def fuse_optimizer(optimizer: Optimizer) -> None:
    """Let one of torch's optimizers update all parameters in one operation, unless its
    configuration sets this.

    Example:
        >>> adam = torch.optim.AdamW([nn.Parameter(torch.zeros(2))])
        >>> fuse_optimizer(adam)
        >>> adam.param_groups[0]["fused"]
        True
    """
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        configured = group.get("foreach") is not None or group.get("fused") is not None
        special = group.get("capturable") or group.get("differentiable")
        float32 = all(p.dtype == torch.float32 for p in group["params"])
        if float32 and not configured and not special:
            group["fused"] = True
