"""The token side of Global Layers as one operation (``tokens.cpp``)."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedlit.nn.native.build import load, pointer
from fedlit.nn.native.stacks import Context, Dimensions, StackInfo, stack_first

SOURCE = Path(__file__).with_name("tokens.cpp")
MAX_TOKENS = 128


@dataclass(frozen=True)
class TokenKernel:
    """Maps columns to tokens after the last block, for one network or a stack of networks of equal
    shape.

    Shape:
        - x: (rows, tokens) float32 on the CPU, or (stack, rows, tokens)
        - output: (rows, tokens * width), or (stack, rows, tokens * width)

    Attributes:
        tokens: the number of columns, at most 128.
        blocks: the number of transformer blocks.
        width: the width of a token.
        heads: the number of attention heads.
        hidden: the width inside the feed-forward.
        gated: whether the feed-forward has w3.
        momentum: the momentum of the running statistics.
        eps: the eps of the normalisations.
    """

    tokens: int
    blocks: int
    width: int
    heads: int
    hidden: int
    gated: bool
    momentum: float
    eps: float

    @property
    def library(self) -> ctypes.CDLL | None:
        """The compiled kernel; None if it cannot be compiled."""
        definitions = (
            ("WIDTH", self.width),
            ("HEADS", self.heads),
            ("HIDDEN", self.hidden),
            ("GATED", int(self.gated)),
        )
        return load(SOURCE, definitions)

    def __call__(
        self,
        x: Tensor,
        parameters: Sequence[Tensor | None],
        running: Sequence[Tensor],
        training: bool,
    ) -> Tensor:
        """Apply the kernel.

        Args:
            x: the columns; see the class.
            parameters: the parameters of the network, then of each block, in the order of
                ``tokens.cpp``.
            running: the mean and the variance of each normalisation; updated in training.
            training: whether the normalisations use the batch's statistics.
        """
        save = training or torch.is_grad_enabled()
        out: Tensor = _Tokens.apply(
            x.float(), self, training, save, len(parameters), *parameters, *running
        )[0]
        return out


class _TokenContext(Context):
    """Keeps the kernel, whether it trains, and the number of tensors that need a gradient."""

    kernel: TokenKernel
    training: bool
    count: int


class _Tokens(Function):
    """The kernel as a function. Forward returns (out, statistics, saved); the latter two are for
    backward.
    """

    @staticmethod
    def forward(
        x: Tensor,
        kernel: TokenKernel,
        training: bool,
        save: bool,
        count: int,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        library = kernel.library
        assert library is not None
        # The kernel reads and writes memory as contiguous float32. Other tensors would be read as
        # garbage and written beyond their end.
        for tensor in tensors:
            assert tensor is None or (tensor.dtype == torch.float32 and tensor.is_contiguous())
        lanes: int = library.tokens_lanes()
        stack = x.shape[:-2]
        rows = x.shape[-2]
        x = x.contiguous()
        tiles = -(-rows // lanes)
        out = x.new_empty(*stack, rows, kernel.tokens * kernel.width)
        statistics = x.new_empty(*stack, 1 + 2 * kernel.blocks, 2, kernel.tokens)
        numbers = tiles * kernel.tokens * kernel.width * lanes if save else 0
        saved = x.new_empty(*stack, 2 * kernel.blocks, numbers)
        saved_pointer = pointer(saved) if save else None
        library.tokens_forward(
            *(stack or (1,)),
            rows,
            kernel.tokens,
            kernel.blocks,
            int(training),
            ctypes.c_float(kernel.momentum),
            ctypes.c_float(kernel.eps),
            pointer(x),
            pointer(out),
            _pointers(tensors[:count]),
            _pointers(tensors[count:]),
            pointer(statistics),
            saved_pointer,
        )
        return out, statistics, saved

    @staticmethod
    def setup_context(
        ctx: _TokenContext, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        x, ctx.kernel, ctx.training, _, ctx.count, *tensors = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *output[1:], *tensors[: ctx.count])

    @staticmethod
    def backward(ctx: _TokenContext, *douts: Tensor | None) -> tuple[Tensor | None, ...]:
        x, statistics, saved, *parameters = ctx.saved_tensors
        kernel = ctx.kernel
        norms = 1 + 2 * kernel.blocks
        no_running_gradients = [None] * (2 * norms)
        if douts[0] is None:
            return (*[None] * (5 + len(parameters)), *no_running_gradients)
        library = kernel.library
        assert library is not None
        x = x.contiguous()
        dout = douts[0].float().contiguous()
        dx = torch.empty_like(x)
        gradients = [
            None if parameter is None else torch.empty_like(parameter) for parameter in parameters
        ]
        library.tokens_backward(
            *(x.shape[:-2] or (1,)),
            x.shape[-2],
            kernel.tokens,
            kernel.blocks,
            int(ctx.training),
            pointer(x),
            pointer(dout),
            _pointers(parameters),
            pointer(statistics),
            pointer(saved),
            pointer(dx),
            _pointers(gradients),
        )
        return dx, None, None, None, None, *gradients, *no_running_gradients

    @staticmethod
    def vmap(
        info: StackInfo, in_dims: Dimensions, x: Tensor, *rest: object
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Dimensions]:
        """Compute a stack of networks in one call. Tensors that are not stacked already are
        repeated.
        """
        stacked = [
            stack_first(info.batch_size, *pair) for pair in zip((x, *rest), in_dims, strict=True)
        ]
        return _Tokens.apply(*stacked), (0, 0, 0)


def _pointers(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(
        *(None if tensor is None else tensor.data_ptr() for tensor in tensors)
    )
