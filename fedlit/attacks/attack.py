"""The configuration of an attack, and the choice of the clients that make it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from fedlit.attacks.kinds import KINDS, AttackKind
from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.seeding import derive_seed


@dataclass(frozen=True)
class Attack:
    """An attack to plant in one client, or in a share of them.

    Every client's table, training and optimizer stay as they are. What changes is what leaves the client or, with
    ``label_flip`` and ``backdoor``, its training rows (never its validation and test rows). Attacks on what is sent
    change parameters; ``nan``, ``replay`` and ``free_rider`` change buffers too.

    Attributes:
        kind: ``sign_flip`` sends w − by · (ω − w), where ω is what the client would send and w is what it had after the
            last exchange; ``scaled`` sends w + by · (ω − w); ``noise`` sends ω plus Gaussian noise; ``alie``, "a little
            is enough" (Baruch, Baruch and Goldberg 2019, arXiv:1902.06156), sends the mean of the clients that do not
            attack minus ``by`` of their standard deviations; ``ipm``, inner-product manipulation (Xie, Koyejo and Gupta
            2020, arXiv:1903.03936), sends w − by · (their mean − w); ``nan`` sends NaN; ``replay`` sends what it sent
            first; ``free_rider`` sends w; ``label_flip`` exchanges the labels of training rows: the first in order for
            the last, the second for the last but one, and so on; ``backdoor`` sets ``feature`` to ``value`` and the
            label to ``label`` in training rows.
        client: the name of the client that attacks; drawn by the run's seed if None.
        share: the share of all clients that attack, in (0, 1], at least one client; one client if None.
        by: the strength: a factor, a standard deviation (of ``noise`` and ``free_rider``), or a share of the training
            rows; the default of the kind if None (see :data:`KINDS`).
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
        where, kind, door = f"exchange.attacks: {self.kind}", KINDS[self.kind], self.kind == "backdoor"
        both = f"{self.client} and {self.share}"
        expect(self.client is None or self.share is None, where, "a client or a share", both, "leave one out")
        fits = self.share is None or 0 < self.share <= 1
        expect(fits, f"{where}: share", "a share of the clients in (0, 1]", self.share)
        expect(self.by is None or kind.by is not None, where, "no by", self.by, "leave it out")
        least = "of at least 0" if kind.by == 0 else "above 0"
        most = " and at most 1" if kind.send is None else ""
        fits = self.by is None or ((self.by > 0 or self.by == kind.by == 0) and (kind.send is not None or self.by <= 1))
        expect(fits and self.by != math.inf, f"{where}: by", f"a finite number {least}{most}", self.by)
        for key in ("feature", "value", "label"):
            wanted, advice = ("it", "set feature, value and label") if door else ("none", "leave it out")
            found = getattr(self, key)
            expect((found is not None) == door, f"{where}: {key}", wanted, found, advice)
        expect(self.value is None or math.isfinite(self.value), f"{where}: value", "a finite number", self.value)

    @property
    def amount(self) -> float:
        """The strength of the attack: ``by``, or the default of its kind."""
        return (KINDS[self.kind].by or 0.0) if self.by is None else self.by

    @property
    def description(self) -> str:
        """A description of what such a client does."""
        values = {**vars(self), "by": self.amount, "percent": 100 * self.amount}
        return KINDS[self.kind].description.format(**values)


def drawn(attacks: Sequence[Attack], names: Iterable[str], seed: int) -> dict[str, Attack]:
    """Map each attacking client to its attack, as a function of the seed and of all clients' names.

    Args:
        attacks: the attacks, in this order; a client that one of them names, or that has been drawn, is not drawn
            again.
        names: the names of all clients.
        seed: the run's seed.

    Raises:
        ConfigError: a client does not exist or is named twice, or there are fewer clients than attackers.

    Example:
        >>> attackers = drawn([Attack("nan", share=0.5)], ["north", "east", "south", "west"], seed=0)
        >>> len(attackers)
        2
    """
    everybody = sorted(names)
    chosen: dict[str, Attack] = {}
    for attack in attacks:
        if attack.client is None:
            continue
        if attack.client not in everybody:
            raise ConfigError(
                f"exchange.attacks: {attack.kind}: expected one of the clients {', '.join(everybody)}, found "
                f"{attack.client!r}." + did_you_mean(attack.client, everybody)
            )
        if attack.client in chosen:
            raise ConfigError(f"exchange.attacks: expected one attack a client, found two of {attack.client!r}")
        chosen[attack.client] = attack
    for place, attack in enumerate(attacks):
        if attack.client is not None:
            continue
        count = 1 if attack.share is None else max(1, math.floor(attack.share * len(everybody) + 0.5))
        free = [name for name in everybody if name not in chosen]
        if count > len(free):
            raise ConfigError(
                f"exchange.attacks: {attack.kind}: expected at most {len(free)} more attackers, found {count}; "
                "lower the shares"
            )
        generator = torch.Generator().manual_seed(derive_seed(seed, "attack", place))
        order = torch.randperm(len(free), generator=generator).tolist()
        chosen |= {free[position]: attack for position in order[:count]}
    return dict(sorted(chosen.items()))
