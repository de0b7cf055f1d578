"""Rules that limit how far one client can move the result."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlit.exchange.rule import demand
from fedlit.exchange.rules.robust import Moves, check_bound, clipped


class NormBound(Moves):
    """The mean of what clients send, after each update is clipped towards the result of the last exchange:
    w ← w + mean of u_k · min(1, M / ‖u_k‖), where u_k = ω_k − w (Sun, Kairouz, Suresh and McMahan 2019, "Can You Really
    Backdoor Federated Learning?", arXiv:1911.07963).

    Each client moves the result by at most M / n in a round. Over many rounds this adds up: the rule slows attackers
    down, but does not identify them. With the median as M it tolerates f attackers among n clients if n > 2f: more
    attackers could choose M.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.robust.Robust`).
        bound: M; if None, the median of ‖u_k‖ over clients in each round. NOTE[DIFF]: in the paper it is a number.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> def a_round(number, *values):
        ...     own = {name: Update({"w": torch.tensor([v])}, parameters=("w",)) for name, v in zip("abc", values)}
        ...     return Round(number, 0, own, dict.fromkeys(own, ("w",)))
        >>> rule = NormBound()
        >>> _ = rule.begin(a_round(-1, 0.0, 0.0, 0.0))
        >>> rule(a_round(0, 1.0, 2.0, 1e9))["a"]  # the last one counts as 2
        {'w': tensor([1.6667])}
    """

    def __init__(self, attackers: int | float = 1, bound: float | None = None) -> None:
        super().__init__(attackers)
        check_bound(self, "bound", bound)
        self.bound = bound

    def move(self, moved: Tensor, names: Sequence[str]) -> Tensor:
        """Return the mean of the clipped movements."""
        return clipped(moved, self.bound).mean(0)


class CenteredClipping(Moves):
    """The mean of what clients send, after each update is clipped towards a centre: how the result moved in the last
    exchange: v ← v + mean of (u_k − v) · min(1, τ / ‖u_k − v‖), w ← w + v, where u_k = ω_k − w (Karimireddy,
    He and Jaggi 2021, "Learning from History for Byzantine Robust Optimization", ICML, arXiv:2012.10333).

    NOTE[DIFF]: in the paper u_k is a client's momentum; here it is how far the client moved in a round, which is as
    steady if rounds are not short. With the median as τ the result stays near that of the honest clients if n > 2f, the
    tolerance stated here. The paper's convergence theorems assume fewer attackers.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.robust.Robust`).
        radius: τ; if None, the median of ‖u_k − v‖ over clients in each iteration. In the paper it is a number.
        iterations: the number of times that v moves in a round; 1 in the paper.

    Example:
        >>> CenteredClipping(radius=10.0).radius
        10.0
    """

    _memory = ("given", "centre")

    def __init__(self, attackers: int | float = 1, radius: float | None = None, iterations: int = 1) -> None:
        super().__init__(attackers)
        check_bound(self, "radius", radius)
        demand(iterations >= 1, "CenteredClipping: iterations", "at least 1", iterations)
        self.radius, self.iterations = radius, iterations
        self._centre: dict[str, Tensor] = {}

    def move(self, moved: Tensor, names: Sequence[str]) -> Tensor:
        """Move the centre and return it."""
        sizes = [self._given[name].numel() if name in self._given else 0 for name in names]
        if all(name in self._centre for name in names):
            centre = torch.cat([self._centre[name].to(moved).flatten() for name in names])
        else:
            centre = torch.zeros_like(moved[0])
        for _ in range(self.iterations):
            centre = centre + clipped(moved - centre, self.radius).mean(0)
        if all(sizes):
            self._centre |= zip(names, centre.split(sizes), strict=True)
        return centre
