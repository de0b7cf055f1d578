"""What a rule is: from the clients' updates to what each client receives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from fedlit.sharing import Sharing, State

if TYPE_CHECKING:
    from fedlit.client.client import FederatedClient
    from fedlit.exchange.function import Part

__all__ = ["Party", "Rule", "Update"]


class Party(Protocol):
    """What a rule can ask of a client beside its update. A rule that does says so in :attr:`Rule.asks`; the bytes are
    counted.
    """

    def part(self) -> Part:
        """The federated part as a function; holds nothing that the client has learnt."""

    def fresh(self, seed: int) -> State:
        """Initial values of the federated tensors, drawn by another seed; they tell nothing of the client."""

    def losses(self, states: Sequence[State]) -> Tensor:
        """Mean loss over the client's training rows, (len(states),) float32, with each state's federated tensors in
        place of its own.
        """

    def input_range(self) -> Tensor:
        """Least and largest value of what enters the federated part, over the training rows: (2, *shape)."""


@dataclass(frozen=True)
class Update:
    """What one client sends.

    Attributes:
        state: its federated tensors by name (live: a rule must not change them in place).
        rows: number of its training rows.
        published: what the client's ``publish`` returned.
        finite: on an accelerator, whether all values are finite, a boolean on the device; a rule that takes masks
            leaves out the update where it is false. None where such updates have been left out before.
        parameters: those names of ``state`` that are parameters; others are buffers, or an optimizer's.
        party: what else can be asked of the client.
    """

    state: State
    rows: int
    published: State = field(default_factory=dict)
    finite: Tensor | None = None
    parameters: tuple[str, ...] = ()
    party: Party | None = None


class Rule(ABC):
    """The mathematics of an exchange.

    A rule sees named tensors only, and what it asks. One that must remember something between exchanges keeps it in
    ``state_dict`` / ``load_state_dict``, which go into the checkpoint. One that draws numbers derives its seeds from
    ``torch.initial_seed()``, which the exchange makes a function of (seed, round).

    Attributes:
        takes_masks: whether it minds :attr:`Update.finite`, so that an exchange on an accelerator need not wait.
        asks: what it asks of each client beside its update, in words for the plan; empty for nothing.
    """

    takes_masks: ClassVar[bool] = False

    @property
    def asks(self) -> str:
        """See the class."""
        return ""

    @property
    def scalars(self) -> Mapping[str, float]:
        """What to log of the last exchange, by tag; nothing by default."""
        return {}

    def check(self, clients: Mapping[str, FederatedClient], sharing: Sharing, rate: float) -> None:
        """Refuse, before training, what the rule cannot do; by default it can do everything.

        Args:
            clients: by name, untrained.
            sharing: what of each is federated.
            rate: the exchange's update rate.

        Raises:
            ConfigError: what is wrong, and what to do.
        """
        return None

    def begin(self, updates: Mapping[str, Update]) -> Mapping[str, State]:
        """What clients start from, given what they would start from: called once, before the first step.

        Args:
            updates: all clients, ordered by name.

        Returns:
            As the rule itself; nothing by default, which leaves all clients as they are.
        """
        return {}

    @abstractmethod
    def __call__(self, updates: Mapping[str, Update], receivers: Mapping[str, tuple[str, ...]]) -> Mapping[str, State]:
        """What each client receives.

        Args:
            updates: client → update, ordered by client name; clients whose update was not finite are left out.
            receivers: client → names of its federated tensors; all clients, those left out too.

        Returns:
            client → named tensors. A name that is missing leaves the client's tensor as it is. Clients may share
            tensors.
        """

    def state_dict(self) -> dict[str, Any]:
        """What the rule remembers: tensors, numbers, strings, lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if state:
            raise TypeError(f"{type(self).__name__} saves {sorted(state)} but does not restore it; add load_state_dict")
