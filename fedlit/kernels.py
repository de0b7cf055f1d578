"""What computes the operations of a client's step: plain torch operations, or compiled and fused ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from fedlit.nn.native import Fusable

__all__ = ["ROWS_WORTH_COMPILING", "Kernels", "fuse_optimizer", "use_kernels"]

Kernels = Literal["auto", "torch", "compiled"]

ROWS_WORTH_COMPILING = 50_000
"""Rows of training, over clients and epochs, from which compiling (3 to 4 s, once per machine) pays: on Covertype the
compiled kernel saves 0.09 ms a row (benchmarks/README.md)."""


def use_kernels(clients: Mapping[str, nn.Module], kernels: Kernels) -> list[str]:
    """Compute with compiled kernels from now on where that is wanted and possible.

    Args:
        clients: by name; their :class:`~fedlit.nn.native.Fusable` parts are switched.
        kernels: ``compiled``, anything else for torch operations.

    Returns:
        Why not, one sentence for each client where a part that has a compiled twin cannot use it.
    """
    reasons = {}
    for name, client in clients.items():
        for part in client.modules():
            if isinstance(part, Fusable):
                reason = part.why_not_fused() if kernels == "compiled" else ""
                part.fused = kernels == "compiled" and not reason
                if reason:
                    reasons[name] = f"client {name!r}: {reason}"
    return list(reasons.values())


def fuse_optimizer(optimizer: Optimizer) -> None:
    """Have one of torch's optimizers update all parameters in one operation, unless its configuration says otherwise.

    Example:
        >>> adam = torch.optim.AdamW([nn.Parameter(torch.zeros(2))])
        >>> fuse_optimizer(adam)
        >>> adam.param_groups[0]["fused"]
        True
    """
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        free = not any(group.get(key) for key in ("foreach", "capturable", "differentiable"))
        if free and group.get("fused") is None and all(p.dtype == torch.float32 for p in group["params"]):
            group["fused"] = True
