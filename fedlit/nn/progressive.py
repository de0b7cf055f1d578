"""A column of a progressive network (Rusu et al. 2016, arXiv:1606.04671): fully connected layers that show what each of
them gives, and take in what another column's layers gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "Column", "Lateral"]

ACTIVATIONS: dict[str, type[nn.Module]] = {"selu": nn.SELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class Column(nn.Module):
    """z^(i+1) = a(W z^(i) + b + what comes from the side) for the hidden layers, then z^(L) = W z^(L−1) + b.

    Args:
        num_features: width of the input z^(0).
        num_outputs: width of the output z^(L).
        hidden: widths of the hidden layers, at least one.
        activation: a: ``relu``, ``selu`` or ``tanh``.

    Shape:
        - x: (n, num_features) float32
        - side: for each of the last hidden layers (n, its width); none if left out
        - output: all of z^(0) … z^(L)

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
        """All layers' values, the input's first."""
        values = [x]
        first = len(self.layers) - len(side)
        for position, layer in enumerate(self.layers):
            value = layer(values[-1])
            values.append(self.activation(value + side[position - first] if position >= first else value))
        values.append(self.head(values[-1]))
        return values


class Lateral(nn.Module):
    """U^(1) … U^(L−1): from each layer of one column to the hidden layer behind it of another.

    Args:
        num_features: width of the first column's input.
        hidden: widths of the hidden layers of both.
        inputs: whether there is a U^(1), which takes the first column's input.

    Shape:
        - values: z^(0) … z^(L), (n, width) each
        - output: for each hidden layer that has a matrix (n, its width)

    Example:
        >>> import torch
        >>> first = Column(3, 2, [8, 4])
        >>> [tuple(side.shape) for side in Lateral(3, [8, 4])(first(torch.zeros(5, 3)))]
        [(5, 8), (5, 4)]
    """

    def __init__(self, num_features: int, hidden: Sequence[int], inputs: bool = True) -> None:
        super().__init__()
        self.inputs = inputs
        pairs = list(pairwise([num_features, *hidden]))[0 if inputs else 1 :]
        self.layers = nn.ModuleList(nn.Linear(*pair, bias=False) for pair in pairs)

    def forward(self, values: Sequence[Tensor]) -> list[Tensor]:
        """What comes from the side, layer by layer."""
        heard = values[0 if self.inputs else 1 :]
        return [layer(value) for layer, value in zip(self.layers, heard, strict=False)]
