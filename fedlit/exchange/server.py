"""The server of a round: it screens updates, applies the rule, checks the result and records the
outcome.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.errors import RunError, did_you_mean, failed_in
from fedlit.exchange.guard import Guard, Verdict, screen
from fedlit.exchange.questions import Blueprint, Losses, Own, Question, bytes_of
from fedlit.exchange.rule import DOWN, Ask, Round, Rule, Update
from fedlit.names import Clustering
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, form_of, relative_distance, sharing_of
from fedlit.spec import ClientSpec


@contextmanager
def unchanged(tensors: Iterable[tuple[str, Tensor]], expected: str) -> Iterator[None]:
    """Raise an error if tensors were changed in place inside the block.

    Args:
        tensors: pairs of a name and its tensor.
        expected: the beginning of the message, which names who must leave the tensors as they are.

    Raises:
        RunError: a tensor was changed.
    """
    before = [(name, value, value._version) for name, value in tensors]
    yield
    if changed := next((name for name, value, version in before if value._version != version), ""):
        raise RunError(
            f"{expected}, found that {changed} was changed in place; work on a copy "
            "(tensor.clone())"
        )


def check_received(
    rule: Rule, round: Round, received: Any, forms: Mapping[str, Any], *, begin: bool = False
) -> None:
    """Refuse the result of a rule if clients cannot take it over.

    Args:
        rule: the rule, which the message names.
        round: the round that the rule was given.
        received: what the rule returned.
        forms: maps each name to the (dtype, shape) of the federated tensor.
        begin: whether the rule was asked what clients start from; it may then leave clients out.

    Raises:
        RunError: there are unknown or missing clients, unknown names, other shapes or dtypes, or
            values that are not finite.
    """
    problem = _problem(round, received, forms, begin=begin)
    if problem:
        advice = " Mend" if problem.endswith("?") else "; mend"
        raise RunError(f"{where_of(rule, round, begin)}: {problem}{advice} the rule")


def where_of(rule: Rule, round: Round, begin: bool) -> str:
    """Return a description of a rule and its exchange, for messages."""
    return (
        f"exchange.rule: {type(rule).__name__}, "
        f"{'before training' if begin else f'exchange {round.number + 1}'}"
    )


def _problem(round: Round, received: Any, forms: Mapping[str, Any], *, begin: bool) -> str:
    if not isinstance(received, Mapping):
        return f"expected a mapping from clients to named tensors, found {type(received).__name__}"
    if unknown := sorted(map(str, received.keys() - round.receivers.keys())):
        hint = did_you_mean(unknown[0], round.receivers)
        return f"expected the clients {', '.join(round.receivers)}, found {unknown[0]!r}.{hint}"
    missing = sorted(round.receivers.keys() - received.keys())
    if missing and not begin:
        return (
            f"expected an entry for each client, found none for {missing[0]!r} ({{}} if it "
            "receives nothing)"
        )
    known = dict(forms)
    # as they were sent: networks may have been converted since the plan
    for update in round.updates.values():
        known |= {name: form_of(value) for name, value in update.state.items()}
    seen: dict[tuple[int, str], Tensor] = {}
    for client, state in received.items():
        names = set(round.receivers[client])
        if not isinstance(state, Mapping):
            return f"client {client!r}: expected named tensors, found {type(state).__name__}"
        for name, value in state.items():
            if name not in names and not str(name).startswith(DOWN):
                return (
                    f"client {client!r}: expected names of its federated tensors, found {name!r}."
                    + (
                        did_you_mean(str(name), names)
                        or f" What goes beside them is called {DOWN}…"
                    )
                )
            if (id(value), name) in seen:  # clients share tensors
                continue
            if not isinstance(value, Tensor):
                return f"client {client!r}: {name}: expected a tensor, found {type(value).__name__}"
            if name in known and form_of(value) != (known[name][0], tuple(known[name][1])):
                (dtype, shape), found = known[name], form_of(value)
                return (
                    f"client {client!r}: {name}: expected {dtype} of shape {tuple(shape)}, found "
                    f"{found[0]} of shape {found[1]}"
                )
            seen[id(value), name] = value
    return _not_finite(round, received, list(seen.values()))


def _not_finite(round: Round, received: Mapping[str, State], distinct: list[Tensor]) -> str:
    """Describe where a value is not finite; empty if none is. Tensors that clients share are
    checked once.
    """
    # the largest magnitude is finite exactly if all values are
    numbers = [value for value in distinct if value.is_floating_point() and value.numel()]
    largest = torch._foreach_norm(numbers, float("inf")) if numbers else ()
    if not largest or bool(torch.stack([torch.isfinite(norm) for norm in largest]).all()):
        return ""
    client, name = next(
        (client, name)
        for client, state in received.items()
        for name, value in state.items()
        if not bool(torch.isfinite(value).all())
    )
    huge = [
        name for name, update in round.updates.items() if any(map(_is_huge, update.state.values()))
    ]
    whose = "all updates were finite" if round.updates else "nobody sent anything"
    if huge:  # sums of such numbers are not finite: their sender is at fault rather than the rule
        whose += (
            f", but {huge[0]!r} sent a number above {_HUGE:g}: exchange.guard: leave_out "
            "minds such numbers"
        )
    return f"client {client!r}: {name}: expected finite numbers, found some that are not ({whose})"


_HUGE = 1e18


def _is_huge(value: Tensor) -> bool:
    return (
        value.is_floating_point()
        and value.numel() > 0
        and float(value.detach().abs().max()) > _HUGE
    )


Minimum = int | float | None
"""Clients that a round needs: a number, a share of those that take part, or more than half of them
(None)."""

BEGIN = -1
"""The number of the round before training, in which a rule determines what clients start from."""


def round_seed(seed: int, number: int) -> int:
    """Return the seed of a round.

    Args:
        seed: the run's seed.
        number: the number of exchanges before the round, or :data:`BEGIN`.
    """
    return derive_seed(seed, "exchange", "begin" if number == BEGIN else number)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round.

    Attributes:
        received: maps each client of this process to its named tensors.
        lost: the names of the clients whose update was not finite, in all processes.
        void: the names of the clients whose update cannot be summed under masks, in all processes.
            If there are any, nothing was aggregated: ``received`` is what clients received last, to
            which they go back.
        records: the values to log, by key (``<client>/train/drift`` of the clients of this process,
            ``train/drift``, …).
        bytes: the bytes that travelled, from and to all clients.
        clustering: which clients belong together, if the rule finds clusters and runs in this
            process.
        verdict: the findings of the guard about all clients, or about those of this process.
    """

    received: Mapping[str, State]
    lost: tuple[str, ...] = ()
    records: Mapping[str, Tensor | float] = field(default_factory=dict)
    bytes: int = 0
    clustering: Clustering | None = None
    verdict: Verdict = field(default_factory=Verdict)
    void: tuple[str, ...] = ()

    def to_message(self, clients: Collection[str]) -> dict[str, Any]:
        """Return the message to some clients, in a form that :func:`fedlit.exchange.wire.pack`
        accepts.
        """
        return {
            "received": {name: state for name, state in self.received.items() if name in clients},
            "lost": self.lost,
            "records": {key: float(value) for key, value in self.records.items()},
            "bytes": self.bytes,
            "verdict": vars(self.verdict),
        }

    @classmethod
    def from_message(cls, told: Mapping[str, Any]) -> Outcome:
        """Restore an outcome from a message of :meth:`to_message`. Clusters are not part of it."""
        return cls(**{**told, "lost": tuple(told["lost"]), "verdict": Verdict(**told["verdict"])})


