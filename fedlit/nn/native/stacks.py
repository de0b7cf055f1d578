"""What functions under ``vmap`` share: the stack of networks that they are called for, and what they
keep for backward.
"""

from typing import Protocol, TypeVar

from torch import Tensor
from torch.autograd.function import FunctionCtx

Dimensions = tuple[int | None, ...]
"""The dimension of the stack in each tensor; None in what is no tensor or not stacked."""

_Argument = TypeVar("_Argument")


class StackInfo(Protocol):
    """What ``vmap`` tells a function about the stack.

    Attributes:
        batch_size: the size of the stack.
    """

    batch_size: int


class Context(FunctionCtx):
    """What a function keeps between forward and backward.

    Attributes:
        saved_tensors: the tensors that ``save_for_backward`` was given.
        needs_input_grad: whether each argument of forward needs a gradient.
    """

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]


def stack_first(size: int, value: _Argument, dim: int | None) -> _Argument | Tensor:
    """Return an argument under ``vmap`` as kernels for stacks read it: contiguous, with the stack
    as first dimension.

    Args:
        size: the size of the stack.
        value: a tensor; anything else is returned as it is.
        dim: the dimension of the stack; None for a tensor that all networks have in common, which
            is repeated.
    """
    if not isinstance(value, Tensor):
        return value
    if dim is None:
        return value.expand(size, *value.shape).contiguous()
    return value.movedim(dim, 0).contiguous()
