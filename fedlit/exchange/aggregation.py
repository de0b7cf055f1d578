"""One round of an exchange, wherever clients are: who is left out, what the rule makes of the others, its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError, told_as
from fedlit.exchange.checked import Unchanged, check_received, failed
from fedlit.exchange.questions import Blueprint, Losses, Own, Question, bytes_of
from fedlit.exchange.rule import Ask, Round, Rule, Update
from fedlit.names import Clustering
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, all_finite, relative_distance

__all__ = ["BEGIN", "Aggregation", "Others", "Outcome"]

BEGIN = -1
"""The number of the round before training, in which a rule says what clients start from."""


@dataclass(frozen=True)
class Outcome:
    """What came of a round.

    Attributes:
        received: client → named tensors; of the clients here.
        lost: clients whose update was not finite, by name; of all.
        records: what to log, by key (``<client>/drift`` of the clients here, ``drift``, …).
        bytes: that travelled, from and to all clients.
        clustering: who belongs together, where the rule says so and runs here.
    """

    received: Mapping[str, State]
    lost: tuple[str, ...] = ()
    records: Mapping[str, Tensor | float] = field(default_factory=dict)
    bytes: int = 0
    clustering: Clustering | None = None


class Others:
    """Processes that aggregate together, each with the updates of its own clients; by itself there are no others."""

    def gather(self, topic: str, value: Any) -> list[Any]:
        """What each says of a topic, by the order of clients."""
        return [value]

    def is_here(self, client: str) -> bool:
        """Whether a client is this process's."""
        return True

    def apply(self, rule: Rule, round: Round) -> Mapping[str, State]:
        """What clients here receive."""
        return rule(round)