def is_minimum(found: Any) -> bool:
    """Return whether a value is one of :data:`Minimum`.

    Example:
        >>> [is_minimum(found) for found in (None, 2, 0.5, 0, 1.5, True, "50%")]
        [True, True, True, False, False, False, False]
    """
    if isinstance(found, float):
        return 0 < found <= 1
    return found is None or (isinstance(found, int) and not isinstance(found, bool) and found >= 1)


def least(minimum: Minimum, clients: int) -> int:
    """Return how many of a round's clients must have a usable update.

    Args:
        minimum: see :data:`Minimum`.
        clients: the number of clients that take part.

    Example:
        >>> least(None, 4), least(None, 3), least(None, 2), least(0.25, 10), least(2, 10)
        (3, 2, 1, 3, 2)
    """
    if minimum is None:  # of two, each is all that the other one has
        return clients // 2 + 1 if clients > 2 else 1
    return max(1, math.ceil(minimum * clients - 1e-9)) if isinstance(minimum, float) else minimum


def require(
    remaining: int, lost: Sequence[str], far: Sequence[str], minimum: int, where: str
) -> None:
    """Refuse to go on with too few clients.

    Args:
        remaining: the number of clients with a usable update.
        lost: the clients whose update is not finite.
        far: the clients that the guard left out.
        minimum: the number of clients that are needed.
        where: the exchange, for the message.

    Raises:
        RunError: fewer than the minimum remain.
    """
    if remaining >= minimum:
        return
    who = [f"not finite: {', '.join(lost)}"] if lost else []
    who += [f"far from the others: {', '.join(far)}"] if far else []
    raise RunError(
        f"{where}: expected an update that counts from at least {minimum} clients, found it at "
        f"{remaining} ({'; '.join(who)}); look at the data, the units and the learning rate of "
        "those, clip gradients (model.gradient_clip_val), or set exchange.minimum to go on "
        "without them"
    )


