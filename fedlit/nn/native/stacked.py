"""Layers of a stack of networks: linear ones and batch normalisation (``linear.cpp``,
``norm.cpp``), and dropout.
"""

import ctypes
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import Function

from fedlit.nn.native.build import load, pointer
from fedlit.nn.native.stacks import Context, Dimensions, StackInfo, stack_first
from fedlit.seeding import Counters, Draws

LINEAR = Path(__file__).with_name("linear.cpp")
NORM = Path(__file__).with_name("norm.cpp")
FEW_ROWS = 32


NormInputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, bool, float, float]
"""The arguments of :meth:`StackedNorm.forward`."""
NormOutput = tuple[Tensor, Tensor, Tensor]
"""Normalised values, mean, and 1 / standard deviation."""


class _LinearContext(Context):
    """Keeps whether the compiled kernel is used, and whether there is a bias."""

    compiled: bool
    bias: bool


class _NormContext(Context):
    """Keeps whether rows were normalised by their own statistics, as in training."""

    training: bool


class StackedLinear(Function):
    """x Wᵀ + b, where x is (stack, n, inputs), W is (stack, outputs, inputs) and b is (stack,
    outputs) or None.

    Under ``vmap`` it takes the place of ``torch.nn.functional.linear``, whose weight gradient comes
    out transposed there and is copied when it is accumulated: a quarter of a small network's step.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, compiled: bool) -> Tensor:
        """Return the batched product, by the compiled kernel if ``compiled`` is set and the batches
        have few rows.
        """
        library = _library(x, compiled)
        if library is None:
            if bias is None:
                return x @ weight.mT
            return torch.baddbmm(bias.unsqueeze(-2), x, weight.mT)
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], weight.shape[-2])
        library.linear_forward(
            *x.shape[:2],
            *weight.shape[:0:-1],
            pointer(x),
            pointer(weight),
            pointer(bias),
            pointer(out),
        )
        return out

    @staticmethod
    def setup_context(
        ctx: _LinearContext, inputs: tuple[Tensor, Tensor, Tensor | None, bool], output: Tensor
    ) -> None:
        """Keep what backward needs."""
        x, weight, bias, ctx.compiled = inputs
        ctx.save_for_backward(x, weight)
        ctx.bias = bias is not None

    @staticmethod
    def backward(ctx: _LinearContext, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias, each in the layout of its tensor."""
        x, weight = ctx.saved_tensors
        gradient = gradients[0]
        library = _library(x, ctx.compiled)
        if library is None:
            dx = gradient @ weight if ctx.needs_input_grad[0] else None
            dbias = gradient.sum(-2) if ctx.bias else None
            return dx, gradient.mT @ x, dbias, None
        x = x.contiguous()
        gradient = gradient.contiguous()
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        dweight = torch.empty_like(weight)
        dbias = weight.new_empty(weight.shape[:-1]) if ctx.bias else None
        library.linear_backward(
            *x.shape[:2],
            *weight.shape[:0:-1],
            *map(pointer, (x, weight, gradient, dx, dweight, dbias)),
        )
        return dx, dweight, dbias, None

    @staticmethod
    def vmap(
        info: StackInfo,
        in_dims: Dimensions,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        compiled: bool,
    ) -> tuple[Tensor, int]:
        """Apply the layer to a stack. Further dimensions count as rows; tensors that are not
        stacked are repeated.
        """
        x = stack_first(info.batch_size, x, in_dims[0])
        weight = stack_first(info.batch_size, weight, in_dims[1])
        bias = stack_first(info.batch_size, bias, in_dims[2])
        out = StackedLinear.apply(x.reshape(len(x), -1, x.shape[-1]), weight, bias, compiled)
        return out.reshape(*x.shape[:-1], out.shape[-1]), 0


def _library(x: Tensor, compiled: bool) -> ctypes.CDLL | None:
    few_rows = x.shape[-2] <= FEW_ROWS
    if compiled and few_rows and x.device.type == "cpu" and x.dtype == torch.float32:
        return load(LINEAR, ())
    return None


