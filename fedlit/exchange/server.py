"""The server of a round: it screens updates, applies the rule, checks the result and records the round."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.errors import RunError, failed_in
from fedlit.exchange.checked import check_received, unchanged, where_of
from fedlit.exchange.guard import Guard, Verdict, screen
from fedlit.exchange.outcome import BEGIN, Asked, Minimum, Outcome, least, require
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Ask, Round, Rule, Update
from fedlit.exchange.wire import update_from
from fedlit.seeding import derive_seed, isolated_rng
from fedlit.sharing import Sharing, State, relative_distance, sharing_of
from fedlit.spec import ClientSpec


class Server:
    """Applies a rule to the updates of a round. It builds models of clients in its process with ``model``; sites report
    their clients and what is federated through :meth:`tell`.

    Args:
        rule: the federation's rule.
        seed: the run's seed.
        minimum: see :class:`~fedlit.exchange.exchange.Exchange`.
        client: makes a client of a site from a description and a seed, for rules that need the clients' networks; the
            description holds only its sizes.
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
        self.rule, self.seed, self.minimum, self.guard = rule, seed, minimum, guard
        self._client, self._model = client, model
        self.sharing, self.device = sharing or Sharing({}, {}), device or torch.device("cpu")
        self._homes: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}

    def memory(self) -> dict[str, Any]:
        """Return a copy of the state of the rule and of the guard."""
        guard = {} if self.guard is None else {"guard": self.guard.state_dict()}
        return {"rule": deepcopy(self.rule.state_dict()), **guard}  # nobody changes what the guard was told

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`memory` returned."""
        self.rule.load_state_dict(deepcopy(memory["rule"]))
        if self.guard is not None:
            self.guard.load_state_dict(memory.get("guard", Guard().state_dict()))

    def tell(self, topic: str, said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Join the facts that sites send before training into one mapping by client, and keep the facts needed here.

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
                        f"client {client!r}: expected it at one site, found it at {home} and {site}; rename one"
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
        """Return the updates in messages, by client (see :func:`fedlit.exchange.wire.update_to`)."""
        return {name: update_from(sent[name], self.sharing.parameters[name]) for name in sorted(sent)}

    def round(
        self, number: int, collected: Mapping[str, Update], ask: Ask, *, measure: bool, guarded: bool = True
    ) -> Outcome:
        """Run one round: screen the updates, apply the rule, check its result, and count bytes.

        Args:
            number: the number of exchanges before it, or :data:`BEGIN`.
            collected: maps each client to what it sent, in any order.
            ask: sends questions to clients and returns their answers.
            measure: whether to compute each client's drift, its relative distance from what it receives.
            guarded: whether these are updates of single clients; minimum and guard do not apply to a sum.

        Raises:
            RunError: too few clients have a usable update, or the rule's result is not valid.
        """
        begin = number == BEGIN
        guard = self.guard if guarded and self.sharing.forms else None
        updates = collected = dict(sorted(collected.items()))
        lost, verdict = tuple[str, ...](), Verdict()
        if not begin:
            updates, lost, verdict = screen(collected, self.sharing, guard)
            left = len(collected) - len({*lost, *verdict.left_out})
            needed = least(self.minimum if guarded else 1, len(collected))
            require(left, lost, tuple(verdict.left_out), needed, f"exchange {number + 1}")
        receivers = {name: tuple(names) for name, names in self.sharing.names.items()}
        receivers |= {name: tuple(update.state) for name, update in collected.items()}
        asked = Asked(ask, self.sharing)
        round = Round(number, self._seed(number), updates, receivers, asked, self._blueprint(next(iter(updates), None)))
        sent = [(name, part) for name, update in updates.items() for part in (update.state, update.published)]
        tensors = ((f"{key} of {name}", value) for name, part in sent for key, value in part.items())
        whose, where = type(self.rule).__name__, where_of(self.rule, round, begin)
        with (
            unchanged(tensors, f"exchange.rule: {whose}: expected updates to stay as they are"),
            torch.no_grad(),
            isolated_rng(round.seed, self.device),
            failed_in(where),
        ):
            received = self.rule.begin(round) if begin else self.rule(round)
        check_received(self.rule, round, received, self.sharing.forms, begin=begin)
        if guard is not None:
            live = {value.data_ptr() for update in collected.values() for value in update.state.values()}
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
        return Outcome(received, lost, records, weight, getattr(self.rule, "clustering", None), verdict)

    def _seed(self, number: int) -> int:
        return derive_seed(self.seed, "exchange", "begin" if number == BEGIN else number)

    def _drift(self, updates: Mapping[str, Update], received: Mapping[str, State]) -> dict[str, Tensor]:
        drift = {}
        for name, update in updates.items():
            state = {key: update.state[key] for key in self.sharing.parameters[name] if key in update.state}
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
        make, features = self._client, tuple(f"x{position}" for position in range(inputs))
        spec = ClientSpec(name, features, tuple(range(2 if outputs == 1 else outputs)), {}, ())
        return Blueprint(
            lambda seed: make(spec, self.seed if seed is None else seed),
            self.sharing.names[name],
            self.sharing.parameters[name],
            torch.device("cpu"),
        )
