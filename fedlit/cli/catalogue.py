"""``fedlit methods`` and ``fedlit data``: what comes with fedlit, and how to use it."""

from __future__ import annotations

import inspect
from typing import Literal

from fedlit.data.files import find, locate
from fedlit.data.sources import known_sources
from fedlit.data.sources.base import Source
from fedlit.errors import FedlitError, expect
from fedlit.run.catalogue import FAMILIES, Card, cards, times
from fedlit.run.config import shown
from fedlit.show.shown import Grid, for_terminal, say
from fedlit.show.text import Verbatim, definitions, terminal_width

_ABOUT = """Columns, classes: whether clients may differ in them; private: only if the part that differs is not \
federated, as with --exchange.federated '[core]' --data.align none. Bytes of an exchange and gradients of a step \
(time) are multiples of FedAvg's with the same federated part.
"""
_USE = "Show one:    fedlit methods show NAME\nUse it:      fedlit fit --config NAME --method METHOD"


def list_methods(*, format: Literal["table", "markdown"] = "table") -> None:
    """List the methods, what may differ between clients, and what each method costs.

    Use one over any configuration: fedlit fit --config NAME --method METHOD

    Args:
        format: the format of the list
    """
    if format == "markdown":
        print(methods_markdown())
        return
    for family, title in FAMILIES.items():
        rows = [
            [own.name, own.source, _short(own.columns), _short(own.classes), times(own.bytes), times(own.time)]
            for own in cards().values()
            if own.family == family
        ]
        table = Grid(["method", "paper", "columns", "classes", "bytes", "time"], rows).text()
        print(for_terminal(Verbatim(f"{title}:\n\n{table}\n")))
    print(for_terminal(_ABOUT))
    print(for_terminal(Verbatim(_USE)))


def show_method(name: str) -> None:
    """Show a method: its equation, its configuration and what to tune.

    Args:
        name: the name of the method
    """
    known = cards()
    expect(name in known, "fedlit methods show", f"one of {', '.join(known)}", name, known=known)
    own = known[name]
    facts = [(title.lower(), told.replace("`", "")) for title, told in own.facts.items()]
    print(for_terminal(f"{own.title} ({own.name}). {own.idea}"))
    print("\n" + _indented(own.equation), definitions(facts, terminal_width()), sep="\n\n")
    print(f"\n{shown(own.config)}:\n\n{_indented(own.config.read_text(encoding='utf-8'))}")
    print(f"\nUse it: fedlit fit --config NAME --method {own.name}")


def methods_markdown() -> str:
    """Return a Markdown table of all methods, and a section for each."""
    lines, details = list[str](), list[str]()
    for family, title in FAMILIES.items():
        lines += [f"### {title}", "", "| name | idea | columns may differ | classes may differ | cost |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for own in cards().values():
            if own.family == family:
                cost = "–" if own.bytes is None else f"{times(own.bytes)} × bytes"
                cost += "" if own.time is None else f", {times(own.time)} × time"
                cells = [f"[`{own.name}`](#{own.name})", own.idea, _short(own.columns), _short(own.classes), cost]
                lines.append(f"| {' | '.join(cells)} |")
                details.append(_section(own))
        lines.append("")
    return "\n".join([*lines, "## Each method", *details])


def _section(card: Card) -> str:
    facts = "\n".join(f"- **{title}**: {told}" for title, told in card.facts.items())
    config = f"<!-- not run: --method applies it -->\n```yaml\n{card.config.read_text('utf-8').rstrip()}\n```"
    equation = f"```text\n{card.equation.rstrip()}\n```"
    return "\n\n".join([f"\n### {card.name}", f"{card.title}. {card.idea}", equation, facts, config])


def _short(differ: str) -> str:
    return "private" if differ.startswith("in a private") else differ


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def list_sources() -> None:
    """List the known data sources: what they are, and where their files were found."""
    for source in known_sources().values():
        print(for_terminal(f"{source.name}: {' '.join(_about(source)[0].split())}"))
        width = max((len(file.path) for file in source.known_files), default=0)
        for file in source.known_files:
            by_hand = f"by hand from {file.page}" if file.page else "no public address"
            missing = f"not found: {f'fedlit data fetch {source.name}' if file.url else by_hand}"
            print(for_terminal(f"  {file.path:{width}}  {find(file) or missing}"))


def fetch(name: str) -> int:
    """Fetch those files of a source that have a verified public address.

    Args:
        name: the source, as fedlit data list names it
    """
    source = _source(name)
    if not source.known_files:
        print(f"{source.name} has no file to fetch beforehand.")
    status = 0
    for file in source.known_files:
        try:
            print(f"{file.path}: {locate(file)}")
        except FedlitError as error:
            say(f"fedlit: error: {error}")
            status = max(status, int(file.url is not None))  # who has no address was never to be had this way
    return status


def show_source(name: str) -> None:
    """Show the content of a source, its licence and its citation.

    Args:
        name: the source, as fedlit data list names it
    """
    source = _source(name)
    print(for_terminal("\n\n".join(_about(source))))
    for file in source.known_files:
        print(for_terminal(f"{file.path}: {file.about}"))
        if file.url:
            print(f"  from    {file.url}")
        if file.page:
            print(f"  by hand {file.page} (address not verified)")
        print(f"  sha256  {file.sha256 or 'not stated'}")
        print(f"  found   {find(file) or 'no'}")


def _about(source: type[Source]) -> list[str]:
    """Return the paragraphs about a source before its arguments."""
    return inspect.cleandoc(source.__doc__ or "").partition("\n\nArgs:")[0].replace("``", "").split("\n\n")


def _source(name: str) -> type[Source]:
    known = known_sources()
    expect(name.lower() in known, "fedlit data", f"one of {', '.join(known)}", name, known=known)
    return known[name.lower()]
