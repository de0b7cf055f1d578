"""A plain multilayer perceptron in three parts."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

from fedlit.inputs import Input
from fedlit.nn.network import Network, name_axes

ACTIVATIONS: dict[str, type[nn.Module]] = {"selu": nn.SELU, "relu": nn.ReLU, "tanh": nn.Tanh}


class MLP(Network):
    """Linear layers with an activation in between: the first hidden layer is the encoder, the
    others are the core.

    Args:
        num_features: the width of the input.
        num_outputs: the width of the output.
        hidden: the widths of the hidden layers, at least one.
        activation: the activation: ``selu``, ``relu`` or ``tanh``.
        dropout: the probability with which a hidden unit is set to zero in training.
        input_dropout: the same probability for an input.
        norm: whether there is batch normalisation before each activation (``batch``), in modules
            called ``norm``, or none (``none``).

    Example:
        >>> import torch
        >>> MLP(13, 3, hidden=[128, 64], activation="tanh", dropout=0.2)(torch.zeros(2, 13)).shape
        torch.Size([2, 3])
        >>> MLP(13, 3, hidden=[128], norm="batch").encoder[0].norm.num_features
        128
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        hidden: Sequence[int] = (64, 64, 64),
        activation: Literal["selu", "relu", "tanh"] = "selu",
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        norm: Literal["none", "batch"] = "none",
    ) -> None:
        if not hidden:
            raise ValueError("expected the width of at least one hidden layer, found none")

        def layer(inputs: int, outputs: int) -> list[nn.Module]:
            modules = [_linear(inputs, outputs, norm), ACTIVATIONS[activation]()]
            if dropout:
                modules.append(nn.Dropout(dropout))
            return modules

        encoder: list[nn.Module] = []
        if input_dropout:
            encoder.append(nn.Dropout(input_dropout))
        encoder += layer(num_features, hidden[0])
        core: list[nn.Module] = []
        for inputs, outputs in pairwise(hidden):
            core += layer(inputs, outputs)
        super().__init__(
            encoder=nn.Sequential(*encoder),
            core=nn.Sequential(*core),
            head=nn.Linear(hidden[-1], num_outputs),
        )

    def meet(self, inputs: Sequence[Input], labels: Sequence[str]) -> None:
        """Name the columns of the first layer and the rows of the last one."""
        first = next(part for part in self.encoder.modules() if isinstance(part, nn.Linear))
        name_axes(first, {"weight": (1, [column.name for column in inputs])})
        name_axes(self.head, {"weight": (0, labels), "bias": (0, labels)})


def _linear(inputs: int, outputs: int, norm: str) -> nn.Module:
    linear = nn.Linear(inputs, outputs)
    if norm == "none":
        return linear
    return nn.Sequential(OrderedDict(linear=linear, norm=nn.BatchNorm1d(outputs)))
