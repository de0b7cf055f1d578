"""One round of an exchange, wherever clients are: who is left out, what the rule makes of the others, its bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.checked import Unchanged, blamed, check_received
from fedlit.exchange.guard import Guard, Verdict
from fedlit.exchange.questions import Blueprint, Losses, Own, Question, bytes_of
from fedlit.exchange.rule import Ask, Round, Rule, Update
from fedlit.names import Clustering
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, all_finite, relative_distance

__all__ = ["BEGIN", "Aggregation", "Minimum", "Outcome", "is_minimum", "least"]

Minimum = int | float | None
"""Clients that a round needs: a number, a share of those that take part, or more than half of them (None)."""

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
        verdict: what the guard found; of all, or of the clients here.
    """

    received: Mapping[str, State]
    lost: tuple[str, ...] = ()
    records: Mapping[str, Tensor | float] = field(default_factory=dict)
    bytes: int = 0
    clustering: Clustering | None = None
    verdict: Verdict = field(default_factory=Verdict)

    def to_message(self, clients: Collection[str]) -> dict[str, Any]:
        """What some clients are told, as :func:`fedlit.exchange.wire.pack` takes it."""
        return {
            "received": {name: own for name, own in self.received.items() if name in clients},
            "lost": self.lost,
            "records": {key: float(value) for key, value in self.records.items()},
            "bytes": self.bytes,
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_message(cls, told: Mapping[str, Any]) -> Outcome:
        """The inverse of :meth:`to_message`, but for clusters."""
        verdict = Verdict.from_dict(told["verdict"])
        return cls(told["received"], tuple(told["lost"]), told["records"], told["bytes"], verdict=verdict)


class Aggregation:
    """Applies a rule to what clients sent.

    Args:
        rule: it.
        seed: the run's.
        minimum: fails where fewer clients have an update that counts.
        sharing: what of each client is federated.
        model: of a client, by name.
        device: where it computes.
        guard: looks at updates before the rule; none if None.
    """

    def __init__(
        self,
        rule: Rule,
        seed: int,
        minimum: Minimum,
        sharing: Sharing,
        model: Any,
        device: torch.device,
        guard: Guard | None = None,
    ) -> None:
        self.rule, self.seed, self.minimum, self.sharing = rule, seed, minimum, sharing
        self._model, self.device, self.guard = model, device, guard

    def __call__(self, number: int, collected: Mapping[str, Update], ask: Ask, *, measure: bool) -> Outcome:
        """One round.

        Args:
            number: exchanges before it, or :data:`BEGIN`.
            collected: client → what it sent, in any order.
            ask: asks clients.
            measure: whether each client's drift is computed, its relative distance from what it receives.

        Raises:
            RunError: too few clients have a finite update, or the rule returned what cannot be meant.
        """
        begin = number == BEGIN
        updates = collected = dict(sorted(collected.items()))
        lost, verdict = tuple[str, ...](), Verdict()
        if not begin:
            updates, lost, verdict = self._usable(number, collected)
        receivers = {name: tuple(own) for name, own in self.sharing.names.items()}
        receivers |= {name: tuple(update.state) for name, update in collected.items()}
        asked = _Asked(ask, self.sharing)
        round = Round(number, self._seed(number), updates, receivers, asked, self._blueprint(updates))
        sent = [(name, part) for name, own in updates.items() for part in (own.state, own.published)]
        unchanged = Unchanged((f"{key} of {name}", value) for name, part in sent for key, value in part.items())
        with torch.no_grad(), isolated_rng(round.seed, self.device), blamed(self.rule, round, begin=begin):
            received = self.rule.begin(round) if begin else self.rule(round)
        check_received(self.rule, round, received, self.sharing.forms, begin=begin)
        if self.guard is not None:
            live = {value.data_ptr() for update in collected.values() for value in update.state.values()}
            self.guard.note(received, live)
        if changed := unchanged.changed():
            raise RunError(
                f"exchange.rule: {type(self.rule).__name__}: expected updates to stay as they are, found that "
                f"{changed} was changed in place; let the rule work on a copy (tensor.clone())"
            )
        weight = asked.weigh(collected, received) if received or not begin else 0
        drift = self._drift(updates, received) if measure and not begin else {}
        records: dict[str, Tensor | float] = {}
        if not begin:
            records = {f"{name}/drift": value for name, value in drift.items()}
            if records:
                records["drift"] = torch.stack(list(records.values())).nanmean()  # type: ignore[arg-type]
                records["exchange/rounds"] = float(number + 1)
            records["exchange/bytes"] = float(weight)
            records |= {f"exchange/{tag}": value for tag, value in self.rule.scalars.items()}
        return Outcome(received, lost, records, weight, getattr(self.rule, "clustering", None), verdict)

    def _seed(self, number: int) -> int:
        return derive_seed(self.seed, "exchange", "begin" if number == BEGIN else number)

    def _blueprint(self, updates: Mapping[str, Update]) -> Blueprint | None:
        first = next(iter(updates), None)
        model: Blueprint | None = None if first is None else self._model(first)
        return model

    def _usable(
        self, number: int, collected: Mapping[str, Update]
    ) -> tuple[dict[str, Update], tuple[str, ...], Verdict]:
        """Without updates that are not finite, and as the guard lets them pass: read from the device at once."""
        names = sorted(self.sharing.names)
        flags = all_finite({name: {**update.state, **update.published} for name, update in collected.items()})
        found = None if self.guard is None else self.guard.judge(collected, self.sharing, flags)
        columns = [] if found is None else [found.far, found.suspicious, found.grown]
        read = iter(torch.cat([torch.stack(list(flags.values())), *columns]).tolist() if flags else [])
        lost = tuple(name for name in flags if not next(read))
        updates = {name: update for name, update in collected.items() if name not in lost}
        verdict = Verdict()
        if self.guard is not None and found is not None and flags:
            table = [list(islice(read, len(names))) for _ in columns]
            updates, verdict = self.guard.act(
                updates, found, dict(zip(names, zip(*table, strict=True), strict=True)), self.sharing
            )
        gone = (*lost, *verdict.left_out)
        needed = least(self.minimum, len(flags))
        require(len(flags) - len(gone), lost, tuple(verdict.left_out), needed, f"exchange {number + 1}")
        return updates, lost, verdict

    def _drift(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> dict[str, Tensor]:
        drift = {}
        for name, update in updates.items():
            state = {key: update.state[key] for key in self.sharing.parameters[name] if key in update.state}
            value = relative_distance(state, received.get(name, {}))
            if value is not None:
                drift[name] = value
        return drift


def is_minimum(found: Any) -> bool:
    """Whether this is one of the values of :data:`Minimum`.

    Example:
        >>> [is_minimum(found) for found in (None, 2, 0.5, 0, 1.5, True, "50%")]
        [True, True, True, False, False, False, False]
    """
    if isinstance(found, float):
        return 0 < found <= 1
    return found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 1)


def least(minimum: Minimum, clients: int) -> int:
    """How many of the clients of a round are needed.

    Args:
        minimum: see :data:`Minimum`.
        clients: that take part.

    Example:
        >>> least(None, 4), least(None, 3), least(None, 2), least(0.25, 10), least(2, 10)
        (3, 2, 1, 3, 2)
    """
    if minimum is None:  # of two, each is all that the other one has
        return clients // 2 + 1 if clients > 2 else 1
    return max(1, math.ceil(minimum * clients - 1e-9)) if isinstance(minimum, float) else minimum


def require(remaining: int, lost: Sequence[str], far: Sequence[str], minimum: int, where: str) -> None:
    """Refuse to go on with too few clients.

    Args:
        remaining: clients whose update counts.
        lost: those whose update is not finite.
        far: those that the guard left out.
        minimum: how many are needed.
        where: which exchange.

    Raises:
        RunError: fewer than the minimum remain.
    """
    if remaining >= minimum:
        return
    who = [f"not finite: {', '.join(lost)}"] if lost else []
    who += [f"far from the others: {', '.join(far)}"] if far else []
    raise RunError(
        f"{where}: expected an update that counts from at least {minimum} clients, found it at {remaining} "
        f"({'; '.join(who)}); look at the data, the units and the learning rate of those, clip gradients "
        "(model.gradient_clip_val), or set exchange.minimum to go on without them"
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
