"""Compiled kernels for parts of networks that plain torch operations serve badly. Each has a torch reference."""

from abc import abstractmethod

from torch import nn

__all__ = ["Fusable"]


class Fusable(nn.Module):
    """A part of a network that has a compiled twin.

    Attributes:
        fused: whether the twin is used; set by the loop, never by the part.
    """

    fused = False

    @abstractmethod
    def why_not_fused(self) -> str:
        """Return why the twin cannot be used; an empty text if it can."""
