"""The geometric median (Pillutla, Kakade and Harchaoui 2022, "Robust Aggregation for Federated Learning", IEEE
Transactions on Signal Processing 70, arXiv:1912.13445).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlit.exchange.rule import demand
from fedlit.exchange.rules.robust import Robust, middle


class GeometricMedian(Robust):
    """Every client receives the point with the smallest sum of distances from what clients send: arg min_z Σ ‖ω_k − z‖.

    It is found by Weiszfeld's iteration, z ← Σ w_k ω_k / Σ w_k with w_k = 1 / ‖ω_k − z‖.

    NOTE[DIFF]: it starts from the median of each element, not from the mean, which a single client can move anywhere.
    And if z is within ν of what a client sent, that client is left out of the sums and holds z back (Vardi and
    Zhang 2000, "The multivariate L1-median and associated data depth", PNAS 97); w_k = 1 / max(ν, ‖ω_k − z‖), as in the
    paper, would stay there for a long time.

    It tolerates f attackers among n clients where n > 2f.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.robust.Robust`).
        iterations: the number of iterations; it is fixed, so that an accelerator need not wait.
        smoothing: ν, in the units of the tensors.

    Raises:
        ConfigError: a value is out of range.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> corners = {"a": [0.0, 0.0], "b": [1.0, 0.0], "c": [0.0, 1.0], "d": [1.0, 1.0], "e": [1e9, 1e9]}
        >>> sent = {name: Update({"w": torch.tensor(own)}, parameters=("w",)) for name, own in corners.items()}
        >>> GeometricMedian()(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]["w"].mul(100).round().int().tolist()
        [79, 79]
    """

    def __init__(self, attackers: int | float = 1, iterations: int = 32, smoothing: float = 1e-6) -> None:
        super().__init__(attackers)
        demand(iterations >= 1, "GeometricMedian: iterations", "at least 1", iterations)
        demand(smoothing > 0, "GeometricMedian: smoothing", "a number above 0", smoothing)
        self.iterations, self.smoothing = iterations, smoothing

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the geometric median."""
        found, tiny = middle(sent), torch.finfo(sent.dtype).tiny
        for _ in range(self.iterations):
            apart = (sent - found).norm(dim=1)
            here = apart <= self.smoothing
            weights = torch.where(here, 0.0, apart.clamp_min(self.smoothing).reciprocal())
            pull = (weights[:, None] * (sent - found)).sum(0)
            stay = (here.sum() / pull.norm().clamp_min(tiny)).clamp_max(1)
            found = found + (1 - stay) * pull / weights.sum().clamp_min(tiny)
        return found
