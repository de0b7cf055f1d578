"""What a rule is: from what clients of a round sent to what each client receives."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch.optim import Optimizer

from fedlit.client import FederatedClient
from fedlit.client.hooks import warn_of_misspelt
from fedlit.exchange.questions import Blueprint, Question
from fedlit.sharing import Sharing, State

__all__ = ["DOWN", "Ask", "Need", "Round", "Rule", "Update", "settings_of"]

DOWN = "down/"
"""What begins the names of tensors that a rule sends beside the federated ones: they reach ``on_receive`` and are
written nowhere else."""

Ask = Callable[[Mapping[str, Question]], Mapping[str, Any]]
Need = Literal["rows", "steps", "states", "answers", "model"]


@dataclass(frozen=True)
class Update:
    """What one client sends.

    Attributes:
        state: its federated tensors by name (live: a rule must not change them in place).
        rows: number of its training rows; 0 where the rule does not need them and the client is elsewhere.
        published: what the client's ``publish`` returned.
        parameters: those names of ``state`` that are parameters; others are buffers, or an optimizer's.
        steps: optimizer steps that the client has taken since the last exchange; 0 like ``rows``.
    """

    state: State
    rows: int = 0
    published: State = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    steps: int = 0


@dataclass(frozen=True)
class Round:
    """All that a rule sees. It holds no client.

    Attributes:
        number: exchanges before this one; −1 for what comes before training.
        seed: a function of (the run's seed, number); a rule that draws numbers derives its seeds from it.
        updates: client → update, ordered by client name. Clients that took no part, or whose update was not finite,
            are left out.
        receivers: client → names of its federated tensors; all clients, those left out too.
        ask: asks clients, all at once: ``ask({client: question})`` gives ``{client: answer}``: a tensor, or named
            ones where the question says so.
        model: the clients' common part as it is before training.
    """

    number: int
    seed: int
    updates: Mapping[str, Update]
    receivers: Mapping[str, tuple[str, ...]]
    ask: Ask = field(default=lambda questions: {})
    model: Blueprint | None = None


class Rule(ABC):
    """The mathematics of an exchange.

    One that must remember something between exchanges keeps it in ``state_dict`` / ``load_state_dict``, which go into
    the checkpoint. What it returns is checked: names, shapes, types, finite values, nothing changed in place.

    Attributes:
        leaves_start: whether its ``begin``, if it has one, looks on and changes nothing.
        by_questions: whether it works by what it asks and needs no federated tensor: exchanges then take place where
            ``exchange.federated`` is empty, too.
        by_mean: whether it looks at nothing of updates but their mean over those that have a tensor (by rows, if it
            ``needs`` these): what is true of a masked sum is enough for it.
        requires: the name of the client class that it works with, such as ``Scaffold``; empty for any.
    """

    by_mean: ClassVar[bool] = False
    leaves_start: ClassVar[bool] = False
    by_questions: ClassVar[bool] = False
    requires: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        warn_of_misspelt(cls, Rule)

    @property
    def needs(self) -> frozenset[Need]:
        """Of each client: the number of its training ``rows`` or of its optimizer ``steps``, its single ``states`` (a
        sum would not do), ``answers`` to questions, the sizes of its network (``model``). What it does not need,
        clients elsewhere do not send.
        """
        return frozenset({"rows", "steps", "states"})

    @property
    def adds_answers(self) -> frozenset[str]:
        """Topics (of :class:`~fedlit.exchange.questions.Own`) of which it puts the same question to all clients and
        does nothing with the answers but add them: their sum as one client's answer, and zeros as the others', would
        do. Masked sums tell no more; what it asks else is answered by each client as it is.
        """
        return frozenset()

    @property
    def asks(self) -> str:
        """What it asks of each client beside its update, in words for the plan; empty for nothing."""
        return ""

    @property
    def questions(self) -> frozenset[str]:
        """Kinds of what it asks: ``losses``, ``input_range``, or topics of :class:`~fedlit.exchange.questions.Own`. A
        site answers no other. ``*`` where a rule does not say.
        """
        return frozenset({"*"} if "answers" in self.needs else ())

    def would_ask(self, question: Question) -> bool:
        """Whether a question is as this rule would put it, as far as its settings say: asked by a site before it
        answers. Kinds are looked at before.
        """
        return True

    @property
    def sends(self) -> str:
        """What it sends to each client under names of :data:`DOWN`, in words for the plan; empty for nothing."""
        return ""

    @property
    def scalars(self) -> Mapping[str, float]:
        """What to log of the last exchange, by tag; nothing by default."""
        return {}

    def narrow(self, federated: Sequence[str], by_name: Sequence[str]) -> tuple[list[str], list[str]]:
        """What of a network travels, and what slice by slice, where the rule has a say in it.

        Args:
            federated: patterns of ``exchange.federated``.
            by_name: patterns of ``exchange.by_name``.

        Returns:
            The same, with further patterns.
        """
        return list(federated), list(by_name)

    def promise(self, sharing: Sharing, clients: int) -> str:
        """How many attackers it bears, in words for the plan; empty where it promises nothing.

        Args:
            sharing: what of each client is federated.
            clients: how many take part in a round.
        """
        return ""

    def remarks(self, optimizer: Optimizer, state: str, client: FederatedClient) -> list[str]:
        """What a person should know of a client and its optimizer under this rule, for the plan; nothing by default.

        Args:
            optimizer: as the client's configuration makes it.
            state: what becomes of it in an exchange (``exchange.optimizer_state``).
            client: whose it is.
        """
        return []

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> None:
        """Refuse, before training, what the rule cannot work with; by default it can work with anything.

        Args:
            sharing: what of each client is federated.
            rate: the exchange's update rate.
            model: the clients' common part.
            clients: how many take part in a round.

        Raises:
            ConfigError: what is wrong, and what to do.
        """
        return None

    def begin(self, round: Round) -> Mapping[str, State]:
        """What clients start from, given what they would start from: called once, before the first step.

        Args:
            round: with all clients.

        Returns:
            As the rule itself; clients that are missing stay as they are, by default all.
        """
        return {}

    @abstractmethod
    def __call__(self, round: Round) -> Mapping[str, State]:
        """What each client receives.

        Returns:
            client → named tensors, for each of ``round.receivers``; ``{}`` for one that receives nothing. A name that
            is missing leaves the client's tensor as it is. Clients may share tensors. Names that begin with
            :data:`DOWN` may stand beside the federated ones.
        """

    def state_dict(self) -> dict[str, Any]:
        """What the rule remembers: tensors, numbers, strings, lists and dictionaries of these."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if state:
            raise TypeError(f"{type(self).__name__} saves {sorted(state)} but does not restore it; add load_state_dict")


def settings_of(rule: Rule) -> str:
    """A rule and what it was made with, as far as these are plain values.

    Example:
        >>> from fedlit import FedAvgM
        >>> settings_of(FedAvgM(0.5))
        "FedAvgM(momentum=0.5, weights='uniform', lr=1.0)"
    """
    known, parameters = vars(rule), inspect.signature(type(rule).__init__).parameters
    names = [name for name in parameters if name in known and isinstance(known[name], str | int | float | dict | None)]
    return f"{type(rule).__name__}({', '.join(f'{name}={known[name]!r}' for name in names)})"
