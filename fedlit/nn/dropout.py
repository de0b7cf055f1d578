"""Dropout whose random numbers are cheap."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedlit.nn.native.build import stack_first
from fedlit.seeding import GENERATORS


class ByteDropout(nn.Module):
    """Dropout with a random byte for each number, on the CPU. PyTorch draws 32 random bits or more, which takes up to a
    quarter of an ensemble's step. On other devices, it is PyTorch's dropout.

    Shape:
        - input and output: any, float

    Args:
        p: the probability with which a number is set to zero in training, rounded to 1/256.

    Example:
        >>> x = torch.ones(64, 64)
        >>> drop = ByteDropout(0.25)
        >>> drop(x).unique()
        tensor([0.0000, 1.3333])
        >>> torch.equal(drop.eval()(x), x)
        True
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"expected a probability in [0, 1), found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Set some numbers to zero, and scale the others so that their mean stays the same."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        dropped = min(max(round(256 * self.p), 1), 255)
        out: Tensor = _Drop.apply(x, dropped, (None,))[0]
        return out


class Masked(Function):
    """A function whose first output is its first input times a mask, and whose second output is the mask."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keep what backward needs."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of x."""
        (kept,) = ctx.saved_tensors
        return gradients[0] * kept, None, None


class _Drop(Masked):
    """Dropout in which each generator (None: the default one) draws for an equal part of the numbers."""

    @staticmethod
    def forward(x: Tensor, dropped: int, generators: Sequence[torch.Generator | None]) -> tuple[Tensor, Tensor]:
        """Return what remains of x, and by how much each number was multiplied."""
        count = x.numel() // len(generators)
        words = torch.empty(len(generators), -(-count // 8), dtype=torch.int64)
        for own, generator in zip(words, generators, strict=True):
            own.random_(-(2**63), None, generator=generator)  # the whole range, so that all bytes are alike
        bytes_ = words.view(torch.uint8)[:, :count].reshape(x.shape)
        kept = (bytes_ >= dropped).to(x.dtype).mul_(256 / (256 - dropped))
        return x * kept, kept

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, dropped: int, generators: Any) -> tuple[Any, Any]:
        """Apply dropout with the stack as the first dimension. Each network of the stack draws as it would alone."""
        return _Drop.apply(stack_first(info.batch_size, x, in_dims[0]), dropped, GENERATORS.get()), (0, 0)
