"""The server of a coordinator: it knows of the clients only what their sites have sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from fedlit.client import FederatedClient
from fedlit.errors import RunError
from fedlit.exchange.blueprint import Blueprint
from fedlit.exchange.guard import Guard, GuardMode
from fedlit.exchange.minimum import Minimum
from fedlit.exchange.rule import Rule, Update
from fedlit.exchange.server import Server
from fedlit.institutions.plain import FactsOfTopics, Message
from fedlit.sharing import sharing_of
from fedlit.spec import ClientSpec

BuildClient = Callable[[ClientSpec, int], FederatedClient]
"""Makes a client from its description, which holds only its sizes, and a seed."""


class CoordinatorServer(Server):
    """Applies the rule where no client is. Sites report what it must know of their clients through
    :meth:`tell`.

    Args:
        rule: the federation's rule.
        seed: the run's seed.
        minimum: see :class:`~fedlit.exchange.exchange.Exchange`.
        guard: the mode of the guard; None for no guard.
        build: makes a client of a site, for rules that need the clients' networks; None if the rule
            needs none.
    """

    def __init__(
        self,
        rule: Rule,
        seed: int = 0,
        minimum: Minimum = None,
        guard: GuardMode | None = None,
        build: BuildClient | None = None,
    ) -> None:
        super().__init__(rule, seed, minimum, guard, blueprint=self._blueprint)
        self._build = build
        self._homes: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}

    def tell(self, topic: str, facts_by_site: FactsOfTopics) -> None:
        """Take the facts that sites send before training, and keep what is needed here.

        Args:
            topic: what the facts are about.
            facts_by_site: maps each site to its clients and their facts.

        Raises:
            RunError: two sites have a client of the same name.
        """
        facts: dict[str, Any] = {}
        for site, clients in facts_by_site.items():
            for client, facts_of_client in clients.items():
                home = self._homes.setdefault(client, site)
                if home != site:
                    raise RunError(
                        f"client {client!r}: expected it at one site, found it at {home} and "
                        f"{site}; rename one"
                    )
                facts[client] = facts_of_client
        facts = dict(sorted(facts.items()))
        if topic == "federated":
            self.sharing = sharing_of(facts)
        if topic == "model":
            self._sizes = facts
        if topic == "steps" and self.guard is not None:
            self.guard.steps = {name: int(fact["steps"]) for name, fact in facts.items()}

    def updates_of(self, messages: Mapping[str, Message]) -> dict[str, Update]:
        """Return the updates in messages, by client (see
        :func:`fedlit.exchange.wire.update_to`).
        """
        return {
            name: Update(**messages[name], parameters=self.sharing.parameters[name])
            for name in sorted(messages)
        }

    def _blueprint(self, client: str) -> Blueprint | None:
        """Return the blueprint of a client's network, made of its sizes alone."""
        build = self._build
        if build is None or client not in self._sizes:
            return None
        inputs, outputs = self._sizes[client]
        features = tuple(f"x{position}" for position in range(inputs))
        classes = 2 if outputs == 1 else outputs
        spec = ClientSpec(client, features, tuple(range(classes)), {}, ())
        return Blueprint(
            lambda seed: build(spec, self.seed if seed is None else seed),
            self.sharing.names[client],
            self.sharing.parameters[client],
            self.device,
        )

    # ------------------------------------------------------------------ state

    def memory(self) -> Message:
        """Return a copy of the state of the rule and of the guard, as it is between rounds."""
        memory = {"rule": deepcopy(self.rule.state_dict())}
        if self.guard is not None:
            # Nobody changes the tensors that the guard was given.
            memory["guard"] = self.guard.state_dict()
        return memory

    def recall(self, memory: Message) -> None:
        """Restore a state that :meth:`memory` returned. A guard that has no state in it begins
        anew.
        """
        self.rule.load_state_dict(deepcopy(memory["rule"]))
        if self.guard is not None:
            self.guard.load_state_dict(memory.get("guard", Guard().state_dict()))
