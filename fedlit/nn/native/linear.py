"""Linear layers of a stack of networks, for batches of few rows (``linear.cpp``)."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedlit.nn.native.build import load, pointer, stack_first

SOURCE = Path(__file__).with_name("linear.cpp")
FEW_ROWS = 32


class StackedLinear(Function):
    """x Wᵀ + b, where x is (stack, n, inputs), W is (stack, outputs, inputs) and b is (stack, outputs) or None.

    Under ``vmap`` it takes the place of ``torch.nn.functional.linear``, whose weight gradient comes out transposed
    there and is copied when it is accumulated: a quarter of a small network's step.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, compiled: bool) -> Tensor:
        """Return the batched product, by the compiled kernel if ``compiled`` is set and the batches have few rows."""
        library = _library(x, compiled)
        if library is None:
            return x @ weight.mT if bias is None else torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], weight.shape[-2])
        library.linear_forward(
            *x.shape[:2], *weight.shape[:0:-1], pointer(x), pointer(weight), pointer(bias), pointer(out)
        )
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what backward needs."""
        x, weight, bias, ctx.compiled = inputs
        ctx.save_for_backward(x, weight)
        ctx.bias = bias is not None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias, each in the layout of its tensor."""
        x, weight = ctx.saved_tensors
        gradient = gradients[0]
        library = _library(x, ctx.compiled)
        if library is None:
            dx = gradient @ weight if ctx.needs_input_grad[0] else None
            return dx, gradient.mT @ x, gradient.sum(-2) if ctx.bias else None, None
        x, gradient = x.contiguous(), gradient.contiguous()
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        dweight, dbias = torch.empty_like(weight), weight.new_empty(weight.shape[:-1]) if ctx.bias else None
        library.linear_backward(
            *x.shape[:2], *weight.shape[:0:-1], *map(pointer, (x, weight, gradient, dx, dweight, dbias))
        )
        return dx, dweight, dbias, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, weight: Tensor, bias: Tensor | None, compiled: bool
    ) -> tuple[Tensor, int]:
        """Apply the layer to a stack. Further dimensions count as rows; tensors that are not stacked are repeated."""
        x, weight, bias = (
            stack_first(info.batch_size, *pair) for pair in zip((x, weight, bias), in_dims[:3], strict=True)
        )
        out = StackedLinear.apply(x.reshape(len(x), -1, x.shape[-1]), weight, bias, compiled)
        return out.reshape(*x.shape[:-1], out.shape[-1]), 0


def _library(x: Tensor, compiled: bool) -> ctypes.CDLL | None:
    fits = compiled and x.device.type == "cpu" and x.dtype == torch.float32 and x.shape[-2] <= FEW_ROWS
    return load(SOURCE, ()) if fits else None
