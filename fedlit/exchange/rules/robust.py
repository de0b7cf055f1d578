"""The base classes of rules that tolerate attackers: how many, among whom, and parts that only some clients have."""

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
    """Return the median along the first axis; for an even number, the mean of the two middle values.

    Example:
        >>> middle(torch.tensor([[1.0, 5.0], [3.0, 1e9], [2.0, 6.0]]))
        tensor([2., 6.])
    """
    ordered, count = values.sort(0).values, len(values)
    return ordered[(count - 1) // 2] * 0.5 + ordered[count // 2] * 0.5  # halved before they are added: no overflow


class Robust(Rule):
    """A rule whose result stays near what honest clients send, whatever a few others send.

    Every client counts the same, because nobody can verify how many rows a client has.

    Tensors that the same clients have form one vector per client. So a part that only some clients have is decided
    among these, and enough of them must have it. What only one client has is returned to it. Tensors that are not
    parameters (normalisation statistics) are not in these vectors, because they have other
    units: every client receives their elementwise median.

    If a round has too few clients (some were left out), the rule tolerates as many attackers as these allow, warns,
    and logs the number as ``exchange/bears``.

    Args:
        attackers: the number of clients in a round that may be attackers; or their share, in (0, 0.5), rounded down.

    Raises:
        ConfigError: neither a number of at least 1 nor a share in (0, 0.5).
    """

    needs = frozenset({"states"})
    by_setting: ClassVar[bool] = False
    """Whether ``attackers`` is in the equation; otherwise it is only compared with what the rule tolerates."""

    def __init__(self, attackers: int | float = 1) -> None:
        fits = attackers >= 1 if isinstance(attackers, int) else isinstance(attackers, float) and 0 < attackers < 0.5
        wanted, mend = "a whole number of at least 1, or a share in (0, 0.5)", "where there are none take fedlit.Mean"
        demand(fits and attackers is not True, f"{type(self).__name__}: attackers", wanted, repr(attackers), mend)
        self.attackers = attackers

    # ------------------------------------------------------------------ how many

    @staticmethod
    def fewest(attackers: int) -> int:
        """Return how many clients the rule's theory needs for a number of attackers: a majority of honest ones."""
        return 2 * attackers + 1

    def most(self, clients: int) -> int:
        """Return how many attackers the rule's theory allows among a number of clients."""
        found = 0
        while self.fewest(found + 1) <= clients:
            found += 1
        return found

    def expected(self, clients: int) -> int:
        """Return how many attackers the rule is configured to expect among a number of clients."""
        if isinstance(self.attackers, int):
            return self.attackers
        return math.floor(round(self.attackers * clients, 9))  # 0.3 * 10 is 3.0000000000000004

    def bears(self, clients: int) -> int:
        """Return how many attackers among a number of clients are tolerated: the result stays near that of the others.

        Example:
            >>> from fedlit import Krum, Median
            >>> Median().bears(10), Krum(attackers=2).bears(10), Krum(attackers=2).bears(6)
            (4, 2, 1)
        """
        most = self.most(clients)
        return min(most, self.expected(clients)) if self.by_setting else most

    def _promise(self, sharing: Sharing, clients: int) -> str:
        sizes = {len(owners) for owners in by_owners(sharing.names)}
        fewer = sorted({self.bears(min(size, clients)) for size in sizes if 1 < size < len(sharing.names)})
        some = f", down to {fewer[0]} among those that share a tensor which fewer have" if fewer else ""
        single = "; what a single client has goes back to it" if 1 in sizes else ""
        return f"tolerates {_attackers(self.bears(clients))} among the {clients} clients of a round{some}{single}"

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str:
        """Refuse rounds with fewer clients than the theory needs, for each part that is shared.

        Returns:
            How many attackers it tolerates.

        Raises:
            ConfigError: a part has too few clients; the message names the part and the clients that have it.
        """
        everybody = len(sharing.names)
        for owners, names in by_owners(sharing.names).items():
            if len(owners) < 2:
                continue  # what a single client has goes back to it
            coming = max(0, clients - (everybody - len(owners)))  # in the worst draw
            attackers = self.expected(coming)
            who = f"{len(owners)} clients ({', '.join(owners)})" if len(owners) < everybody else f"all {everybody}"
            part = f", of which a round may have {coming}" if clients < everybody else ""
            mend = " or raise exchange.participation," if clients < everybody else ""
            mend = f"lower attackers,{mend} federate less (exchange.federated: [..., !NAME]), or take fedlit.Mean"
            wanted = f"at least {self.fewest(attackers)} clients in a round, which it needs for {_attackers(attackers)}"
            where, found = f"exchange.rule: {type(self).__name__}", f"{names[0]} at {who}{part}"
            demand(coming >= self.fewest(attackers), where, wanted, found, mend)
        return self._promise(sharing, clients)

    # ------------------------------------------------------------------ a round

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        average: dict[str, Tensor] = {}
        borne: list[int] = []
        moving = {name for update in round.updates.values() for name in update.parameters}
        for owners, names in by_owners({name: update.state for name, update in round.updates.items()}).items():
            states = [round.updates[name].state for name in owners]
            if len(owners) == 1:
                average |= {name: states[0][name].clone() for name in names}
                continue
            borne.append(self.bears(len(owners)))
            vectors = [name for name in names if name in moving]
            if vectors:
                average |= _tensors(self.aggregate(_matrix(states, vectors), vectors), vectors, states[0])
            others = [name for name in names if name not in moving]
            if others:
                average |= _tensors(middle(_matrix(states, others)), others, states[0])
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
        known, self.scalars = self.scalars.get("bears"), {"bears": float(borne)}
        if round.updates and borne < self.expected(len(round.updates)) and borne != known:
            _log.warning(
                f"exchange {round.number + 1}: {type(self).__name__} has updates of {len(round.updates)} clients and "
                f"tolerates {_attackers(borne)} among those that share a tensor, not the "
                f"{self.expected(len(round.updates))} that it was told to expect; see who was left out"
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
        """Return how far the result moves, [numbers], given how far clients moved, [clients, numbers]."""

    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        received = super().__call__(round)
        parameters = {name for update in round.updates.values() for name in update.parameters}
        for state in received.values():
            self._given |= {name: state[name].clone() for name in parameters & state.keys()}
        return received


def clipped(moved: Tensor, bound: float | None) -> Tensor:
    """Return vectors, [clients, numbers], shortened to at most the bound, or if None, to their median length."""
    lengths = moved.norm(dim=1)
    most = middle(lengths) if bound is None else torch.full_like(lengths[0], bound)
    return moved * torch.where(lengths > most, most / lengths.clamp_min(torch.finfo(lengths.dtype).tiny), 1.0)[:, None]


def check_bound(rule: Rule, key: str, bound: float | None) -> None:
    """Refuse a bound that is not a finite length above 0."""
    mend = "leave it out for the median of what clients move"
    demand(bound is None or 0 < bound < math.inf, f"{type(rule).__name__}: {key}", "a length above 0", bound, mend)


def _attackers(number: int) -> str:
    return "1 attacker" if number == 1 else f"{number} attackers"


def _matrix(states: Sequence[State], names: Sequence[str]) -> Tensor:
    """Return [clients, numbers], in a wide dtype so that the square of a huge number is finite."""
    wide = torch.float32 if states[0][names[0]].device.type == "mps" else torch.float64  # Apple's GPUs have no other
    return torch.stack([torch.cat([state[name].detach().to(wide).flatten() for name in names]) for state in states])


def _tensors(vector: Tensor, names: Sequence[str], like: State) -> dict[str, Tensor]:
    """Split a vector into named tensors."""
    parts = vector.split([like[name].numel() for name in names])
    return {name: part.view(like[name].shape).to(like[name].dtype) for name, part in zip(names, parts, strict=True)}
