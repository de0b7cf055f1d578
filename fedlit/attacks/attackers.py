"""The attackers of a run. They are drawn once, and act on what leaves a client."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedlit.attacks.attack import Attack, drawn
from fedlit.attacks.kinds import KINDS, Moment
from fedlit.attacks.rows import poison
from fedlit.client import FederatedClient
from fedlit.data.table import ClientTable
from fedlit.errors import ConfigError
from fedlit.seeding import derive_seed

_log = logging.getLogger(__name__)
_KEPT = "attack"


class Attackers:
    """The attacking clients, and what they send.

    What an attacker keeps from round to round is in its client's ``state``, and so in the checkpoint.

    Args:
        attacks: as they are asked for.

    Attributes:
        attacks: the same.
        by_client: maps each attacking client to its attack, among all clients, once they are known.
    """

    def __init__(self, attacks: Iterable[Attack] = ()) -> None:
        self.attacks = list(attacks)
        self.by_client: dict[str, Attack] = {}

    def find(self, shared: Mapping[str, Sequence[str]], seed: int, *, here: bool) -> None:
        """Draw the attackers, and refuse attacks that are not possible here.

        Args:
            shared: maps each client to the names of its federated tensors; it has all clients.
            seed: the run's seed.
            here: whether all clients are in this process.

        Raises:
            ConfigError: an attack is not possible.
        """
        self.by_client = drawn(self.attacks, shared, seed)
        for name, attack in self.by_client.items():
            kind, where = KINDS[attack.kind], f"exchange.attacks: {attack.kind}: client {name!r}"
            if kind.send is not None and not shared[name]:
                raise ConfigError(
                    f"{where}: expected federated tensors, which it would change, found none (exchange.federated); "
                    "federate some, or take label_flip or backdoor"
                )
            if kind.colludes and not here:
                raise ConfigError(
                    f"{where}: expected all clients in this process, for it looks at what others send, found some "
                    "elsewhere; take sign_flip or scaled, or run in one process"
                )
            if kind.colludes and len(self.by_client) == len(shared):
                raise ConfigError(f"{where}: expected clients that do not attack, found none; lower the shares")

    def of_rows(self, seed: int, left_out: Iterable[str]) -> Callable[..., list[ClientTable]] | None:
        """Return a function that changes attackers' training rows, given tables and all clients' names; None if no
        attack does so.
        """
        if all(KINDS[attack.kind].send is not None for attack in self.attacks):
            return None
        excluded = frozenset(left_out)
        return lambda tables, names: poison(tables, drawn(self.attacks, set(names) - excluded, seed), seed)

    @property
    def told(self) -> list[str]:
        """A line that describes who attacks; nothing without attacks."""
        by_attack: dict[str, list[str]] = {}
        for name, attack in self.by_client.items():
            by_attack.setdefault(f"{attack.kind} ({attack.description})", []).append(name)
        if not by_attack:
            return []
        who = "; ".join(f"{what} at {', '.join(names)}" for what, names in by_attack.items())
        return [f"attacks are planted (exchange.attacks): {who}"]

    def say(self) -> None:
        """Log who attacks."""
        for line in self.told:
            _log.warning(line)

    def remember(self, client: FederatedClient) -> None:
        """Let an attacker keep the state that it has after an exchange, if its attack needs it."""
        attack = self.by_client.get(client.spec.name)
        if attack is not None and KINDS[attack.kind].keeps == "received":
            client.state[_KEPT] = {name: value.detach().clone() for name, value in client.federated.items()}

    def act(self, members: Any, number: int, collected: Mapping[str, Any]) -> dict[str, Any]:
        """Return what clients send, with the changes that attackers make.

        Args:
            members: the federation.
            number: the number of exchanges before this one.
            collected: maps each client to what it would send.
        """
        others = [update.state for name, update in collected.items() if name not in self.by_client]
        sent = dict(collected)
        for name, update in collected.items():
            attack = self.by_client.get(name)
            kind = None if attack is None else KINDS[attack.kind]
            if attack is None or kind is None or kind.send is None:
                continue
            state, kept = update.state, members.clients[name].state
            if kind.keeps == "sent" and _KEPT not in kept:
                kept[_KEPT] = {key: value.detach().clone() for key, value in state.items()}
            moment = Moment(
                state,
                [key for key in update.parameters if key in state],
                kept[_KEPT] if kind.keeps else {},
                others if kind.colludes else (),
                attack.amount,
                derive_seed(members.seed, "attack", name, number),
            )
            sent[name] = replace(update, state={**state, **kind.send(moment)})
        return sent
