"""Rules, which compute what each client receives from the updates of a round."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from fedlit.client.hooks import warn_of_misspelt
from fedlit.errors import ConfigError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.question_terms import QuestionTerms
from fedlit.exchange.questions import Question
from fedlit.sharing import Sharing, State

DOWN = "down/"
"""The beginning of the names of tensors that a rule sends in addition to the federated ones: they
reach ``on_receive`` and are written nowhere else."""

Ask = Callable[[Mapping[str, Question]], Mapping[str, Any]]
Need = Literal["rows", "steps", "states", "answers", "model"]


@dataclass(frozen=True)
class Update:
    """The message of one client in a round.

    Attributes:
        state: its federated tensors by name. They are not copies, and a rule must not change them
            in place.
        rows: the number of its training rows; 0 if the rule does not need it and the client is in
            another process.
        published: what the client's ``publish`` returned.
        parameters: the names in ``state`` that are parameters; the others are buffers.
        steps: the optimizer steps that the client has taken since the last exchange; 0 as for
            ``rows``.
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
        number: the number of exchanges before this one; −1 for the round before training.
        seed: a function of (the run's seed, number); a rule that draws numbers derives its seeds
            from it.
        updates: maps each client to its update, ordered by client name. It has no clients that took
            no part or that were left out.
        receivers: maps each client to the names of its federated tensors. It has all clients, also
            if they were left out.
        ask: asks clients, all at once: ``ask({client: question})`` returns ``{client: answer}``. An
            answer is a tensor, or a mapping of named tensors, depending on the question.
        model: the blueprint of the clients' common part, as it is before training.
    """

    number: int
    seed: int
    updates: Mapping[str, Update]
    receivers: Mapping[str, tuple[str, ...]]
    ask: Ask = field(default=lambda questions: {})
    model: Blueprint | None = None


@dataclass(frozen=True)
class Facts:
    """The properties of a rule, as data for code that plans, carries or protects a round.

    Attributes:
        by_mean: whether it uses nothing of the updates but their mean over the clients that have a
            tensor (weighted by rows, if it ``needs`` these), so that a masked sum is enough.
        by_questions: whether it works by questions and needs no federated tensor; exchanges then
            take place even if ``exchange.federated`` is empty.
        requires: the name of the client class that it works with, such as ``Scaffold``; empty for
            any.
        questions: maps each kind of question that it asks (``losses``, ``input_range``, or a topic
            of :class:`~fedlit.exchange.questions.Own`) to its bounds. A site answers no other
            question, and none beyond them. A rule that ``needs`` answers but names no kind may ask
            anything.
        adds_answers: the topics on which it asks all clients the same question and only adds their
            answers, so that it would do the same if one client's answer were the sum and the
            others' were zeros. Masked sums then reveal nothing else.
        whole_rate: whether clients must take over all that they receive (``exchange.rate: 1``), for
            instance because an update is the difference from what was received last.
        private: patterns of tensors that are never sent, whatever ``exchange.federated`` selects;
            each begins with ``!``.
        by_name: patterns that are appended to those of ``exchange.by_name``.
    """

    by_mean: bool = False
    by_questions: bool = False
    requires: str = ""
    questions: Mapping[str, QuestionTerms] = field(default_factory=dict)
    adds_answers: frozenset[str] = frozenset()
    whole_rate: bool = False
    private: tuple[str, ...] = ()
    by_name: tuple[str, ...] = ()


class Rule(ABC):
    """The mathematics of an exchange.

    A rule that has state between exchanges returns it from ``state_dict`` and restores it in
    ``load_state_dict``; it is saved in the checkpoint. The result of a rule is checked: its names,
    shapes and types, that its values are finite, and that nothing was changed in place.

    Attributes:
        needs: what it needs of each client: the number of its training ``rows`` or of its optimizer
            ``steps``, its individual ``states`` (their sum is not enough), ``answers`` to
            questions, or the sizes of its network (``model``). Clients in other processes do not
            send what the rule does not need.
        asks: what it asks of each client in addition to its update, in words for the plan; empty if
            it asks nothing.
        sends: what it sends to each client under names that begin with :data:`DOWN`, in words for
            the plan; empty if it sends nothing.
        scalars: the values to log for the last exchange, by tag.
        facts: see :class:`Facts`.
    """

    needs: frozenset[Need] = frozenset({"rows", "steps", "states"})
    asks: str = ""
    sends: str = ""
    scalars: Mapping[str, float] = MappingProxyType({})
    facts: Facts = Facts()
    _memory: tuple[str, ...] = ()
    """The names, without the underscore, of the attributes that ``state_dict`` of a shipped rule
    returns."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        warn_of_misspelt(cls, Rule)

    def check(self, sharing: Sharing, rate: float, model: Blueprint, clients: int) -> str | None:
        """Refuse, before training, settings that the rule cannot work with. By default, it accepts
        all.

        Args:
            sharing: which tensors of each client are federated.
            rate: the exchange's update rate.
            model: the blueprint of the clients' common part.
            clients: the number of clients that take part in a round.

        Returns:
            A remark for the user, such as how many attackers the rule tolerates, in words that
            follow "The rule" in the plan; None if there is none.

        Raises:
            ConfigError: the settings do not fit; the message names what is wrong and how to mend
                it.
        """
        return None

    def begin(self, round: Round) -> Mapping[str, State]:
        """Return the state from which clients start. Called once, before the first step.

        Args:
            round: the round before training, with the initial states of all clients as updates.

        Returns:
            As for ``__call__``. Clients that are missing keep their initial state; by default, all
            do.
        """
        return {}

    @abstractmethod
    def __call__(self, round: Round) -> Mapping[str, State]:
        """Aggregate the updates of a round.

        Returns:
            Named tensors for each client of ``round.receivers``; ``{}`` for a client that receives
            nothing. A name that is missing leaves the client's tensor as it is. Clients may share
            tensors. Names that begin with :data:`DOWN` may be added to the federated ones.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the state between exchanges: tensors, numbers, strings, lists and dictionaries of
        these.
        """
        return {name: getattr(self, f"_{name}") for name in self._memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        if state.keys() != set(self._memory):
            raise TypeError(
                f"{type(self).__name__} saves {sorted(state)} but does not restore it; add "
                "load_state_dict"
            )
        for name, value in deepcopy(state).items():
            setattr(self, f"_{name}", value)


def demand(fits: bool, setting: str, wanted: str, found: object, mend: str = "") -> None:
    """Refuse a setting of a rule unless it fits.

    Raises:
        ConfigError: the setting does not fit.
    """
    if not fits:
        raise ConfigError(f"{setting}: expected {wanted}, found {found}" + (mend and f"; {mend}"))


def by_owners(names: Mapping[str, Iterable[str]]) -> dict[tuple[str, ...], list[str]]:
    """Group tensors by the clients that have them.

    Args:
        names: maps each client to the names of its tensors.

    Returns:
        Groups of clients, in the order of names, with the names of the tensors that exactly these
        have.

    Example:
        >>> by_owners({"b": ["w", "x"], "a": ["w"]})
        {('a', 'b'): ['w'], ('b',): ['x']}
    """
    owners: dict[str, list[str]] = {}
    for client in sorted(names):
        for name in names[client]:
            owners.setdefault(name, []).append(client)
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, clients in owners.items():
        groups.setdefault(tuple(clients), []).append(name)
    return groups


def settings_of(rule: Rule) -> str:
    """Return the text of a rule's constructor call, with the arguments that are plain values.

    Example:
        >>> from fedlit import FedAvgM
        >>> settings_of(FedAvgM(0.5))
        "FedAvgM(momentum=0.5, weights='uniform', lr=1.0)"
    """
    attributes = vars(rule)
    parameters = inspect.signature(type(rule).__init__).parameters
    names = [
        name
        for name in parameters
        if name in attributes and isinstance(attributes[name], str | int | float | dict | None)
    ]
    return f"{type(rule).__name__}({', '.join(f'{name}={attributes[name]!r}' for name in names)})"
