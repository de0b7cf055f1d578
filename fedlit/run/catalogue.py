"""The methods that came with fedlit: of each a card, which says what it is, and a configuration, which is laid over any
other. Imports nothing heavy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedlit.run.config import METHODS, find_config, read_yaml, typed_value

__all__ = [
    "FAMILIES",
    "PLAIN",
    "Card",
    "cards",
    "space_words",
    "times",
]

FLAG = "--method"
_DIFFER = ("columns", "classes", "tasks", "sizes")
PLAIN = Path(__file__).with_name("plain.yaml")
"""What lies below a method's configuration, and above all others."""
_CARDS = Path(__file__).with_name("catalogue.yaml")

FAMILIES = {
    "baseline": "Baselines",
    "partial model": "Partial sharing and personalisation",
    "personal model": "Personalised models",
    "drift": "Client drift",
    "server": "Server optimizers",
    "clusters": "Clustered federated learning",
    "robust": "Byzantine-robust aggregation",
    "trees and linear": "Trees and linear models",
    "by part": "Rules by part",
}
"""Families of methods, in the order in which they are shown → their titles."""


@dataclass(frozen=True)
class Card:
    """The card of a method.

    Attributes:
        name: by which it is called: ``--method NAME``.
        title: what its authors call it.
        idea: what it does, in one sentence.
        family: one of :data:`FAMILIES`.
        paper: authors, year, title, where.
        equation: what it computes, and where the paper says so; some lines of text.
        travels: what is sent, and received.
        stays: what each client keeps to itself.
        columns: whether clients may have other columns: ``yes``, ``no``, or ``in a private part``: where what differs
            is not federated.
        classes: whether they may have other classes.
        tasks: whether they may have other tasks.
        sizes: whether they may have networks of other sizes (numbers of rows may always differ).
        upload: what a client sends in an exchange, as a multiple of the federated part (FedAvg: 1); None where that
            cannot be compared, for no network travels.
        download: what it receives, likewise.
        time: gradients that a client computes in a step, as a multiple of FedAvg's, or None.
        robust: whether it tolerates clients that send anything.
        defaults: the settings of its class with their defaults, and what is to be said of them; empty for nothing.
        tune: what is worth trying: key → values, as a search's space.
        diff: where it differs from the paper.
        helps: whom it is meant for.
        python: the class or classes, ``fedlit.Ditto``; empty for a pattern.
    """

    name: str
    title: str
    idea: str
    family: str
    paper: str
    equation: str
    travels: str
    stays: str
    columns: str
    classes: str
    tasks: str
    sizes: str
    robust: str
    helps: str
    defaults: str = ""
    upload: float | None = None
    download: float | None = None
    time: float | None = None
    tune: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    diff: Sequence[str] = ()
    python: str = ""

    @property
    def config(self) -> Path:
        """The configuration that makes a run one of this method."""
        return find_config(self.name, METHODS)

    @property
    def source(self) -> str:
        """First author and year, where there is a paper."""
        found = re.match(r"(.+?)(, | and | et al\.? | \(?(?=\d{4})).*?(\d{4})", self.paper)
        if found is None:
            return "–"
        return f"{found[1]}{'' if found[2].strip() in ('', '(') else ' et al.'} {found[3]}"

    @property
    def facts(self) -> dict[str, str]:
        """Title → what there is to say below it."""
        facts = {
            "Paper": self.paper,
            "For": self.helps,
            "Shared": self.travels,
            "Private": self.stays,
            "Clients may differ in": ", ".join(f"{key} ({getattr(self, key)})" for key in _DIFFER),
            "Cost": f"{times(self.upload)} up, {times(self.download)} down, {times(self.time)} in time (FedAvg: 1)",
            "Tolerates attackers": self.robust,
            "Defaults": self.defaults,
            "Class": f"`{self.python}`" if self.python else "",
            "Differs from the paper": "; ".join(self.diff),
            "What to tune": "; ".join(f"`{key}`: {space_words(space)}" for key, space in self.tune.items()),
        }
        return {title: " ".join(told.split()) for title, told in facts.items() if told}

    @property
    def bytes(self) -> float | None:
        """The bytes of an exchange, both ways, as a multiple of FedAvg's."""
        return None if self.upload is None or self.download is None else (self.upload + self.download) / 2


@cache
def cards() -> dict[str, Card]:
    """Return all cards by name, family by family."""
    found = [Card(name=name, **told) for name, told in read_yaml(_CARDS).items()]
    return {own.name: own for own in sorted(found, key=lambda own: list(FAMILIES).index(own.family))}


def space_words(space: object) -> str:
    """What a search may try for a key, in words.

    Example:
        >>> space_words({"low": 0.1, "high": 1.0, "log": True})
        '0.1 to 1.0, on a logarithmic scale'
    """
    if not isinstance(space, Mapping):
        return str(space)
    if "choices" in space:
        return " or ".join(typed_value(value) for value in space["choices"])
    return f"{space['low']} to {space['high']}" + (", on a logarithmic scale" if space.get("log") else "")


def times(value: float | None) -> str:
    """A multiple, as people read it.

    Example:
        >>> times(1.0), times(1.5), times(None)
        ('1', '1.5', '–')
    """
    return "–" if value is None else f"{value:.3g}"
