"""The methods that came with fedlit: of each a card, which says what it is, and a configuration, which is laid over any
other. Imports nothing heavy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.config import config_folders, read_yaml, typed_value

__all__ = [
    "FAMILIES",
    "HEAD",
    "METHODS",
    "PLAIN",
    "Card",
    "cards",
    "find_method",
    "method_table",
    "methods_markdown",
    "space_words",
    "times",
]

METHODS = "methods"
"""Their folder, in the folder of configurations."""
FLAG = "--method"
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
        about_defaults: what is to be said of the defaults of its settings; empty for nothing.
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
    about_defaults: str = ""
    upload: float | None = None
    download: float | None = None
    time: float | None = None
    tune: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    diff: tuple[str, ...] = ()
    python: str = ""

    @property
    def config(self) -> Path:
        """The configuration that makes a run one of this method."""
        return find_method(self.name)

    @property
    def source(self) -> str:
        """First author and year, where there is a paper."""
        found = re.match(r"(.+?)(, | and | et al\.? | \(?(?=\d{4})).*?(\d{4})", self.paper)
        if found is None:
            return "–"
        return f"{found[1]}{'' if found[2].strip() in ('', '(') else ' et al.'} {found[3]}"

    @property
    def defaults(self) -> str:
        """The settings of its class with their defaults, and remarks on them."""
        name = self.python.rpartition(".")[2]
        own = ", ".join(f"{key}: {value}" for key, value in class_defaults(name).items())
        return "; ".join(part for part in (own, self.about_defaults) if part)

    @property
    def differ(self) -> dict[str, str]:
        """In what clients may differ → whether, or where."""
        return {key: getattr(self, key) for key in ("columns", "classes", "tasks", "sizes")}

    @property
    def bytes(self) -> float | None:
        """The bytes of an exchange, both ways, as a multiple of FedAvg's."""
        return None if self.upload is None or self.download is None else (self.upload + self.download) / 2


def class_defaults(name: str) -> dict[str, str]:
    """The settings that have defaults of one of fedlit's classes, read from its source: nothing is imported.

    Example:
        >>> class_defaults("FedProx")
        {'mu': '0.01'}
    """
    library = Path(__file__).parents[1]
    for file in (*library.glob("methods/*.py"), *library.glob("exchange/rules/*.py")):
        text = file.read_text(encoding="utf-8")
        if f"\nclass {name}(" not in text:
            continue
        found = next(own for own in ast.parse(text).body if isinstance(own, ast.ClassDef) and own.name == name)
        init = next((own for own in found.body if isinstance(own, ast.FunctionDef) and own.name == "__init__"), None)
        if init is None:
            return class_defaults(ast.unparse(found.bases[0]))
        arguments = init.args.args[len(init.args.args) - len(init.args.defaults) :]
        values = [ast.unparse(value).strip("'") for value in init.args.defaults]
        # class_weights is every client's, and no method's
        return {own.arg: value for own, value in zip(arguments, values, strict=True) if own.arg != "class_weights"}
    return {}


@cache
def cards() -> dict[str, Card]:
    """Return all cards by name, family by family."""
    known = {own.name for own in fields(Card)}
    found = []
    for name, said in read_yaml(_CARDS).items():
        own: dict[str, Any] = {key: value.strip() if isinstance(value, str) else value for key, value in said.items()}
        assert own.keys() <= known and own["family"] in FAMILIES, name
        own["diff"] = tuple(own.get("diff") or ())
        found.append(Card(name=name, **own))
    order = list(FAMILIES)
    return {own.name: own for own in sorted(found, key=lambda own: order.index(own.family))}


def find_method(name: str, also: Path | None = None, what: str = FLAG) -> Path:
    """The configuration that ``--method`` means.

    Args:
        name: of a method that came with fedlit, or the path of a file of one's own.
        also: a folder to look into last.
        what: where the name stands.

    Raises:
        ConfigError: there is none.

    Example:
        >>> find_method("fedavg").name
        'fedavg.yaml'
    """
    asked = Path(name).expanduser()
    if asked.suffix in (".yaml", ".yml") or asked.parent != Path():
        for folder in (Path(), *([also] if also is not None else [])):
            if (folder / asked).is_file():
                return (folder / asked).resolve()
        looked = ", ".join(str(own.resolve()) for own in (Path(), *([also] if also is not None else [])))
        raise ConfigError(
            f"{what} {name}: expected a YAML file, found none in {looked}; write one (docs: Write a method or bring "
            "a network), or take a name that fedlit methods lists"
        )
    for folder in config_folders()[1:]:
        path = folder / METHODS / f"{name}.yaml"
        if name and path.is_file():
            return path.resolve()
    raise ConfigError(
        f"{what.removesuffix(':')}: expected the name of a method, or a YAML file of your own, found {name!r}."
        f"{did_you_mean(name, cards())} fedlit methods lists them"
    )


HEAD = ("method", "paper", "columns", "classes", "bytes", "time")


def method_table() -> dict[str, list[list[str]]]:
    """Family → a line of cells for each of its methods, below :data:`HEAD`."""
    found: dict[str, list[list[str]]] = {family: [] for family in FAMILIES}
    for own in cards().values():
        found[own.family].append(
            [own.name, own.source, _short(own.columns), _short(own.classes), times(own.bytes), times(own.time)]
        )
    return {family: rows for family, rows in found.items() if rows}


def methods_markdown() -> str:
    """A table of all methods for a page, and a section for each."""
    head = ["name", "idea", "columns may differ", "classes may differ", "cost"]
    lines: list[str] = []
    details: list[str] = []
    for family, title in FAMILIES.items():
        lines += [f"### {title}", "", _line(head), _line(["---"] * len(head))]
        for own in cards().values():
            if own.family == family:
                cost = "–" if own.bytes is None else f"{times(own.bytes)} × bytes"
                cost += "" if own.time is None else f", {times(own.time)} × time"
                cells = [f"[`{own.name}`](#{own.name})", own.idea, own.columns, own.classes, cost]
                lines.append(_line([cell.replace("in a private part", "private part") for cell in cells]))
                details += [_section(own), ""]
        lines.append("")
    return "\n".join([*lines, "## Each method", "", *details]).rstrip()


def _section(card: Card) -> str:
    facts = {
        "Paper": card.paper,
        "For": card.helps,
        "Shared": card.travels,
        "Private": card.stays,
        "Clients may differ in": ", ".join(f"{key} ({value})" for key, value in card.differ.items()),
        "Cost": f"{times(card.upload)} up, {times(card.download)} down, {times(card.time)} in time (FedAvg: 1)",
        "Tolerates attackers": card.robust,
        "Defaults": card.defaults,
        "Class": f"`{card.python}`" if card.python else "",
        "Differs from the paper": "; ".join(card.diff),
        "What to tune": "; ".join(f"`{key}`: {space_words(space)}" for key, space in card.tune.items()),
    }
    lines = [f"- **{key}**: {' '.join(said.split())}" for key, said in facts.items() if said]
    equation = ["```text", *card.equation.splitlines(), "```"]
    config = ["<!-- not run: --method applies it -->", "```yaml", card.config.read_text("utf-8").rstrip(), "```"]
    return "\n".join([f"### {card.name}", "", f"{card.title}. {card.idea}", "", *equation, "", *lines, "", *config])


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


def _short(differ: str) -> str:
    return "private" if differ.startswith("in a private") else differ


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def times(value: float | None) -> str:
    """A multiple, as people read it.

    Example:
        >>> times(1.0), times(1.5), times(None)
        ('1', '1.5', '–')
    """
    return "–" if value is None else f"{value:.3g}"
