"""Rules: from the updates of a round to what each client receives."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from fedlit.client.hooks import warn_of_misspelt
from fedlit.errors import ConfigError
from fedlit.exchange.questions import Blueprint, Question
from fedlit.sharing import Sharing, State

__all__ = ["DOWN", "Ask", "Facts", "Need", "Round", "Rule", "Update", "demand", "settings_of"]

DOWN = "down/"
"""What begins the names of tensors that a rule sends beside the federated ones: they reach ``on_receive`` and are
written nowhere else."""

Ask = Callable[[Mapping[str, Question]], Mapping[str, Any]]
Need = Literal["rows", "steps", "states", "answers", "model"]


@dataclass(frozen=True)
class Update:
    """The message of one client in a round.

    Attributes:
        state: its federated tensors by name (live: a rule must not change them in place).
        rows: number of its training rows; 0 where the rule does not need them and the client is elsewhere.
        published: what the client's ``publish`` returned.
        parameters: those names of ``state`` that are parameters; others are buffers.
        steps: optimizer steps that the client has taken since the last exchange; 0 like ``rows``.
    """

    state: State
    rows: int = 0
    published: State = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    steps: int = 0


@dataclass(frozen=True)
class Round:
    """The input of a rule. It holds no client.

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


@dataclass(frozen=True)
class Facts:
    """The properties of a rule, as data for those who plan, carry or protect a round.

    Attributes:
        by_mean: it looks at nothing of the updates but their mean over the clients that have a tensor (by rows, if it
            ``needs`` these), so that a masked sum is enough for it.
        by_questions: it works by what it asks and needs no federated tensor: exchanges then take place where
            ``exchange.federated`` is empty, too.
        requires: the name of the client class that it works with, such as ``Scaffold``; empty for any.
        questions: kind of each question that it asks (``losses``, ``input_range``, or a topic of
            :class:`~fedlit.exchange.questions.Own`) → values that tensors of the question must have, by name. A site
            answers no other question. A rule that ``needs`` answers and names no kind may ask anything.
        adds_answers: topics of which it puts the same question to all clients and only adds the answers: their sum as
            one client's answer, and zeros as the others', would do. Masked sums tell no more.
        whole_rate: clients must take over all that they receive (``exchange.rate: 1``), as where an update is the
            difference to what was received last.
        private: patterns of tensors that do not travel, whatever ``exchange.federated`` says; each begins with ``!``.
        by_name: patterns behind those of ``exchange.by_name``.
    """

    by_mean: bool = False
    by_questions: bool = False
    requires: str = ""
    questions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    adds_answers: frozenset[str] = frozenset()
    whole_rate: bool = False
    private: tuple[str, ...] = ()
    by_name: tuple[str, ...] = ()


class Rule(ABC):
    """The mathematics of an exchange.

    A rule that has state between exchanges returns it from ``state_dict`` and restores it in ``load_state_dict``;
    the checkpoint has it. What a rule returns is checked: names, shapes, types, finite values, nothing changed in
    place.

    Attributes:
        needs: of each client: the number of its training ``rows`` or of its optimizer ``steps``, its single ``states``
            (a sum would not do), ``answers`` to questions, the sizes of its network (``model``). What the rule does not
            need, clients elsewhere do not send.
        asks: what it asks of each client beside its update, in words for the plan; empty for nothing.
        sends: what it sends to each client under names of :data:`DOWN`, in words for the plan; empty for nothing.
        scalars: what to log of the last exchange, by tag.
        facts: see :class:`Facts`.
    """

    needs: frozenset[Need] = frozenset({"rows", "steps", "states"})
    asks: str = ""
    sends: str = ""
    scalars: Mapping[str, float] = MappingProxyType({})
    facts: Facts = Facts()
    _memory: tuple[str, ...] = ()
    """Of a shipped rule: names, without the underscore, of the attributes that ``state_dict`` returns."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        warn_of_misspelt(cls, Rule)

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str | None:
        """Refuse, before training, what the rule cannot work with; by default it can work with anything.

        Args:
            sharing: what of each client is federated.
            rate: the exchange's update rate.
            model: the clients' common part.
            clients: how many take part in a round.

        Returns:
            What a person should know, such as how many attackers the rule tolerates: words that follow "The rule" in
            the plan; nothing if there is nothing to say.

        Raises:
            ConfigError: what is wrong, and what to do.
        """
        return None

    def begin(self, round: Round) -> Mapping[str, State]:
        """The state from which clients start; called once, before the first step.

        Args:
            round: the initial states of all clients as updates.

        Returns:
            As ``__call__``; clients that are missing keep their initial state, by default all.
        """
        return {}

    @abstractmethod
    def __call__(self, round: Round) -> Mapping[str, State]:
        """Aggregate the updates of a round.

        Returns:
            client → named tensors, for each of ``round.receivers``; ``{}`` for one that receives nothing. A name that
            is missing leaves the client's tensor as it is. Clients may share tensors. Names that begin with
            :data:`DOWN` may stand beside the federated ones.
        """

    def state_dict(self) -> dict[str, Any]:
        """The state between exchanges: tensors, numbers, strings, lists and dictionaries of these."""
        return {name: getattr(self, f"_{name}") for name in self._memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if state.keys() != set(self._memory):
            raise TypeError(f"{type(self).__name__} saves {sorted(state)} but does not restore it; add load_state_dict")
        for name, value in deepcopy(state).items():
            setattr(self, f"_{name}", value)


def demand(fits: bool, setting: str, wanted: str, found: Any, mend: str = "") -> None:
    """Refuse a setting of a rule.

    Raises:
        ConfigError: it does not fit.
    """
    if not fits:
        raise ConfigError(f"{setting}: expected {wanted}, found {found}" + (mend and f"; {mend}"))


def settings_of(rule: Rule) -> str:
    """A rule with its constructor arguments, as far as these are plain values.

    Example:
        >>> from fedlit import FedAvgM
        >>> settings_of(FedAvgM(0.5))
        "FedAvgM(momentum=0.5, weights='uniform', lr=1.0)"
    """
    known, parameters = vars(rule), inspect.signature(type(rule).__init__).parameters
    names = [name for name in parameters if name in known and isinstance(known[name], str | int | float | dict | None)]
    return f"{type(rule).__name__}({', '.join(f'{name}={known[name]!r}' for name in names)})"
