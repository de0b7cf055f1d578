"""The server of a federation: it screens the updates of each round, applies the rule, and checks
what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedlit.errors import RunError, failed_in
from fedlit.exchange.ahead import UnreadRounds, masked_mean
from fedlit.exchange.asked import Asked
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.checks import check_received, unchanged, where_of
from fedlit.exchange.columns import Updates, relative_distances
from fedlit.exchange.guard import Guard, GuardMode, Verdict
from fedlit.exchange.minimum import Minimum, least, require
from fedlit.exchange.named import Incidents
from fedlit.exchange.outcome import Outcome
from fedlit.exchange.questions import Question
from fedlit.exchange.rule import Ask, Round, Rule, Update, settings_of
from fedlit.exchange.schedule import BEGIN, round_seed
from fedlit.exchange.screening import decide, examine, screen
from fedlit.seeding import isolated_rng
from fedlit.sharing import Sharing, State


def no_answers(questions: Mapping[str, Question]) -> Mapping[str, Any]:
    """Refuse to ask: a rule that needs the mean alone asks nothing."""
    raise RunError("exchange.rule: expected a rule that needs the mean alone, found that it asks")


def no_blueprint(client: str) -> Blueprint | None:
    """Return None: the clients' networks are not known."""
    return None


class Server:
    """Applies the rule of a federation for as long as the federation lasts. It owns what is
    remembered between rounds: the rule with its state, the guard with its history, and how often
    which client was left out.

    Where clients are in several processes, each has a server, and :meth:`round` is called at one of
    them alone.

    Args:
        rule: the federation's rule.
        seed: the run's seed.
        minimum: see :class:`~fedlit.exchange.exchange.Exchange`.
        guard: the mode of the guard (see :class:`~fedlit.exchange.guard.Guard`); None for no guard.
        sharing: which tensors of each client are federated, if it is known.
        steps: maps clients to the number of optimizer steps that each takes in an epoch, if it is
            known.
        blueprint: returns the blueprint of a client's network, by name, for rules that need it.
        device: the device on which it computes.

    Attributes:
        incidents: counts and logs which clients were left out or watched.
        unread: the rounds of this epoch that were not read yet (:meth:`round_ahead`).
    """

    def __init__(
        self,
        rule: Rule,
        seed: int = 0,
        minimum: Minimum = None,
        guard: GuardMode | None = None,
        *,
        sharing: Sharing | None = None,
        steps: Mapping[str, int] | None = None,
        blueprint: Callable[[str], Blueprint | None] = no_blueprint,
        device: torch.device | None = None,
    ) -> None:
        self.rule = rule
        self.seed = seed
        self.minimum: Minimum = minimum
        self.guard: Guard | None = None
        if guard is not None:
            self.guard = Guard(guard, steps)
        self.sharing = sharing or Sharing({}, {})
        self.blueprint = blueprint
        self.device = device or torch.device("cpu")
        self.incidents = Incidents()
        self.unread = UnreadRounds()

    # ------------------------------------------------------------------ a round

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
            number: the number of exchanges before it, or :data:`~fedlit.exchange.schedule.BEGIN`.
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
        collected = Updates.of(collected)
        guard = self.guard
        if not guarded or not self.sharing.forms:
            guard = None
        updates = collected
        lost = tuple[str, ...]()
        verdict = Verdict()
        if not begin:
            updates, lost, verdict = screen(collected, self.sharing, guard)
            remaining = len(collected) - len({*lost, *verdict.left_out})
            minimum = self.minimum if guarded else 1
            needed = least(minimum, len(collected))
            require(remaining, lost, tuple(verdict.left_out), needed, f"exchange {number + 1}")
        questions = Asked(ask, self.sharing)
        received = self._apply(number, updates, self._receivers(collected), questions)
        if guard is not None:
            # Clients will change the tensors that they sent, so the guard copies these.
            guard.note(received, collected.memories)
        weight = 0
        if received or not begin:
            weight = questions.weigh(collected, received)
        records: dict[str, Tensor | float] = {}
        if not begin:
            drift: dict[str, Tensor] = {}
            if measure:
                drift = self._drift(updates, received)
            records = self._records(number, drift, weight)
        return Outcome(
            received, lost, records, weight, getattr(self.rule, "clustering", None), verdict
        )

    def round_ahead(
        self,
        number: int,
        collected: Mapping[str, Update],
        taking_part: Sequence[str],
        *,
        measure: bool,
    ) -> Outcome:
        """Run one round as :meth:`round` does, for a rule that needs the mean alone, and read
        nothing from the device: who was left out is known after :meth:`read` (see
        :mod:`fedlit.exchange.ahead`).

        Args:
            number: the number of exchanges before it.
            collected: maps each client to what it sent, in any order.
            taking_part: the clients that take part.
            measure: whether to compute each client's drift.
        """
        collected = Updates.of(collected)
        guard = self.guard if self.sharing.forms else None
        findings = examine(collected, self.sharing, guard)
        usable = findings.usable(guard)
        by_rows = "rows" in self.rule.needs
        weights = {name: update.rows if by_rows else 1 for name, update in collected.items()}
        mean = masked_mean(collected.columns, weights, usable)
        questions = Asked(no_answers, self.sharing)
        receivers = self._receivers(collected)
        received = self._apply(number, mean.as_update(collected), receivers, questions, read=False)
        if guard is not None:
            guard.note(received, collected.memories)
        self.unread.add(number, tuple(taking_part), findings, mean.finite(received), received)
        drift: dict[str, Tensor] = {}
        if measure:
            drift = self._drift(collected, received)
            row_of = {name: row for row, name in enumerate(collected)}
            drift = {
                name: torch.where(usable[row_of[name]], value, torch.nan)
                for name, value in drift.items()
            }
        weight = questions.weigh(collected, received)
        return Outcome(received, records=self._records(number, drift, weight), bytes=weight)

    def read(self) -> tuple[dict[str, float], set[str]]:
        """Read from the device what the rounds since the last call found; count and log who was left
        out.

        Returns:
            The values to log, by ``<client>/<tag>``, and the clients that were left out.

        Raises:
            RunError: a round had too few usable updates, or its result was not finite.
        """
        records: dict[str, float] = {}
        gone: set[str] = set()
        for unread, numbers in self.unread.read():
            lost, verdict = decide(unread.clients, unread.judged, numbers, self.guard)
            far = tuple(verdict.left_out)
            remaining = len(unread.clients) - len({*lost, *far})
            exchange = f"exchange {unread.number + 1}"
            require(remaining, lost, far, least(self.minimum, len(unread.clients)), exchange)
            if not numbers[-1]:
                raise RunError(
                    f"exchange.rule: {type(self.rule).__name__}, {exchange}: expected finite "
                    "numbers, found some that are not, although the updates were finite; lower the "
                    "learning rates, or set exchange.guard: leave_out"
                )
            taking_part = unread.taking_part
            records |= self.incidents.take(verdict, unread.number, taking_part, lost)
            gone |= {*lost, *far}
        return records, gone

    def _receivers(self, collected: Mapping[str, Update]) -> dict[str, tuple[str, ...]]:
        """Map each client to the names of its federated tensors: as in the plan, or as it has just
        sent them.
        """
        receivers = {name: tuple(names) for name, names in self.sharing.names.items()}
        return receivers | {name: tuple(update.state) for name, update in collected.items()}

    def _apply(
        self,
        number: int,
        updates: Updates,
        receivers: Mapping[str, tuple[str, ...]],
        ask: Asked,
        *,
        read: bool = True,
    ) -> Mapping[str, State]:
        """Apply the rule, and check what it returns; its values only if they may be read."""
        begin = number == BEGIN
        model = None
        if updates:
            model = self.blueprint(next(iter(updates)))
        round = Round(number, round_seed(self.seed, number), updates, receivers, ask, model)
        left_alone = (
            f"exchange.rule: {type(self.rule).__name__}: expected updates to stay as they are"
        )
        with (
            unchanged(_tensors_of(updates), left_alone),
            torch.no_grad(),
            isolated_rng(round.seed, self.device),
            failed_in(where_of(self.rule, round, begin)),
        ):
            received = self.rule.begin(round) if begin else self.rule(round)
        check_received(self.rule, round, received, self.sharing.forms, begin=begin, read=read)
        return received

    def _drift(self, updates: Updates, received: Mapping[str, State]) -> dict[str, Tensor]:
        """Map each client to the relative distance of its parameters from what it receives."""
        return relative_distances(updates.columns, received, self.sharing.parameters)

    def _records(
        self, number: int, drift: Mapping[str, Tensor], weight: int
    ) -> dict[str, Tensor | float]:
        """Return the values to log for a round."""
        records: dict[str, Tensor | float] = {
            f"{name}/train/drift": value for name, value in drift.items()
        }
        if drift:
            records["train/drift"] = torch.stack(list(drift.values())).nanmean()
            records["exchange/rounds"] = float(number + 1)
        records["exchange/bytes"] = float(weight)
        records |= {f"exchange/{tag}": value for tag, value in self.rule.scalars.items()}
        return records

    def count(self, outcome: Outcome, number: int, clients: Iterable[str]) -> dict[str, float]:
        """Count and log who was left out of a round, wherever the rule was applied.

        Args:
            outcome: the outcome of the round.
            number: the number of exchanges before it.
            clients: the clients that took part.

        Returns:
            The values to log, by ``<client>/<tag>``.
        """
        return self.incidents.take(outcome.verdict, number, clients, outcome.lost, outcome.void)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        state = {
            "rule": self.rule.state_dict(),
            "rule_is": settings_of(self.rule),
            "named": self.incidents.state_dict(),
        }
        if self.guard is not None:
            state["guard"] = self.guard.state_dict()
        unread = self.unread.state_dict()
        if unread:
            state["unread"] = unread
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.rule.load_state_dict(state["rule"])
        self.incidents.load_state_dict(state["named"])
        if self.guard is not None and "guard" in state:
            self.guard.load_state_dict(state["guard"])
        self.unread.load_state_dict(state.get("unread", {}))


def _tensors_of(updates: Updates) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Yield the tensors of all updates, each with its name and its client."""
    for columns in (updates.columns, updates.published):
        for column in columns:
            for row, tensor in zip(column.rows, column.tensors, strict=True):
                yield (column.name, columns.clients[row]), tensor
