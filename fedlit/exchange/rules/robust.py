"""Rules that tolerate attackers: the median and the trimmed mean, the geometric median, Krum, and
clipped means.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedlit.exchange.rule import demand
from fedlit.exchange.rules.tolerance import Moves, Robust, check_bound, clipped, middle


class Median(Robust):
    """Every client receives the elementwise median of what clients send: the middle value, or the
    mean of the two middle values (Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-Robust
    Distributed Learning: Towards Optimal Statistical Rates", arXiv:1803.01498).

    It tolerates f attackers among n clients if n > 2f.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.tolerance.Robust`).

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> sent = {name: Update({"w": torch.tensor([value])}) for name, value in zip("abc", (1.0, 2.0, 1e9))}
        >>> Median()(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.])}
    """

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the median."""
        return middle(sent)


class TrimmedMean(Robust):
    """Every client receives the elementwise mean of what clients send, without the f largest and
    the f smallest values (Yin et al. 2018, as :class:`Median`).

    It tolerates f attackers among n clients if n > 2f.

    Args:
        attackers: f, as a number or as a share of the clients.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcd", (1.0, 2.0, 4.0, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> TrimmedMean(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([3.])}
    """

    by_setting = True

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the trimmed mean."""
        trimmed = self.bears(len(sent))
        return sent.sort(0).values[trimmed : len(sent) - trimmed].mean(0)


class GeometricMedian(Robust):
    """Every client receives the point with the smallest sum of distances from what clients send,
    arg min_z Σ ‖ω_k − z‖ (Pillutla, Kakade and Harchaoui 2022, "Robust Aggregation for Federated
    Learning", IEEE Transactions on Signal Processing 70, arXiv:1912.13445).

    It is found by Weiszfeld's iteration, z ← Σ w_k ω_k / Σ w_k with w_k = 1 / ‖ω_k − z‖.

    NOTE[DIFF]: it starts from the median of each element, not from the mean, which a single client
    can move anywhere. And if z is within ν of what a client sent, that client is left out of the
    sums and holds z back (Vardi and Zhang 2000, "The multivariate L1-median and associated data
    depth", PNAS 97); w_k = 1 / max(ν, ‖ω_k − z‖), as in the paper, would stay there for a long
    time.

    It tolerates f attackers among n clients where n > 2f.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.tolerance.Robust`).
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

    def __init__(
        self, attackers: int | float = 1, iterations: int = 32, smoothing: float = 1e-6
    ) -> None:
        super().__init__(attackers)
        demand(iterations >= 1, "GeometricMedian: iterations", "at least 1", iterations)
        demand(smoothing > 0, "GeometricMedian: smoothing", "a number above 0", smoothing)
        self.iterations = iterations
        self.smoothing = smoothing

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the geometric median."""
        center = middle(sent)
        tiny = torch.finfo(sent.dtype).tiny
        for _ in range(self.iterations):
            distances = (sent - center).norm(dim=1)
            at_center = distances <= self.smoothing
            weights = torch.where(at_center, 0.0, distances.clamp_min(self.smoothing).reciprocal())
            pull = (weights[:, None] * (sent - center)).sum(0)
            stay = (at_center.sum() / pull.norm().clamp_min(tiny)).clamp_max(1)
            center = center + (1 - stay) * pull / weights.sum().clamp_min(tiny)
        return center


class Krum(Robust):
    """Every client receives what one client sent: the one with the smallest sum of squared
    distances to its n − f − 2 nearest neighbours (Blanchard, El Mhamdi, Guerraoui and Stainer 2017,
    "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 30).

    It tolerates f attackers among n clients if n ≥ 2f + 3. It discards what all other clients
    learnt, so it suits only clients with similar data.

    Args:
        attackers: f, as a number or as a share of the clients.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcde", (1.0, 2.0, 3.1, 4.5, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> Krum(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.])}
    """

    by_setting = True

    @staticmethod
    def fewest(attackers: int) -> int:
        """Return 2f + 3."""
        return 2 * attackers + 3

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the vector with the best score."""
        return sent[self._order(sent)[:1]].squeeze(0)

    def _order(self, sent: Tensor) -> Tensor:
        """Return the positions of clients, ordered from the best score to the worst."""
        near = max(1, len(sent) - self.bears(len(sent)) - 2)
        # Products of matrices would round the distances of the others to nothing beside a huge
        # vector.
        distances = torch.cdist(sent, sent, compute_mode="donot_use_mm_for_euclid_dist").square()
        # The first column holds each client's distance from itself.
        scores = distances.sort(1).values[:, 1 : near + 1].sum(1)
        return torch.nan_to_num(scores, nan=torch.inf).sort(stable=True).indices


class MultiKrum(Krum):
    """Every client receives the mean of the clients with the best scores by :class:`Krum`.

    Args:
        attackers: f, as a number or as a share of the clients.
        keep: the number of clients in the mean; n − f if None.

    Example:
        >>> import torch
        >>> from fedlit import Round, Update
        >>> values = dict(zip("abcde", (1.0, 2.0, 3.0, 4.0, 1e9)))
        >>> sent = {name: Update({"w": torch.tensor([value])}, parameters=("w",)) for name, value in values.items()}
        >>> MultiKrum(attackers=1)(Round(0, 0, sent, dict.fromkeys(sent, ("w",))))["a"]
        {'w': tensor([2.5000])}
    """

    def __init__(self, attackers: int | float = 1, keep: int | None = None) -> None:
        super().__init__(attackers)
        at_least = keep is None or keep >= 1
        demand(at_least, "MultiKrum: keep", "at least 1 client", keep, "leave it out for n − f")
        self.keep = keep

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Return the mean of the vectors with the best scores; of at most n − f, whatever ``keep``
        is.
        """
        most = len(sent) - self.bears(len(sent))
        nearest = self._order(sent)[: min(most, self.keep or most)]
        return sent[nearest.sort().values].mean(0)


class NormBound(Moves):
    """The mean of what clients send, after each update is clipped towards the result of the last
    exchange: w ← w + mean of u_k · min(1, M / ‖u_k‖), where u_k = ω_k − w (Sun, Kairouz, Suresh and
    McMahan 2019, "Can You Really Backdoor Federated Learning?", arXiv:1911.07963).

    Each client moves the result by at most M / n in a round. Over many rounds this adds up: the
    rule slows attackers down, but does not identify them. With the median as M it tolerates f
    attackers among n clients if n > 2f: more attackers could choose M.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.tolerance.Robust`).
        bound: M; if None, the median of ‖u_k‖ over clients in each round. NOTE[DIFF]: in the paper
            it is a number.

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
    """The mean of what clients send, after each update is clipped towards a centre: how the result
    moved in the last exchange: v ← v + mean of (u_k − v) · min(1, τ / ‖u_k − v‖), w ← w + v, where
    u_k = ω_k − w (Karimireddy, He and Jaggi 2021, "Learning from History for Byzantine Robust
    Optimization", ICML, arXiv:2012.10333).

    NOTE[DIFF]: in the paper u_k is a client's momentum; here it is how far the client moved in a
    round, which is as steady if rounds are not short. With the median as τ the result stays near
    that of the honest clients if n > 2f, the tolerance stated here. The paper's convergence
    theorems assume fewer attackers.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.tolerance.Robust`).
        radius: τ; if None, the median of ‖u_k − v‖ over clients in each iteration. In the paper it
            is a number.
        iterations: the number of times that v moves in a round; 1 in the paper.

    Example:
        >>> CenteredClipping(radius=10.0).radius
        10.0
    """

    _memory = ("given", "centre")

    def __init__(
        self, attackers: int | float = 1, radius: float | None = None, iterations: int = 1
    ) -> None:
        super().__init__(attackers)
        check_bound(self, "radius", radius)
        demand(iterations >= 1, "CenteredClipping: iterations", "at least 1", iterations)
        self.radius = radius
        self.iterations = iterations
        self._centre: dict[str, Tensor] = {}

    def move(self, moved: Tensor, names: Sequence[str]) -> Tensor:
        """Move the centre and return it."""
        if all(name in self._centre for name in names):
            centre = torch.cat([self._centre[name].to(moved).flatten() for name in names])
        else:
            centre = torch.zeros_like(moved[0])
        for _ in range(self.iterations):
            centre = centre + clipped(moved - centre, self.radius).mean(0)
        if all(name in self._given for name in names):
            sizes = [self._given[name].numel() for name in names]
            if all(sizes):
                self._centre |= zip(names, centre.split(sizes), strict=True)
        return centre
