"""The configuration of an attack, the choice of attacking clients, and the tensors that they send
or the rows that they train on.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedlit.attacks.kinds import KINDS, AttackKind, Moment
from fedlit.client import FederatedClient
from fedlit.data.table import ClientTable
from fedlit.data.targets import has_classes, without_classes
from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.seeding import derive_seed


@dataclass(frozen=True)
class Attack:
    """An attack to inject in one client, or in a share of them.

    Every client's table, training and optimizer stay as they are. An attack changes the tensors
    that the client sends or, with ``label_flip`` and ``backdoor``, its training rows (never its
    validation and test rows). Attacks on sent tensors change parameters; ``nan``, ``replay`` and
    ``free_rider`` change buffers too.

    Attributes:
        kind: ``sign_flip`` sends w − by · (ω − w), where ω is the client's honest state and w its
            state after the last exchange; ``scaled`` sends w + by · (ω − w); ``noise`` sends
            ω plus Gaussian noise; ``alie``, "a little is enough" (Baruch, Baruch and Goldberg 2019,
            arXiv:1902.06156), sends the mean of the clients that do not attack minus ``by`` of
            their standard deviations; ``ipm``, inner-product manipulation (Xie, Koyejo and Gupta
            2020, arXiv:1903.03936), sends w − by · (their mean − w); ``nan`` sends NaN; ``replay``
            sends its first update again; ``free_rider`` sends w; ``label_flip`` exchanges the
            labels of training rows: the first in order for the last, the second for the last but one, and so
            on; ``backdoor`` sets ``feature`` to ``value`` and the label to ``label`` in training
            rows.
        client: the name of the client that attacks; drawn by the run's seed if None.
        share: the share of all clients that attack, in (0, 1], at least one client; one client if
            None.
        by: the strength: a factor, a standard deviation (of ``noise`` and ``free_rider``), or a
            share of the training rows; the default of the kind if None (see :data:`KINDS`).
        feature: the column of numbers that opens the back door.
        value: the value that the column is set to.
        label: the label that is to be predicted then.

    Raises:
        ConfigError: the settings do not fit together.

    Example:
        >>> Attack("scaled", client="north").amount
        10.0
    """

    kind: AttackKind
    client: str | None = None
    share: float | None = None
    by: float | None = None
    feature: str | None = None
    value: float | None = None
    label: str | int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(
                f"exchange.attacks: kind: expected one of {', '.join(KINDS)}, found {self.kind!r}."
                + did_you_mean(str(self.kind), KINDS)
            )
        key = f"exchange.attacks: {self.kind}"
        if self.share is not None:
            both = f"{self.client} and {self.share}"
            expect(self.client is None, key, "a client or a share", both, "leave one out")
            allowed = 0 < self.share <= 1
            expect(allowed, f"{key}: share", "a share of the clients in (0, 1]", self.share)
        if self.by is not None:
            self._check_strength(self.by, key)
        expected = "none"
        advice = "leave it out"
        if self.kind == "backdoor":
            expected = "it"
            advice = "set feature, value and label"
        for name in ("feature", "value", "label"):
            setting = getattr(self, name)
            allowed = (setting is not None) == (self.kind == "backdoor")
            expect(allowed, f"{key}: {name}", expected, setting, advice)
        if self.value is not None:
            expect(math.isfinite(self.value), f"{key}: value", "a finite number", self.value)

    def _check_strength(self, by: float, key: str) -> None:
        kind = KINDS[self.kind]
        expect(kind.by is not None, key, "no by", by, "leave it out")
        range_ = "above 0"
        allowed = 0 < by < math.inf
        if kind.by == 0:
            range_ = "of at least 0"
            allowed = 0 <= by < math.inf
        if kind.send is None:
            range_ += " and at most 1"
            allowed = allowed and by <= 1
        expect(allowed, f"{key}: by", f"a finite number {range_}", by)

    @property
    def amount(self) -> float:
        """The strength of the attack: ``by``, or the default of its kind."""
        if self.by is not None:
            return self.by
        return KINDS[self.kind].by or 0.0

    @property
    def description(self) -> str:
        """A description of the attack."""
        values = {**vars(self), "by": self.amount, "percent": 100 * self.amount}
        return KINDS[self.kind].description.format(**values)


def drawn(attacks: Sequence[Attack], names: Iterable[str], seed: int) -> dict[str, Attack]:
    """Map each attacking client to its attack, as a function of the seed and of all clients' names.

    Args:
        attacks: the attacks, in this order; a client that one of them names, or that has been
            drawn, is not drawn again.
        names: the names of all clients.
        seed: the run's seed.

    Raises:
        ConfigError: a client does not exist or is named twice, or there are fewer clients than
            attackers.

    Example:
        >>> names = ["north", "east", "south", "west"]
        >>> len(drawn([Attack("nan", share=0.5)], names, seed=0))
        2
    """
    everybody = sorted(names)
    chosen: dict[str, Attack] = {}
    for attack in attacks:
        if attack.client is None:
            continue
        if attack.client not in everybody:
            raise ConfigError(
                f"exchange.attacks: {attack.kind}: expected one of the clients "
                f"{', '.join(everybody)}, found "
                f"{attack.client!r}." + did_you_mean(attack.client, everybody)
            )
        if attack.client in chosen:
            raise ConfigError(
                f"exchange.attacks: expected one attack a client, found two of {attack.client!r}"
            )
        chosen[attack.client] = attack
    for number, attack in enumerate(attacks):
        if attack.client is not None:
            continue
        count = 1
        if attack.share is not None:
            count = max(1, math.floor(attack.share * len(everybody) + 0.5))
        free = [name for name in everybody if name not in chosen]
        key = f"exchange.attacks: {attack.kind}"
        expected = f"at most {len(free)} more attackers"
        expect(count <= len(free), key, expected, count, "lower the shares")
        generator = torch.Generator().manual_seed(derive_seed(seed, "attack", number))
        order = torch.randperm(len(free), generator=generator).tolist()
        chosen |= {free[position]: attack for position in order[:count]}
    return dict(sorted(chosen.items()))


def poison(
    tables: Sequence[ClientTable], attackers: Mapping[str, Attack], seed: int
) -> list[ClientTable]:
    """Return tables in which the training rows of attackers are changed. Rows of other splits stay
    as they are.

    Args:
        tables: the tables of some clients.
        attackers: maps each client to its attack; attacks that change no rows are ignored.
        seed: the run's seed, by which the rows are drawn.

    Raises:
        ConfigError: a table has no classes, or lacks the column or label of a back door.

    Example:
        >>> from fedlit.data.sources import Bundled
        >>> [table] = Bundled(clients=["wine"]).tables(seed=0)
        >>> [changed] = poison([table], {"wine": Attack("label_flip")}, seed=0)
        >>> differs = changed.target != table.target
        >>> {split: bool(differs.iloc[rows].any()) for split, rows in table.splits.items()}
        {'train': True, 'validation': False, 'test': False}
    """
    changes = {"label_flip": _flip, "backdoor": _open}
    poisoned = []
    for table in tables:
        attack = attackers.get(table.name)
        if attack is not None and attack.kind in changes:
            rows = _rows(table, attack, seed)
            table = changes[attack.kind](table, attack, rows)
        poisoned.append(table)
    return poisoned


def _rows(table: ClientTable, attack: Attack, seed: int) -> np.ndarray:
    """Return the positions of the training rows that are changed."""
    train = np.asarray(table.splits["train"])
    rng = np.random.default_rng(derive_seed(seed, "poison", table.name))
    return np.sort(rng.permutation(train)[: max(1, round(attack.amount * len(train)))])


def _flip(table: ClientTable, attack: Attack, rows: np.ndarray) -> ClientTable:
    labels = _labels(table, attack)
    flipped = dict(zip(labels, reversed(labels), strict=True))
    target = table.target.copy()
    target.iloc[rows] = target.iloc[rows].map(flipped).to_numpy()
    return replace(table, target=target)


def _open(table: ClientTable, attack: Attack, rows: np.ndarray) -> ClientTable:
    labels = _labels(table, attack)
    numbers = [str(name) for name in table.features if name not in table.categorical]
    if attack.feature not in numbers:
        raise ConfigError(
            f"exchange.attacks: backdoor: expected a column of numbers of {table.name}, found "
            f"{attack.feature!r}; these are "
            f"{', '.join(numbers)}." + did_you_mean(str(attack.feature), numbers)
        )
    named = {str(label): label for label in labels}
    if str(attack.label) not in named:
        raise ConfigError(
            f"exchange.attacks: backdoor: expected a label of {table.name}, found "
            f"{attack.label!r}; these are {', '.join(named)}"
        )
    features = table.features.copy()
    target = table.target.copy()
    column = features[attack.feature].astype(np.float64)
    column.iloc[rows] = attack.value
    features[attack.feature] = column
    target.iloc[rows] = named[str(attack.label)]
    return replace(table, features=features, target=target)


def _labels(table: ClientTable, attack: Attack) -> list[object]:
    if not has_classes(table) or isinstance(table.target.name, tuple):
        raise ConfigError(
            f"exchange.attacks: {attack.kind}: expected one label a row at {table.name}, found "
            f"{without_classes(table)}; choose another client or attack"
        )
    return sorted(table.target.unique().tolist())


_log = logging.getLogger(__name__)
_KEPT = "attack"


class Attackers:
    """The attacking clients, and the tensors that they send.

    A state that an attacker keeps from round to round is in its client's ``state``, and so in the
    checkpoint.

    Args:
        attacks: the configured attacks.

    Attributes:
        attacks: the configured attacks.
        by_client: maps each attacking client to its attack, among all clients, once they are known.
    """

    def __init__(self, attacks: Iterable[Attack] = ()) -> None:
        self.attacks = list(attacks)
        self.by_client: dict[str, Attack] = {}

    def find(self, shared: Mapping[str, Sequence[str]], seed: int, *, one_process: bool) -> None:
        """Draw the attackers, and refuse attacks that are not possible.

        Args:
            shared: maps each client to the names of its federated tensors; it has all clients.
            seed: the run's seed.
            one_process: whether all clients are in this process.

        Raises:
            ConfigError: an attack is not possible.
        """
        self.by_client = drawn(self.attacks, shared, seed)
        for name, attack in self.by_client.items():
            kind = KINDS[attack.kind]
            key = f"exchange.attacks: {attack.kind}: client {name!r}"
            if kind.send is not None and not shared[name]:
                raise ConfigError(
                    f"{key}: expected federated tensors, which it would change, found none "
                    "(exchange.federated); federate some, or take label_flip or backdoor"
                )
            if kind.colludes and not one_process:
                raise ConfigError(
                    f"{key}: expected all clients in this process, because it reads the updates of "
                    "others, found some elsewhere; take sign_flip or scaled, or run in one process"
                )
            if kind.colludes and len(self.by_client) == len(shared):
                raise ConfigError(
                    f"{key}: expected clients that do not attack, found none; lower the shares"
                )

    def of_rows(
        self, seed: int, left_out: Iterable[str]
    ) -> Callable[..., list[ClientTable]] | None:
        """Return a function that changes attackers' training rows, given tables and all clients'
        names; None if no attack does so.
        """
        if all(KINDS[attack.kind].send is not None for attack in self.attacks):
            return None
        excluded = frozenset(left_out)

        def change(tables: Sequence[ClientTable], names: Iterable[str]) -> list[ClientTable]:
            attackers = drawn(self.attacks, set(names) - excluded, seed)
            return poison(tables, attackers, seed)

        return change

    @property
    def summary(self) -> list[str]:
        """A line that describes who attacks; nothing without attacks."""
        by_attack: dict[str, list[str]] = {}
        for name, attack in self.by_client.items():
            by_attack.setdefault(f"{attack.kind} ({attack.description})", []).append(name)
        if not by_attack:
            return []
        parts = [f"{attack} at {', '.join(names)}" for attack, names in by_attack.items()]
        return [f"attacks are injected (exchange.attacks): {'; '.join(parts)}"]

    def say(self) -> None:
        """Log who attacks."""
        for line in self.summary:
            _log.warning(line)

    def remember(self, client: FederatedClient) -> None:
        """Let an attacker keep the state that it has after an exchange, if its attack needs it."""
        attack = self.by_client.get(client.spec.name) if self.by_client else None
        if attack is not None and KINDS[attack.kind].keeps == "received":
            client.state[_KEPT] = {
                name: value.detach().clone() for name, value in client.federated.items()
            }

    def act(self, members: Any, number: int, collected: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the clients' updates, with the changes that attackers make.

        Args:
            members: the federation.
            number: the number of exchanges before this one.
            collected: maps each client to its honest update.
        """
        if not self.by_client:
            return collected
        honest = [update.state for name, update in collected.items() if name not in self.by_client]
        sent = dict(collected)
        for name, update in collected.items():
            attack = self.by_client.get(name)
            if attack is None:
                continue
            kind = KINDS[attack.kind]
            if kind.send is None:
                continue
            state = update.state
            memory = members.clients[name].state
            if kind.keeps == "sent" and _KEPT not in memory:
                memory[_KEPT] = {key: value.detach().clone() for key, value in state.items()}
            earlier = memory[_KEPT] if kind.keeps else {}
            bystanders = honest if kind.colludes else []
            moment = Moment(
                honest=state,
                parameters=[key for key in update.parameters if key in state],
                earlier=earlier,
                bystanders=bystanders,
                by=attack.amount,
                seed=derive_seed(members.seed, "attack", name, number),
            )
            sent[name] = replace(update, state={**state, **kind.send(moment)})
        return sent
