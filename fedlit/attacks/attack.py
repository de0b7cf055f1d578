"""What attacks there are, and who makes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fedlit.errors import ConfigError, did_you_mean
from fedlit.seeding import derive_seed

__all__ = ["KINDS", "Attack", "AttackKind", "Kind", "drawn"]

AttackKind = Literal[
    "sign_flip", "scaled", "noise", "alie", "ipm", "nan", "replay", "free_rider", "label_flip", "backdoor"
]


@dataclass(frozen=True)
class Kind:
    """What is known of a kind of attack.

    Attributes:
        told: what such a client does, in words; ``{by}`` is how much.
        by: how much if nothing is said; None where there is nothing to say.
        least: what ``by`` must be above; ``most`` the most it may be.
        of_rows: whether training rows are changed; otherwise what the client sends.
        keeps: which state such a client keeps from round to round: what it had when it was last told, or what it first
            sent.
        colludes: whether it looks at what other clients send in the same round.
    """

    told: str
    by: float | None = None
    least: float = 0.0
    most: float = math.inf
    of_rows: bool = False
    keeps: Literal["", "received", "sent"] = ""
    colludes: bool = False


KINDS: Mapping[AttackKind, Kind] = {
    "sign_flip": Kind("moves {by:g} times as far, the other way", 1.0, keeps="received"),
    "scaled": Kind("moves {by:g} times as far", 10.0, keeps="received"),
    "noise": Kind("adds Gaussian noise of standard deviation {by:g} to its parameters", 1.0),
    "alie": Kind("sends the others' mean less {by:g} of their standard deviations", 1.5, colludes=True),
    "ipm": Kind("moves {by:g} times as far as the others' mean, the other way", 0.5, keeps="received", colludes=True),
    "nan": Kind("sends NaN"),
    "replay": Kind("sends what it sent first, in every round", keeps="sent"),
    "free_rider": Kind(
        "sends back what it received, with Gaussian noise of standard deviation {by:g}", 0.0, -1e-9, keeps="received"
    ),
    "label_flip": Kind(
        "trains on rows of which {percent:g} % have another label: the first for the last, and so on",
        1.0,
        most=1.0,
        of_rows=True,
    ),
    "backdoor": Kind(
        "trains on rows of which {percent:g} % have {feature} = {value:g} and the label {label}",
        0.5,
        most=1.0,
        of_rows=True,
    ),
}
"""Kind → what is known of it."""


@dataclass(frozen=True)
class Attack:
    """An attack to plant in one client, or in a share of them.

    Every client's table, training and optimizer stay as they are; what changes is what leaves the client, or, with
    ``label_flip`` and ``backdoor``, its training rows (never those it is validated and tested on). Of what is sent,
    parameters are changed; ``nan``, ``replay`` and ``free_rider`` change buffers too.

    Attributes:
        kind: ``sign_flip`` sends w − by · (ω − w), where ω is what the client would send and w what it had after the
            last exchange; ``scaled`` sends w + by · (ω − w); ``noise`` ω plus Gaussian noise; ``alie``, a little is
            enough (Baruch, Baruch and Goldberg 2019, arXiv:1902.06156), the mean of those that do not attack less
            ``by`` of their standard deviations; ``ipm``, inner-product manipulation (Xie, Koyejo and Gupta 2020,
            arXiv:1903.03936), w − by · (their mean − w); ``nan``; ``replay`` what it sent first; ``free_rider`` w;
            ``label_flip`` changes the labels of training rows, the first in order for the last, the second for the
            last but one, and so on; ``backdoor`` sets ``feature`` to ``value`` and the label to ``label`` in training
            rows.
        client: who; drawn by the run's seed if None.
        share: of all clients that attack, in (0, 1], at least one client; one client if None.
        by: how much: a factor, a standard deviation (of ``noise`` and ``free_rider``), or a share of the training
            rows; what the kind has by default if None (see :data:`KINDS`).
        feature: the column of numbers that opens the back door.
        value: what it is set to.
        label: what is to be predicted then.

    Raises:
        ConfigError: what does not fit together.

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
        where, known = f"exchange.attacks: {self.kind}", KINDS[self.kind]
        if self.client is not None and self.share is not None:
            raise ConfigError(
                f"{where}: expected a client or a share, found {self.client} and {self.share}; leave one out"
            )
        if self.share is not None and not 0 < self.share <= 1:
            raise ConfigError(f"{where}: share: expected a share of the clients in (0, 1], found {self.share}")
        if self.by is not None and known.by is None:
            raise ConfigError(f"{where}: expected no by, found {self.by}; leave it out")
        if self.by is not None and not (known.least < self.by <= known.most and math.isfinite(self.by)):
            most = f" and at most {known.most:g}" if known.most < math.inf else ""
            least = "of at least 0" if known.least < 0 else "above 0"
            raise ConfigError(f"{where}: by: expected a finite number {least}{most}, found {self.by}")
        door = {"feature": self.feature, "value": self.value, "label": self.label}
        for key, found in door.items():
            if self.kind == "backdoor" and found is None:
                raise ConfigError(f"{where}: {key}: expected it, found none; set feature, value and label")
            if self.kind != "backdoor" and found is not None:
                raise ConfigError(f"{where}: expected no {key}, found {found}; leave it out")
        if self.value is not None and not math.isfinite(self.value):
            raise ConfigError(f"{where}: value: expected a finite number, found {self.value}")

    @property
    def amount(self) -> float:
        """How much."""
        return (KINDS[self.kind].by or 0.0) if self.by is None else self.by

    @property
    def told(self) -> str:
        """What such a client does, in words."""
        about: dict[str, Any] = {"by": self.amount, "percent": 100 * self.amount}
        return KINDS[self.kind].told.format(**about, feature=self.feature, value=self.value or 0.0, label=self.label)


def drawn(attacks: Sequence[Attack], names: Iterable[str], seed: int) -> dict[str, Attack]:
    """Client → its attack, a function of the seed and all clients' names.

    Args:
        attacks: in this order; a client that one of them names, or that has been drawn, is not drawn again.
        names: of all clients.
        seed: the run's.

    Raises:
        ConfigError: a client that there is not, or that is named twice, or fewer clients than attackers.

    Example:
        >>> attackers = drawn([Attack("nan", share=0.5)], ["north", "east", "south", "west"], seed=0)
        >>> len(attackers)
        2
    """
    everybody = sorted(names)
    found: dict[str, Attack] = {}
    for attack in attacks:
        if attack.client is None:
            continue
        if attack.client not in everybody:
            raise ConfigError(
                f"exchange.attacks: {attack.kind}: expected one of the clients {', '.join(everybody)}, found "
                f"{attack.client!r}." + did_you_mean(attack.client, everybody)
            )
        if attack.client in found:
            raise ConfigError(f"exchange.attacks: expected one attack a client, found two of {attack.client!r}")
        found[attack.client] = attack
    for place, attack in enumerate(attacks):
        if attack.client is not None:
            continue
        wanted = 1 if attack.share is None else max(1, math.floor(attack.share * len(everybody) + 0.5))
        free = [name for name in everybody if name not in found]
        if wanted > len(free):
            raise ConfigError(
                f"exchange.attacks: {attack.kind}: expected at most {len(free)} more attackers, found {wanted}; "
                "lower the shares"
            )
        generator = torch.Generator().manual_seed(derive_seed(seed, "attack", place))
        order = torch.randperm(len(free), generator=generator).tolist()
        found |= {free[position]: attack for position in order[:wanted]}
    return dict(sorted(found.items()))
