"""The server of sites that know nothing of each other: the rule, who has which clients, what is remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch

from fedlit.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.aggregation import Aggregation, Minimum, Outcome
from fedlit.exchange.guard import Guard
from fedlit.exchange.questions import Blueprint
from fedlit.exchange.rule import Ask, Rule, Update
from fedlit.exchange.wire import update_from
from fedlit.sharing import Sharing, sharing_of
from fedlit.spec import ClientSpec

__all__ = ["Server"]


class Server:
    """Applies the rule for sites that do not know each other.

    Args:
        rule: the federation's.
        seed: the run's.
        minimum: see :class:`~fedlit.exchange.exchange.Exchange`.
        client: makes a client from a description and a seed, for rules that must know the clients' networks; it is
            described by its sizes alone.
        guard: see :class:`~fedlit.exchange.guard.Guard`; none if None.
    """

    def __init__(
        self,
        rule: Rule,
        seed: int,
        minimum: Minimum = None,
        client: Callable[[ClientSpec, int], FederatedClient] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.rule, self.seed, self.minimum, self._client, self.guard = rule, seed, minimum, client, guard
        self.sharing = Sharing({}, {})
        self._homes: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}

    def memory(self) -> dict[str, Any]:
        """What the rule and the guard remember, as it is now."""
        guard = {} if self.guard is None else {"guard": self.guard.state_dict()}
        return {"rule": deepcopy(self.rule.state_dict()), **guard}  # nobody changes what the guard was told

    def recall(self, memory: Mapping[str, Any]) -> None:
        """The inverse of :meth:`memory`."""
        self.rule.load_state_dict(deepcopy(memory["rule"]))
        if self.guard is not None:
            self.guard.load_state_dict(memory.get("guard", Guard().state_dict()))

    def tell(self, topic: str, said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """What sites say before training, put together by client; the server learns from it what is federated.

        Args:
            topic: what it is about.
            said: site → client → facts.

        Raises:
            RunError: a client at two sites.
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
            self.guard.steps = {name: int(own["steps"]) for name, own in facts.items()}
        return facts

    def updates_of(self, sent: Mapping[str, Mapping[str, Any]]) -> dict[str, Update]:
        """Updates as they came: client → message (see :func:`fedlit.exchange.wire.update_to`)."""
        return {name: update_from(sent[name], self.sharing.parameters[name]) for name in sorted(sent)}

    def aggregate(
        self, number: int, updates: Mapping[str, Update], ask: Ask, *, measure: bool, guarded: bool = True
    ) -> Outcome:
        """One round.

        Args:
            number: exchanges before it.
            updates: by client.
            ask: asks clients.
            measure: whether drift is measured.
            guarded: whether these are single clients' updates; of a sum, minimum and guard know nothing.
        """
        aggregation = Aggregation(
            self.rule,
            self.seed,
            self.minimum if guarded else 1,
            self.sharing,
            self._blueprint,
            torch.device("cpu"),
            self.guard if guarded and self.sharing.forms else None,
        )
        return aggregation(number, updates, ask, measure=measure)

    def _blueprint(self, name: str) -> Blueprint | None:
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
