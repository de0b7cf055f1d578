"""The three parts that a client's network consists of."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

__all__ = ["Network", "NetworkFactory"]


class Network(nn.Module):
    """Encoder (private input side), core (shared), head (private output side), in this order.

    A subclass builds the three from the number of features and outputs. Their names are what patterns of federated
    tensors refer to: ``core.*`` is the core.

    Shape:
        - input: (rows, num_features), float32
        - output: logits, (rows, num_outputs), float32
    """

    encoder: nn.Module
    core: nn.Module
    head: nn.Module

    def __init__(self, encoder: nn.Module, core: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.core, self.head = encoder, core, head

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.head(self.core(self.encoder(x)))
        return logits


NetworkFactory = Callable[[int, int], Network]
"""Makes a network from (num_features, num_outputs)."""
