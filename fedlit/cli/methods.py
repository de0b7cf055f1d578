"""``fedlit methods``: which methods there are; of one of them what it computes, and how it is used."""

from __future__ import annotations

from typing import Literal

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.catalogue import FAMILIES, HEAD, Card, cards, method_table, methods_markdown, space_words, times
from fedlit.run.config import shown
from fedlit.show.shown import Grid, Shown, for_terminal
from fedlit.show.text import Verbatim, definitions, terminal_width

__all__ = ["list_methods", "show_method"]


def list_methods(*, format: Literal["table", "markdown"] = "table") -> None:
    """List the methods: what may differ between clients, and what it costs.

    Use one over any configuration: fedlit fit --config NAME --method METHOD

    Args:
        format: of the list
    """
    print(methods_markdown() if format == "markdown" else for_terminal(Listed()))


def show_method(name: str) -> None:
    """Show a method: its equation, its configuration and what to tune.

    Args:
        name: of the method
    """
    known = cards()
    if name not in known:
        raise ConfigError(
            f"fedlit methods show: expected one of {', '.join(known)}, found {name!r}.{did_you_mean(name, known)}"
        )
    print(for_terminal(Described(known[name])))


class Listed(Shown):
    """The list of all methods, family by family."""

    def parts(self) -> list[str | Grid]:
        """A table for each family, and how to go on."""
        parts: list[str | Grid] = []
        for family, rows in method_table().items():
            parts += [f"{FAMILIES[family]}:", "", Grid(list(HEAD), rows), ""]
        return [
            *parts,
            "Columns, classes: whether clients may differ in them; private: only if the part that differs is not "
            "federated, as with --exchange.federated '[core]' --data.align none. Bytes of an exchange and gradients of "
            "a step (time) are multiples of FedAvg's with the same federated part.",
            "",
            Verbatim("Show one:    fedlit methods show NAME"),
            Verbatim("Use it:      fedlit fit --config NAME --method METHOD"),
        ]


class Described(Shown):
    """One method.

    Args:
        card: its card.
    """

    def __init__(self, card: Card) -> None:
        self.card = card

    def parts(self) -> list[str | Grid]:
        """Return its purpose, equation, cost and configuration, and what to tune."""
        own = self.card
        differ = ", ".join(f"{key} {value}" for key, value in own.differ.items())
        facts = {
            "paper": own.paper,
            "for": own.helps,
            "travels": own.travels,
            "stays": own.stays,
            "may differ": differ,
            "costs": f"{times(own.upload)} up, {times(own.download)} down, {times(own.time)} in time (FedAvg: 1)",
            "robust": own.robust,
            "defaults": own.defaults,
            **({"class": own.python} if own.python else {}),
        }
        config = own.config.read_text(encoding="utf-8").rstrip()
        tune = [f"  {key}: {space_words(space)}" for key, space in own.tune.items()]
        return [
            f"{own.title} ({own.name}). {own.idea}",
            "",
            "\n".join(f"  {line}" for line in own.equation.splitlines()),
            "",
            Verbatim(definitions(facts.items(), terminal_width())),
            "",
            *(["Where it differs from the paper:", *(f"- {line}" for line in own.diff), ""] if own.diff else []),
            Verbatim(f"{shown(own.config)}:"),
            "",
            "\n".join(f"  {line}" for line in config.splitlines()),
            "",
            *(["What to tune, beside the learning rate:", Verbatim("\n".join(tune)), ""] if tune else []),
            Verbatim(f"Use it: fedlit fit --config NAME --method {own.name}"),
        ]
