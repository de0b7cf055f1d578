"""A plain multilayer perceptron in three parts."""

from __future__ import annotations

from torch import nn

from fedlit.nn.network import Network

__all__ = ["MLP"]


class MLP(Network):
    """Linear layers with SELU; the layers between equal widths are the core.

    Args:
        num_features: width of the input.
        num_outputs: width of the output.
        width: width of the hidden layers.
        depth: number of hidden layers in the core.
        dropout: probability with which a hidden unit is set to zero in training.

    Example:
        >>> import torch
        >>> MLP(13, 3, width=8)(torch.zeros(2, 13)).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, num_features: int, num_outputs: int, width: int = 64, depth: int = 2, dropout: float = 0.0
    ) -> None:
        def layer(inputs: int) -> list[nn.Module]:
            return [nn.Linear(inputs, width), nn.SELU(), *([nn.Dropout(dropout)] if dropout else [])]

        super().__init__(
            encoder=nn.Sequential(*layer(num_features)),
            core=nn.Sequential(*(part for _ in range(depth) for part in layer(width))),
            head=nn.Linear(width, num_outputs),
        )