class Asked:
    """Asks clients, counts the bytes of questions and answers, and remembers which tensors clients
    received with them.

    Args:
        ask: sends questions to clients and returns their answers.
        sharing: which tensors each client has.
    """

    def __init__(self, ask: Ask, sharing: Sharing) -> None:
        self._ask = ask
        self._sharing = sharing
        self._bytes = 0
        self._had: dict[str, set[int]] = {}

    def __call__(self, questions: Mapping[str, Question]) -> Mapping[str, Any]:
        """Ask clients, and send no tensors that a client does not have."""
        questions = {name: self._fitting(name, question) for name, question in questions.items()}
        answers = self._ask(questions)
        for name, question in questions.items():
            states = question.states if isinstance(question, Losses) else ()
            answer = answers[name]
            self._bytes += sum(map(bytes_of, states))
            # what a client of its own makes of it, nobody knows: it has nothing by it
            if isinstance(question, Own):
                self._bytes += bytes_of(question.tensors)
            self._bytes += bytes_of({"answer": answer} if isinstance(answer, Tensor) else answer)
            self._had.setdefault(name, set()).update(
                value.data_ptr() for state in states for value in state.values()
            )
        return answers

    def _fitting(self, client: str, question: Question) -> Question:
        """Return the question without the tensors that the client does not have."""
        if not isinstance(question, Losses):
            return question
        names = self._sharing.names[client]
        return Losses(
            [{name: state[name] for name in names if name in state} for state in question.states]
        )

    def weigh(self, collected: Mapping[str, Update], received: Mapping[str, State]) -> int:
        """Return the bytes of a round. Tensors that came with a question are not counted again."""
        weight = self._bytes + sum(map(bytes_of, received.values()))
        for name, update in collected.items():
            weight += bytes_of(update.state) + bytes_of(update.published)
            had = self._had.get(name, ())
            weight -= bytes_of(
                {
                    key: value
                    for key, value in received.get(name, {}).items()
                    if value.data_ptr() in had
                }
            )
        return weight


