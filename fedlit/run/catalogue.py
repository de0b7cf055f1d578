"""The methods that come with fedlit. Each is one file, ``configs/methods/NAME.yaml``: a
configuration, which is laid over any other one, and below it a card, which describes the method.
Imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedlit.run.config import CARD, METHODS, config_folders, find_config, read_yaml

FLAG = "--method"
_DIFFER = ("columns", "classes", "tasks", "sizes")
PLAIN = Path(__file__).with_name("plain.yaml")
"""What lies below a method's configuration, and above all others."""

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
        name: the name for ``--method NAME``.
        title: the name that its authors use.
        idea: a sentence on what it does.
        family: one of :data:`FAMILIES`.
        paper: the authors, year, title and place of publication.
        equation: what it computes, with the place in the paper; several lines of text.
        travels: what is sent and received.
        stays: what each client keeps private.
        columns: whether clients may have different columns: ``yes``, ``no``, or ``in a private
            part``, if the part that differs is not federated.
        classes: whether clients may have different classes.
        tasks: whether clients may have different tasks.
        sizes: whether clients may have networks of different sizes (numbers of rows may always
            differ).
        upload: what a client sends in an exchange, as a multiple of the federated part (FedAvg: 1);
            None if this cannot be compared, because no network is sent.
        download: what a client receives, likewise.
        time: the number of gradients that a client computes in a step, as a multiple of FedAvg's,
            or None.
        robust: whether it tolerates clients that send arbitrary values.
        defaults: the settings of its class with their defaults, and remarks on them; empty for
            none.
        tune: maps each key that is worth tuning to its values, in the format of a search space.
        diff: how it differs from the paper.
        helps: for whom it is meant.
        python: the class or classes, such as ``fedlit.Ditto``; empty for a pattern.
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
        """The configuration file that applies this method."""
        return find_config(self.name, METHODS)

    @property
    def settings(self) -> str:
        """The text of the configuration, without the card."""
        settings, _, _ = self.config.read_text("utf-8").partition(f"\n{CARD}:\n")
        return settings.rstrip()

    @property
    def facts(self) -> dict[str, str]:
        """Maps each title to the text below it."""
        python = f"`{self.python}`" if self.python else ""
        facts = {
            "Paper": self.paper,
            "For": self.helps,
            "Shared": self.travels,
            "Private": self.stays,
            "Clients may differ in": ", ".join(f"{key} ({getattr(self, key)})" for key in _DIFFER),
            "Cost": f"{times(self.upload)} up, {times(self.download)} down, {times(self.time)} in "
            "time (FedAvg: 1)",
            "Tolerates attackers": self.robust,
            "Defaults": self.defaults,
            "Class": python,
            "Differs from the paper": "; ".join(self.diff),
            "What to tune": "; ".join(
                f"`{key}`: {values_of(space)}" for key, space in self.tune.items()
            ),
        }
        return {title: " ".join(text.split()) for title, text in facts.items() if text}

    @property
    def bytes(self) -> float | None:
        """The bytes of an exchange, both ways, as a multiple of FedAvg's."""
        if self.upload is None or self.download is None:
            return None
        return (self.upload + self.download) / 2


@cache
def cards() -> dict[str, Card]:
    """Return all cards by name, family by family, and in a family by name."""
    folder = config_folders()[-1] / METHODS
    every = [
        Card(name=path.stem, **read_yaml(path)[CARD]) for path in sorted(folder.glob("*.yaml"))
    ]
    families = list(FAMILIES)
    return {card.name: card for card in sorted(every, key=lambda card: families.index(card.family))}


def section(card: Card) -> str:
    """Return all about a method, as Markdown."""
    facts = "\n".join(f"- **{title}**: {text}" for title, text in card.facts.items())
    equation = card.equation.rstrip()
    return (
        f"{card.title}. "
        f"{card.idea}\n\n```text\n{equation}\n```\n\n{facts}\n\n```yaml\n{card.settings}\n```"
    )


def values_of(space: Mapping[str, Any]) -> str:
    """Return the values of a search space as text for the user.

    Example:
        >>> values_of({"choices": ["epoch", {"epochs": 5}]})
        '`epoch`, `{epochs: 5}`'
        >>> values_of({"low": 0.01, "high": 1.0, "log": True})
        '0.01 to 1.0, on a log scale'
    """
    if "choices" in space:
        values = [json.dumps(value).replace('"', "") for value in space["choices"]]
        return ", ".join(f"`{value}`" for value in values)
    text = f"{space['low']} to {space['high']}"
    return f"{text}, on a log scale" if space.get("log") else text


def short(differ: str) -> str:
    """Return whether clients may differ in something, in a word."""
    return "private" if differ.startswith("in a private") else differ


def times(value: float | None) -> str:
    """Return a multiple as text for the user.

    Example:
        >>> times(1.0), times(1.5), times(None)
        ('1', '1.5', '–')
    """
    return "–" if value is None else f"{value:.3g}"
