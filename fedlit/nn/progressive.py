"""A column of a progressive network (Rusu et al. 2016, arXiv:1606.04671): fully connected layers that return all
their outputs, so that another column can receive them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "Column"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"selu": nn.SELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Column(nn.Module):
    """z^(i+1) = a(W^(i+1) z^(i) + b^(i+1) + s^(i+1)) for the hidden layers, and z^(L) = W^(L) z^(L−1) + b^(L) + s^(L),
    where s^(i) is what another column adds to layer i. The first layer receives nothing from another column.

    Args:
        num_features: the width of the input z^(0).
        num_outputs: the width of the output z^(L).
        hidden: the widths of the hidden layers, at least one.
        activation: the activation a: ``relu``, ``selu`` or ``tanh``.

    Shape:
        - x: (n, num_features) float32
        - side: s^(2) … s^(L), (n, width of the layer) each; zeros if left out
        - output: z^(0) … z^(L), (n, width of the layer) each

    Example:
        >>> import torch
        >>> [tuple(z.shape) for z in Column(3, 2, [8, 4])(torch.zeros(5, 3))]
        [(5, 3), (5, 8), (5, 4), (5, 2)]
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        hidden: Sequence[int],
        activation: Literal["relu", "selu", "tanh"] = "relu",
    ) -> None:
        super().__init__()
        if not hidden:
            raise ValueError("expected the width of at least one hidden layer, found none")
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise([num_features, *hidden]))
        self.head = nn.Linear(hidden[-1], num_outputs)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor, side: Sequence[Tensor] = ()) -> list[Tensor]:
        """Return the outputs of all layers, the input first."""
        values = [x]
        for position, layer in enumerate([*self.layers, self.head]):
            value = layer(values[-1])
            if side and position:
                value = value + side[position - 1]
            values.append(value if layer is self.head else self.activation(value))
        return values
