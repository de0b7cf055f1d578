"""Batch normalisation of a stack of networks (``norm.cpp``)."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedlit.nn.native.build import load, pointer, stack_first

SOURCE = Path(__file__).with_name("norm.cpp")


class StackedNorm(Function):
    """Replaces ``torch.nn.functional.batch_norm`` of (n, channels) float32 under ``vmap``.

    Tensors are (stack, n, channels) and (stack, channels). Returns the output, and mean and 1 / standard deviation for
    backward.
    """

    @staticmethod
    def fits(x: Tensor, *others: Tensor | None) -> bool:
        """Return whether the kernel can be used for these arguments."""
        usual = x.dim() == 2 and x.dtype == torch.float32 and x.device.type == "cpu" and x.shape[0] > 1
        return usual and all(value is not None for value in others) and load(SOURCE, ()) is not None

    @staticmethod
    def forward(
        x: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor,
        bias: Tensor,
        training: bool,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalise, and update the running statistics in place."""
        library = load(SOURCE, ())
        assert library is not None
        out, mean, rstd = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        library.norm_forward(
            *x.shape,
            int(training),
            ctypes.c_float(momentum),
            ctypes.c_float(eps),
            *map(pointer, (x, weight, bias, running_mean, running_var, mean, rstd, out)),
        )
        return out, mean, rstd

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        """Keep what backward needs."""
        x, _, _, weight, _, ctx.training, _, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, weight, *output[1:])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, rstd = ctx.saved_tensors
        library = load(SOURCE, ())
        assert library is not None
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        gradient = gradients[0].contiguous()
        library.norm_backward(
            *x.shape, int(ctx.training), *map(pointer, (x, weight, mean, rstd, gradient, dx, dweight, dbias))
        )
        return dx, None, None, dweight, dbias, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        """Apply the normalisation with the stack as the first dimension. Running statistics must be stacked already,
        because they are changed.
        """
        stacked = [stack_first(info.batch_size, *pair) for pair in zip(arguments, in_dims, strict=True)]
        return StackedNorm.apply(*stacked), (0, 0, 0)
