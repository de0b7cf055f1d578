"""The replacements of some of PyTorch's functions in a stack."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fedlit.nn.dropout import Masked
from fedlit.nn.native.build import stack_first
from fedlit.nn.native.linear import StackedLinear
from fedlit.nn.native.norm import StackedNorm
from fedlit.seeding import GENERATORS

SIGNATURES = {func: inspect.signature(func) for func in (nn.functional.batch_norm, nn.functional.dropout)}


class Stacked(TorchFunctionMode):
    """Computes the linear layers and normalisations of a stack by special kernels (:mod:`fedlit.nn.native`), and draws
    dropout for each client as it would be drawn for the client alone.
    """

    def __init__(self, compiled: bool, seeds: Sequence[int] = ()) -> None:
        super().__init__()
        self.compiled = compiled
        self._generators = tuple(torch.Generator().manual_seed(seed) for seed in seeds)

    def __enter__(self) -> Stacked:
        self._token = GENERATORS.set(self._generators)
        entered: Stacked = super().__enter__()
        return entered

    def __exit__(self, *error: object) -> None:
        GENERATORS.reset(self._token)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is nn.functional.linear and not kwargs and not torch.is_autocast_enabled(args[0].device.type):
            return StackedLinear.apply(args[0], args[1], args[2] if len(args) > 2 else None, self.compiled)
        if func is nn.functional.batch_norm and self.compiled:
            arguments = _arguments(func, args, kwargs)
            if StackedNorm.fits(*arguments[:5]):
                return StackedNorm.apply(*arguments)[0]
        if func is nn.functional.dropout and self._generators:
            x, share, training, _ = _arguments(func, args, kwargs)
            if training and 0 < share < 1 and x.device.type == "cpu":
                return StackedDropout.apply(x, share, self._generators)[0]
        return func(*args, **kwargs)


def _arguments(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments of a call in the order of the function's signature, including defaults."""
    bound = SIGNATURES[func].bind(*args, **kwargs)
    bound.apply_defaults()
    return list(bound.arguments.values())


class StackedDropout(Masked):
    """Replaces ``torch.nn.functional.dropout`` under ``vmap``, with one generator for each client of the stack.

    The numbers are those that PyTorch draws for one client after :func:`fedlit.seeding.isolated_rng` (on the CPU).
    """

    @staticmethod
    def forward(x: Tensor, p: float, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
        """Return what remains of (stack, …), and the factor by which each number was multiplied."""
        kept = torch.empty_like(x, memory_format=torch.contiguous_format)
        for own, generator in zip(kept, generators, strict=True):
            own.bernoulli_(1 - p, generator=generator)
        kept.div_(1 - p)
        return x * kept, kept

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, p: float, generators: Any) -> tuple[Any, Any]:
        """Apply dropout with the stack as the first dimension."""
        return StackedDropout.apply(stack_first(info.batch_size, x, in_dims[0]), p, generators), (0, 0)