class Aggregation:
    """Applies a rule to what clients sent.

    Args:
        rule: it.
        seed: the run's.
        minimum: fails where fewer clients have a finite update.
        sharing: what of each client is federated.
        model: of a client, by name.
        device: where it computes.
    """

    def __init__(self, rule: Rule, seed: int, minimum: int, sharing: Sharing, model: Any, device: torch.device) -> None:
        self.rule, self.seed, self.minimum, self.sharing = rule, seed, minimum, sharing
        self._model, self.device = model, device

    def __call__(
        self, number: int, collected: Mapping[str, Update], ask: Ask, *, measure: bool, others: Others | None = None
    ) -> Outcome:
        """One round.

        Args:
            number: exchanges before it, or :data:`BEGIN`.
            collected: client → what it sent, in any order.
            ask: asks clients.
            measure: whether each client's drift is computed, its relative distance from what it receives.
            others: who aggregate with this process, which collected from its own clients only; nobody if None.

        Raises:
            RunError: too few clients have a finite update, or the rule returned what cannot be meant.
        """
        begin, others = number == BEGIN, others or Others()
        updates = collected = dict(sorted(collected.items()))
        lost: tuple[str, ...] = ()
        if not begin and all(update.finite is None for update in collected.values()):
            updates, lost = self._finite(number, collected, others)
        receivers = {name: tuple(own) for name, own in self.sharing.names.items() if others.is_here(name)}
        receivers |= {name: tuple(update.state) for name, update in collected.items()}
        asked = _Asked(ask, self.sharing)
        round = Round(number, self._seed(number), updates, receivers, asked, self._blueprint(updates))
        sent = [(name, part) for name, own in updates.items() for part in (own.state, own.published)]
        unchanged = Unchanged((f"{key} of {name}", value) for name, part in sent for key, value in part.items())
        blamed = told_as(lambda error: failed(self.rule, round, error, begin=begin))
        with torch.no_grad(), isolated_rng(round.seed, self.device), blamed:
            received = self.rule.begin(round) if begin else others.apply(self.rule, round)
        check_received(self.rule, round, received, self.sharing.forms, begin=begin)
        if changed := unchanged.changed():
            raise RunError(
                f"exchange.rule: {type(self.rule).__name__}: expected updates to stay as they are, found that "
                f"{changed} was changed in place; let the rule work on a copy (tensor.clone())"
            )
        weight = asked.weigh(collected, received) if received or not begin else 0
        drift = self._drift(updates, received) if measure and not begin else {}
        far = torch.stack(list(drift.values())) if drift else torch.empty(0)
        told = others.gather("what was exchanged", {"bytes": weight, "clients": list(drift), "drift": far})
        weight = sum(own["bytes"] for own in told)
        records: dict[str, Tensor | float] = {}
        if not begin:
            records = {
                f"{name}/drift": value for own in told for name, value in zip(own["clients"], own["drift"], strict=True)
            }
            if records:
                records["drift"] = torch.stack(list(records.values())).nanmean()  # type: ignore[arg-type]
                records["exchange/rounds"] = float(number + 1)
            records["exchange/bytes"] = float(weight)
            records |= {f"exchange/{tag}": value for tag, value in self.rule.scalars.items()}
        return Outcome(received, lost, records, weight, getattr(self.rule, "clustering", None))

    def _seed(self, number: int) -> int:
        return derive_seed(self.seed, "exchange", "begin" if number == BEGIN else number)

    def _blueprint(self, updates: Mapping[str, Update]) -> Blueprint | None:
        first = next(iter(updates), None)
        model: Blueprint | None = None if first is None else self._model(first)
        return model

    def _finite(
        self, number: int, collected: Mapping[str, Update], others: Others
    ) -> tuple[dict[str, Update], tuple[str, ...]]:
        flags = all_finite({name: {**update.state, **update.published} for name, update in collected.items()})
        known = dict(zip(flags, torch.stack(list(flags.values())).tolist(), strict=True)) if flags else {}
        told = others.gather("which updates are finite", known)
        lost = tuple(name for own in told for name, finite in own.items() if not finite)
        require(sum(map(len, told)) - len(lost), lost, self.minimum, f"exchange {number + 1}")
        return {name: update for name, update in collected.items() if known[name]}, lost

    def _drift(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> dict[str, Tensor]:
        drift = {}
        for name, update in updates.items():
            state = {key: update.state[key] for key in self.sharing.parameters[name] if key in update.state}
            value = relative_distance(state, received.get(name, {}))
            if value is not None:
                drift[name] = value
        return drift


def require(remaining: int, lost: Sequence[str], minimum: int, where: str) -> None:
    """Refuse to go on with too few clients.

    Raises:
        RunError: fewer than the minimum remain.
    """
    if remaining < minimum:
        raise RunError(
            f"{where}: expected a finite state from at least {minimum} clients, found it at {remaining} "
            f"(not finite: {', '.join(lost)}); lower the learning rate, clip gradients "
            "(model.gradient_clip_val) or look at these clients' data"
        )


class _Asked:
    """Asks, and remembers what that weighs and which tensors clients have got by it.

    Args:
        ask: asks clients.
        sharing: what each of them has.
    """

    def __init__(self, ask: Ask, sharing: Sharing) -> None:
        self._ask, self._sharing, self._bytes = ask, sharing, 0
        self._had: dict[str, set[int]] = {}

    def __call__(self, questions: Mapping[str, Question]) -> Mapping[str, Any]:
        questions = {name: self._fitting(name, question) for name, question in questions.items()}
        answers = self._ask(questions)
        for name, question in questions.items():
            states = question.states if isinstance(question, Losses) else ()
            answer = answers[name]
            self._bytes += sum(map(bytes_of, states))
            if isinstance(question, Own):  # what a client of its own makes of it, nobody knows: it has nothing by it
                self._bytes += bytes_of(question.tensors)
            self._bytes += bytes_of({"answer": answer} if isinstance(answer, Tensor) else answer)
            self._had.setdefault(name, set()).update(value.data_ptr() for own in states for value in own.values())
        return answers

    def _fitting(self, client: str, question: Question) -> Question:
        """Without tensors that the client does not have."""
        if not isinstance(question, Losses):
            return question
        names = self._sharing.names[client]
        return Losses([{name: state[name] for name in names if name in state} for state in question.states])

    def weigh(self, collected: Mapping[str, Update], received: Mapping[str, State]) -> int:
        """The bytes of a round. What a client was asked about it has already."""
        weight = self._bytes + sum(map(bytes_of, received.values()))
        for name, update in collected.items():
            weight += bytes_of(update.state) + bytes_of(update.published)
            had = self._had.get(name, ())
            weight -= bytes_of({key: own for key, own in received.get(name, {}).items() if own.data_ptr() in had})
        return weight
