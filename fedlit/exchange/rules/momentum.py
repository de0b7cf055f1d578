"""Momentum at the server, FedAvgM (Hsu, Qi and Brown 2019, "Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification", arXiv:1909.06335, Sec. 4.3).
"""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from fedlit.exchange.rules.server import ServerOptimizer


class FedAvgM(ServerOptimizer):
    """Every client receives w ← w + η v, with v ← β v + (w̄ − w): w is the result of the last exchange, w̄ the mean of
    what clients send.

    Without momentum it interpolates on the server, w ← (1 − η) w + η w̄; if η = 1 too, the result is bit-for-bit that of
    :class:`~fedlit.exchange.rules.mean.Mean`. See :class:`~fedlit.exchange.rules.server.ServerOptimizer` for parts that
    only some clients have.

    NOTE[DIFF]: clients have equal weights, as with every rule here; the paper weights them by rows (``weights: rows``).

    Args:
        momentum: β, in [0, 1).
        weights: whether every client counts the same (``uniform``) or by its number of training rows (``rows``).
        lr: η, above 0.

    Raises:
        ConfigError: the momentum or the learning rate is out of range.

    Example:
        >>> FedAvgM(momentum=0.6).momentum
        0.6
    """

    moments = ("velocity",)

    def __init__(self, momentum: float = 0.9, weights: Literal["uniform", "rows"] = "uniform", lr: float = 1.0) -> None:
        super().__init__(lr, weights)
        self.momentum = self.in_range("momentum", momentum, 0, 1)

    def step(
        self, name: str, before: Tensor, mean: Tensor, moments: Mapping[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See :class:`~fedlit.exchange.rules.server.ServerOptimizer`."""
        # not before + (mean − before), which rounds
        moved = mean if self.lr == 1 else before.lerp(mean, self.lr)
        if not self.momentum:
            return moved, {}
        velocity, last = mean - before, moments["velocity"]
        if last is not None:
            carried = self.momentum * last
            moved, velocity = moved + self.lr * carried, velocity + carried
        return moved, {"velocity": velocity}