class StackedNorm(Function):
    """Replaces ``torch.nn.functional.batch_norm`` of (n, channels) float32 under ``vmap``.

    Tensors are (stack, n, channels) and (stack, channels). Returns the output, and mean and 1 /
    standard deviation for backward.
    """

    @staticmethod
    def fits(x: Tensor, *tensors: Tensor | None) -> bool:
        """Return whether the kernel can be used for these arguments."""
        if x.dim() != 2 or x.dtype != torch.float32 or x.device.type != "cpu" or x.shape[0] < 2:
            return False
        return all(tensor is not None for tensor in tensors) and load(NORM, ()) is not None

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
    ) -> NormOutput:
        """Normalise, and update the running statistics in place."""
        library = load(NORM, ())
        assert library is not None
        out = torch.empty_like(x)
        mean = torch.empty_like(weight)
        rstd = torch.empty_like(weight)
        library.norm_forward(
            *x.shape,
            int(training),
            ctypes.c_float(momentum),
            ctypes.c_float(eps),
            *map(pointer, (x, weight, bias, running_mean, running_var, mean, rstd, out)),
        )
        return out, mean, rstd

    @staticmethod
    def setup_context(ctx: _NormContext, inputs: NormInputs, output: NormOutput) -> None:
        """Keep what backward needs."""
        x, _, _, weight, _, ctx.training, _, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(x, weight, *output[1:])

    @staticmethod
    def backward(ctx: _NormContext, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, weight, mean, rstd = ctx.saved_tensors
        library = load(NORM, ())
        assert library is not None
        dx = torch.empty_like(x)
        dweight = torch.empty_like(weight)
        dbias = torch.empty_like(weight)
        gradient = gradients[0].contiguous()
        library.norm_backward(
            *x.shape,
            int(ctx.training),
            *map(pointer, (x, weight, mean, rstd, gradient, dx, dweight, dbias)),
        )
        return dx, None, None, dweight, dbias, None, None, None

    @staticmethod
    def vmap(
        info: StackInfo, in_dims: Dimensions, *arguments: object
    ) -> tuple[NormOutput, Dimensions]:
        """Apply the normalisation with the stack as the first dimension. Running statistics must be
        stacked already, because they are changed.
        """
        stacked = [
            stack_first(info.batch_size, *pair) for pair in zip(arguments, in_dims, strict=True)
        ]
        return StackedNorm.apply(*stacked), (0, 0, 0)


class Masked(Function):
    """A function whose first output is its first input times a mask, and whose second output is the
    mask.
    """

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[object, ...], output: tuple[Tensor, Tensor]
    ) -> None:
        """Keep what backward needs."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of x."""
        (mask,) = ctx.saved_tensors
        return gradients[0] * mask, None, None


class StackedDropout(Masked):
    """Replaces ``torch.nn.functional.dropout`` under ``vmap``, with one generator for each client
    of the stack.

    The numbers are those that PyTorch draws for one client after
    :func:`fedlit.seeding.isolated_rng` on the CPU; on a GPU, they are those of
    :class:`~fedlit.seeding.Counters`.
    """

    @staticmethod
    def forward(x: Tensor, p: float, generators: Draws) -> tuple[Tensor, Tensor]:
        """Return what remains of (stack, …), and the factor by which each number was multiplied."""
        if isinstance(generators[0], Counters):
            mask = generators[0].chosen(x, 1 - p)
        else:
            mask = torch.empty_like(x, memory_format=torch.contiguous_format)
            for client_mask, generator in zip(mask, generators, strict=True):
                client_mask.bernoulli_(1 - p, generator=generator)
        mask.div_(1 - p)
        return x * mask, mask

    @staticmethod
    def vmap(
        info: StackInfo,
        in_dims: Dimensions,
        x: Tensor,
        p: float,
        generators: Draws,
    ) -> tuple[tuple[Tensor, Tensor], Dimensions]:
        """Apply dropout with the stack as the first dimension."""
        stacked = stack_first(info.batch_size, x, in_dims[0])
        return StackedDropout.apply(stacked, p, generators), (0, 0)
