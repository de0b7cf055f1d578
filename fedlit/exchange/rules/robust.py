"""Rules that tolerate attackers: the median and the trimmed mean, the geometric median, Krum, and
clipped means.
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Round, Rule, by_owners, demand
from fedlit.exchange.rules.mean import spread
from fedlit.sharing import Sharing, State

_log = logging.getLogger(__name__)


def middle(values: Tensor) -> Tensor:
    """Return the median along the first axis; for an even number, the mean of the two middle
    values.

    Example:
        >>> middle(torch.tensor([[1.0, 5.0], [3.0, 1e9], [2.0, 6.0]]))
        tensor([2., 6.])
    """
    ordered = values.sort(0).values
    count = len(values)
    # halved before they are added: no overflow
    return ordered[(count - 1) // 2] * 0.5 + ordered[count // 2] * 0.5


class Robust(Rule):
    """A rule whose result stays near what honest clients send, whatever a few others send.

    Every client counts the same, because nobody can verify how many rows a client has.

    Tensors that the same clients have form one vector per client. So a part that only some clients
    have is decided among these, and enough of them must have it. What only one client has is
    returned to it. Tensors that are not parameters (normalisation statistics) are not in these
    vectors, because they have other units: every client receives their elementwise median.

    If a round has too few clients (some were left out), the rule tolerates as many attackers as
    these allow, warns, and logs the number as ``exchange/bears``.

    Args:
        attackers: the number of clients in a round that may be attackers; or their share, in (0,
            0.5), rounded down.

    Raises:
        ConfigError: neither a number of at least 1 nor a share in (0, 0.5).
    """

    needs = frozenset({"states"})
    by_setting: ClassVar[bool] = False
    """Whether ``attackers`` is in the equation; otherwise it is only compared with what the rule
    tolerates."""

    def __init__(self, attackers: int | float = 1) -> None:
        valid = (
            attackers >= 1
            if isinstance(attackers, int)
            else isinstance(attackers, float) and 0 < attackers < 0.5
        )
        expected = "a whole number of at least 1, or a share in (0, 0.5)"
        mend = "where there are none take fedlit.Mean"
        demand(
            valid and attackers is not True,
            f"{type(self).__name__}: attackers",
            expected,
            repr(attackers),
            mend,
        )
        self.attackers = attackers

    # ------------------------------------------------------------------ how many

    @staticmethod
    def fewest(attackers: int) -> int:
        """Return how many clients the rule's theory needs for a number of attackers: a majority of
        honest ones.
        """
        return 2 * attackers + 1

    def most(self, clients: int) -> int:
        """Return how many attackers the rule's theory allows among a number of clients."""
        attackers = 0
        while self.fewest(attackers + 1) <= clients:
            attackers += 1
        return attackers

    def expected(self, clients: int) -> int:
        """Return how many attackers the rule is configured to expect among a number of clients."""
        if isinstance(self.attackers, int):
            return self.attackers
        return math.floor(round(self.attackers * clients, 9))  # 0.3 * 10 is 3.0000000000000004

    def bears(self, clients: int) -> int:
        """Return how many attackers among a number of clients are tolerated: the result stays near
        that of the others.

        Example:
            >>> from fedlit import Krum, Median
            >>> Median().bears(10), Krum(attackers=2).bears(10), Krum(attackers=2).bears(6)
            (4, 2, 1)
        """
        most = self.most(clients)
        return min(most, self.expected(clients)) if self.by_setting else most

    def _promise(self, sharing: Sharing, clients: int) -> str:
        sizes = {len(owners) for owners in by_owners(sharing.names)}
        fewer = sorted(
            {self.bears(min(size, clients)) for size in sizes if 1 < size < len(sharing.names)}
        )
        some = (
            f", down to {fewer[0]} among those that share a tensor which fewer have"
            if fewer
            else ""
        )
        single = "; what a single client has goes back to it" if 1 in sizes else ""
        return (
            f"tolerates {_attackers(self.bears(clients))} among the {clients} clients of a "
            f"round{some}{single}"
        )

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse rounds with fewer clients than the theory needs, for each part that is shared.

        Returns:
            How many attackers it tolerates.

        Raises:
            ConfigError: a part has too few clients; the message names the part and the clients that
                have it.
        """
        everybody = len(sharing.names)
        for owners, names in by_owners(sharing.names).items():
            if len(owners) < 2:
                continue  # what a single client has goes back to it
            coming = max(0, clients - (everybody - len(owners)))  # in the worst draw
            attackers = self.expected(coming)
            who = (
                f"{len(owners)} clients ({', '.join(owners)})"
                if len(owners) < everybody
                else f"all {everybody}"
            )
            part = f", of which a round may have {coming}" if clients < everybody else ""
            mend = " or raise exchange.participation," if clients < everybody else ""
            mend = (
                f"lower attackers,{mend} federate less (exchange.federated: [..., !NAME]), or "
                "take fedlit.Mean"
            )
            expected = (
                f"at least {self.fewest(attackers)} clients in a round, which it needs for "
                f"{_attackers(attackers)}"
            )
            key = f"exchange.rule: {type(self).__name__}"
            actual = f"{names[0]} at {who}{part}"
            demand(coming >= self.fewest(attackers), key, expected, actual, mend)
        return self._promise(sharing, clients)

    # ------------------------------------------------------------------ a round

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        average: dict[str, Tensor] = {}
        borne: list[int] = []
        moving = set().union(*(update.parameters for update in round.updates.values()))
        for owners, names in by_owners(
            {name: update.state for name, update in round.updates.items()}
        ).items():
            states = [round.updates[name].state for name in owners]
            if len(owners) == 1:
                average |= {name: states[0][name].clone() for name in names}
                continue
            borne.append(self.bears(len(owners)))
            vectors = [name for name in names if name in moving]
            if vectors:
                average |= _tensors(
                    self.aggregate(_matrix(states, vectors), vectors), vectors, states[0]
                )
            buffers = [name for name in names if name not in moving]
            if buffers:
                average |= _tensors(middle(_matrix(states, buffers)), buffers, states[0])
        self._say(round, min(borne, default=0))
        return spread(average, round)

    @abstractmethod
    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """Aggregate parameters that the same clients have.

        Args:
            sent: [clients, numbers], in the order of clients' names; float64 if the device has it.
            names: the names of the parameters, in their order in ``sent``.

        Returns:
            [numbers].
        """

    def _say(self, round: Round, borne: int) -> None:
        reported = self.scalars.get("bears")
        self.scalars = {"bears": float(borne)}
        if round.updates and borne < self.expected(len(round.updates)) and borne != reported:
            _log.warning(
                f"exchange {round.number + 1}: {type(self).__name__} has updates of "
                f"{len(round.updates)} clients and tolerates {_attackers(borne)} among those that "
                f"share a tensor, not the {self.expected(len(round.updates))} that it was told to "
                "expect; see who was left out"
            )


class Moves(Robust):
    """A robust rule that looks at how far clients moved from the result of the last exchange."""

    _memory: tuple[str, ...] = ("given",)

    def __init__(self, attackers: int | float = 1) -> None:
        super().__init__(attackers)
        self._given: dict[str, Tensor] = {}

    @torch.no_grad()
    def begin(self, round: Round) -> Mapping[str, State]:
        """Remember what clients start from, which is the same for all honest clients."""
        parameters = {name: update.parameters for name, update in round.updates.items()}
        for owners, names in by_owners(parameters).items():
            states = [round.updates[name].state for name in owners]
            self._given |= _tensors(middle(_matrix(states, names)), names, states[0])
        return {}

    def aggregate(self, sent: Tensor, names: Sequence[str]) -> Tensor:
        """See :class:`Robust`."""
        if any(name not in self._given for name in names):  # nobody said what they start from
            before = middle(sent)
        else:
            before = torch.cat([self._given[name].to(sent).flatten() for name in names])
        return before + self.move(sent - before, names)

    @abstractmethod
    def move(self, moved: Tensor, names: Sequence[str]) -> Tensor:
        """Return how far the result moves, [numbers], given how far clients moved, [clients,
        numbers].
        """

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        received = super().__call__(round)
        parameters = set().union(*(update.parameters for update in round.updates.values()))
        for state in received.values():
            self._given |= {name: state[name].clone() for name in parameters & state.keys()}
        return received


def clipped(moved: Tensor, bound: float | None) -> Tensor:
    """Return vectors, [clients, numbers], shortened to at most the bound, or if None, to their
    median length.
    """
    lengths = moved.norm(dim=1)
    most = middle(lengths) if bound is None else torch.full_like(lengths[0], bound)
    return (
        moved
        * torch.where(
            lengths > most, most / lengths.clamp_min(torch.finfo(lengths.dtype).tiny), 1.0
        )[:, None]
    )


def check_bound(rule: Rule, key: str, bound: float | None) -> None:
    """Refuse a bound that is not a finite length above 0."""
    mend = "leave it out for the median of what clients move"
    demand(
        bound is None or 0 < bound < math.inf,
        f"{type(rule).__name__}: {key}",
        "a length above 0",
        bound,
        mend,
    )


def _attackers(number: int) -> str:
    return "1 attacker" if number == 1 else f"{number} attackers"


def _matrix(states: Sequence[State], names: Sequence[str]) -> Tensor:
    """Return [clients, numbers], in a wide dtype so that the square of a huge number is finite."""
    # Apple's GPUs have no other
    wide = torch.float32 if states[0][names[0]].device.type == "mps" else torch.float64
    rows = []
    for state in states:
        rows.append(torch.cat([state[name].detach().to(wide).flatten() for name in names]))
    return torch.stack(rows)


def _tensors(vector: Tensor, names: Sequence[str], like: State) -> dict[str, Tensor]:
    """Split a vector into named tensors."""
    parts = vector.split([like[name].numel() for name in names])
    return {
        name: part.view(like[name].shape).to(like[name].dtype)
        for name, part in zip(names, parts, strict=True)
    }


class Median(Robust):
    """Every client receives the elementwise median of what clients send: the middle value, or the
    mean of the two middle values (Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-Robust
    Distributed Learning: Towards Optimal Statistical Rates", arXiv:1803.01498).

    It tolerates f attackers among n clients if n > 2f.

    Args:
        attackers: the number to expect; too few clients for it are refused (see
            :class:`~fedlit.exchange.rules.robust.Robust`).

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
        # not by products of matrices: beside a huge vector, these cannot tell the others apart
        distances = torch.cdist(sent, sent, compute_mode="donot_use_mm_for_euclid_dist").square()
        # the first is its distance from itself
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
        demand(
            keep is None or keep >= 1,
            "MultiKrum: keep",
            "at least 1 client",
            keep,
            "leave it out for n − f",
        )
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
            :class:`~fedlit.exchange.rules.robust.Robust`).
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
            :class:`~fedlit.exchange.rules.robust.Robust`).
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
