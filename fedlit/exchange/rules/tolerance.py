"""The base classes of rules that tolerate attackers: how many they tolerate, and the vectors of the
clients that share a part.
"""

import logging
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedlit.errors import ConfigError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.rule import Round, Rule, by_owners
from fedlit.exchange.rules.mean import spread
from fedlit.precision import widest
from fedlit.sharing import Sharing, State
from fedlit.show.text import counted

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
    # The two values are halved before they are added, so that their sum cannot overflow.
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
        if not _is_number_or_share(attackers):
            raise ConfigError(
                f"{type(self).__name__}: attackers: expected a whole number of at least 1, or a "
                f"share in (0, 0.5), found {attackers!r}; where there are none take fedlit.Mean"
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
        if self.by_setting:
            return min(most, self.expected(clients))
        return most

    def _promise(self, sharing: Sharing, clients: int) -> str:
        sizes = {len(owners) for owners in by_owners(sharing.names)}
        fewer = [min(size, clients) for size in sizes if 1 < size < len(sharing.names)]
        attackers = counted(self.bears(clients), "attacker")
        promise = f"tolerates {attackers} among the {clients} clients of a round"
        if fewer:
            least = min(self.bears(size) for size in fewer)
            promise += f", down to {least} among those that share a tensor which fewer have"
        if 1 in sizes:
            promise += "; what a single client has goes back to it"
        return promise

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
                continue  # What a single client has goes back to it.
            # In the worst draw, all clients that sit the round out have the tensor.
            coming = max(0, clients - (everybody - len(owners)))
            attackers = self.expected(coming)
            if coming >= self.fewest(attackers):
                continue
            actual = f"{names[0]} at all {everybody}"
            if len(owners) < everybody:
                actual = f"{names[0]} at {len(owners)} clients ({', '.join(owners)})"
            mend = "lower attackers,"
            if clients < everybody:
                actual += f", of which a round may have {coming}"
                mend += " or raise exchange.participation,"
            raise ConfigError(
                f"exchange.rule: {type(self).__name__}: expected at least "
                f"{self.fewest(attackers)} clients in a round, which it needs for "
                f"{counted(attackers, 'attacker')}, found {actual}; {mend} federate less "
                "(exchange.federated: [..., !NAME]), or take fedlit.Mean"
            )
        return self._promise(sharing, clients)

    # ------------------------------------------------------------------ a round

    @torch.no_grad()
    def __call__(self, round: Round) -> Mapping[str, State]:
        """See :class:`~fedlit.exchange.rule.Rule`."""
        average: dict[str, Tensor] = {}
        borne: list[int] = []
        moving = set().union(*(update.parameters for update in round.updates.values()))
        sent = {name: update.state for name, update in round.updates.items()}
        for owners, names in by_owners(sent).items():
            states = [round.updates[name].state for name in owners]
            if len(owners) == 1:
                average |= {name: states[0][name].clone() for name in names}
                continue
            borne.append(self.bears(len(owners)))
            vectors = [name for name in names if name in moving]
            if vectors:
                center = self.aggregate(_matrix(states, vectors), vectors)
                average |= _tensors(center, vectors, states[0])
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
                f"{len(round.updates)} clients and tolerates {counted(borne, 'attacker')} among those that "
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
        if any(name not in self._given for name in names):  # It is not known what they start from.
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
    if bound is None:
        most = middle(lengths)
    else:
        most = torch.full_like(lengths[0], bound)
    shares = most / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
    return moved * torch.where(lengths > most, shares, 1.0)[:, None]


def check_bound(rule: Rule, key: str, bound: float | None) -> None:
    """Refuse a bound that is not a finite length above 0."""
    if bound is not None and not 0 < bound < math.inf:
        raise ConfigError(
            f"{type(rule).__name__}: {key}: expected a length above 0, found {bound}; leave it out "
            "for the median of what clients move"
        )


def _is_number_or_share(attackers: object) -> bool:
    if isinstance(attackers, bool):
        return False
    if isinstance(attackers, int):
        return attackers >= 1
    return isinstance(attackers, float) and 0 < attackers < 0.5


def _matrix(states: Sequence[State], names: Sequence[str]) -> Tensor:
    """Return [clients, numbers], in a wide dtype so that the square of a huge number is finite."""
    wide = widest(states[0][names[0]].device)
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