class Server:
    """Applies a rule to the updates of a round. It builds models of clients in its process with
    ``model``; sites report their clients and what is federated through :meth:`tell`.

    Args:
        rule: the federation's rule.
        seed: the run's seed.
        minimum: see :class:`~fedlit.exchange.exchange.Exchange`.
        client: makes a client of a site from a description and a seed, for rules that need the
            clients' networks; the description holds only its sizes.
        guard: see :class:`~fedlit.exchange.guard.Guard`; none if None.
        model: returns the blueprint of a client in this process, by name.
        sharing: which tensors of each client are federated, if it is known.
        device: the device on which it computes.
    """

    def __init__(
        self,
        rule: Rule,
        seed: int,
        minimum: Minimum = None,
        client: Callable[[ClientSpec, int], FederatedClient] | None = None,
        guard: Guard | None = None,
        model: Callable[[str], Blueprint | None] | None = None,
        sharing: Sharing | None = None,
        device: torch.device | None = None,
    ) -> None:
        self.rule = rule
        self.seed = seed
        self.minimum = minimum
        self.guard = guard
        self._client = client
        self._model = model
        self.sharing = sharing or Sharing({}, {})
        self.device = device or torch.device("cpu")
        self._homes: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}

    def memory(self) -> dict[str, Any]:
        """Return a copy of the state of the rule and of the guard."""
        guard = {} if self.guard is None else {"guard": self.guard.state_dict()}
        # nobody changes what the guard was told
        return {"rule": deepcopy(self.rule.state_dict()), **guard}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`memory` returned."""
        self.rule.load_state_dict(deepcopy(memory["rule"]))
        if self.guard is not None:
            self.guard.load_state_dict(memory.get("guard", Guard().state_dict()))

    def tell(self, topic: str, said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Join the facts that sites send before training into one mapping by client, and keep the
        facts needed here.

        Args:
            topic: what the facts are about.
            said: maps each site to its clients and their facts.

        Raises:
            RunError: two sites have a client of the same name.
        """
        facts: dict[str, Any] = {}
        for site, clients in said.items():
            for client, told in clients.items():
                home = self._homes.setdefault(client, site)
                if home != site:
                    raise RunError(
                        f"client {client!r}: expected it at one site, found it at {home} and "
                        f"{site}; rename one"
                    )
                facts[client] = told
        facts = dict(sorted(facts.items()))
        if topic == "federated":
            self.sharing = sharing_of(facts)
        if topic == "model":
            self._sizes = facts
        if topic == "steps" and self.guard is not None:
            self.guard.steps = {name: int(fact["steps"]) for name, fact in facts.items()}
        return facts

    def updates_of(self, sent: Mapping[str, Mapping[str, Any]]) -> dict[str, Update]:
        """Return the updates in messages, by client (see
        :func:`fedlit.exchange.wire.update_to`).
        """
        return {
            name: Update(**sent[name], parameters=self.sharing.parameters[name])
            for name in sorted(sent)
        }

    def round(
        self,
        number: int,
        collected: Mapping[str, Update],
        ask: Ask,
        *,
        measure: bool,
        guarded: bool = True,
    ) -> Outcome:
        """Run one round: screen the updates, apply the rule, check its result, and count bytes.

        Args:
            number: the number of exchanges before it, or :data:`BEGIN`.
            collected: maps each client to what it sent, in any order.
            ask: sends questions to clients and returns their answers.
            measure: whether to compute each client's drift, its relative distance from what it
                receives.
            guarded: whether these are updates of single clients; minimum and guard do not apply to
                a sum.

        Raises:
            RunError: too few clients have a usable update, or the rule's result is not valid.
        """
        begin = number == BEGIN
        guard = self.guard if guarded and self.sharing.forms else None
        updates = collected = dict(sorted(collected.items()))
        lost = tuple[str, ...]()
        verdict = Verdict()
        if not begin:
            updates, lost, verdict = screen(collected, self.sharing, guard)
            left = len(collected) - len({*lost, *verdict.left_out})
            needed = least(self.minimum if guarded else 1, len(collected))
            require(left, lost, tuple(verdict.left_out), needed, f"exchange {number + 1}")
        receivers = {name: tuple(names) for name, names in self.sharing.names.items()}
        receivers |= {name: tuple(update.state) for name, update in collected.items()}
        asked = Asked(ask, self.sharing)
        round = Round(
            number,
            self._seed(number),
            updates,
            receivers,
            asked,
            self._blueprint(next(iter(updates), None)),
        )
        sent = [
            (name, part)
            for name, update in updates.items()
            for part in (update.state, update.published)
        ]
        tensors = (
            (f"{key} of {name}", value) for name, part in sent for key, value in part.items()
        )
        whose = type(self.rule).__name__
        where = where_of(self.rule, round, begin)
        with (
            unchanged(tensors, f"exchange.rule: {whose}: expected updates to stay as they are"),
            torch.no_grad(),
            isolated_rng(round.seed, self.device),
            failed_in(where),
        ):
            received = self.rule.begin(round) if begin else self.rule(round)
        check_received(self.rule, round, received, self.sharing.forms, begin=begin)
        if guard is not None:
            live = {
                value.data_ptr() for update in collected.values() for value in update.state.values()
            }
            guard.note(received, live)
        weight = asked.weigh(collected, received) if received or not begin else 0
        drift = self._drift(updates, received) if measure and not begin else {}
        records: dict[str, Tensor | float] = {}
        if not begin:
            records = {f"{name}/train/drift": value for name, value in drift.items()}
            if records:
                records["train/drift"] = torch.stack(list(records.values())).nanmean()  # type: ignore[arg-type]
                records["exchange/rounds"] = float(number + 1)
            records["exchange/bytes"] = float(weight)
            records |= {f"exchange/{tag}": value for tag, value in self.rule.scalars.items()}
        return Outcome(
            received, lost, records, weight, getattr(self.rule, "clustering", None), verdict
        )

    def _seed(self, number: int) -> int:
        return round_seed(self.seed, number)

    def _drift(
        self, updates: Mapping[str, Update], received: Mapping[str, State]
    ) -> dict[str, Tensor]:
        drift = {}
        for name, update in updates.items():
            state = {
                key: update.state[key]
                for key in self.sharing.parameters[name]
                if key in update.state
            }
            value = relative_distance(state, received.get(name, {}))
            if value is not None:
                drift[name] = value
        return drift

    def _blueprint(self, name: str | None) -> Blueprint | None:
        if self._model is not None and name is not None:
            return self._model(name)
        if self._client is None or name not in self._sizes:
            return None
        inputs, outputs = self._sizes[name]
        make = self._client
        features = tuple(f"x{position}" for position in range(inputs))
        spec = ClientSpec(name, features, tuple(range(2 if outputs == 1 else outputs)), {}, ())
        return Blueprint(
            lambda seed: make(spec, self.seed if seed is None else seed),
            self.sharing.names[name],
            self.sharing.parameters[name],
            torch.device("cpu"),
        )
