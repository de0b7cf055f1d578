"""``fedlit methods`` and ``fedlit data``: what comes with fedlit, and how to use it."""

from __future__ import annotations

import inspect

from fedlit.data.files import RemoteFile, find, locate
from fedlit.data.reach import unreachable
from fedlit.data.sources import known_sources
from fedlit.data.sources.base import Source
from fedlit.errors import FedlitError, expect
from fedlit.run.catalogue import FAMILIES, cards, section
from fedlit.show.shown import for_terminal, say
from fedlit.show.text import Verbatim, definitions

_USE = (
    "Show one:    fedlit methods show NAME\nUse it:      fedlit fit --config NAME --method METHOD"
)


def list_methods() -> None:
    """List the methods, family by family, with the idea of each.

    fedlit methods show NAME shows one of them. Use it over any configuration: fedlit fit --config
    NAME --method METHOD
    """
    longest = max(map(len, cards()))
    for family, title in FAMILIES.items():
        ideas = [
            (card.name.ljust(longest), card.idea)
            for card in cards().values()
            if card.family == family
        ]
        print(for_terminal(f"{title}:"))
        print(definitions(ideas), end="\n\n")
    print(for_terminal(Verbatim(_USE)))


def show_method(name: str) -> None:
    """Show a method: its equation, its configuration and what to tune.

    Args:
        name: the name of the method
    """
    known = cards()
    expect(name in known, "fedlit methods show", f"one of {', '.join(known)}", name, known=known)
    print(for_terminal(section(known[name])))
    print(f"\nUse it: fedlit fit --config NAME --method {name}")


def list_sources() -> None:
    """List the known data sources: what they are, and where their files were found.

    fedlit data show NAME shows columns, licence and citation of one; fedlit data fetch NAME
    downloads its files.
    """
    for source in known_sources().values():
        print(for_terminal(f"{source.name}: {' '.join(_about(source)[0].split())}"))
        for file in source.known_files:
            print(for_terminal(f"  {file.path}  {_where(source, file)}"))


def fetch(name: str) -> int:
    """Fetch those files of a source that have a verified public address.

    Args:
        name: the source, as fedlit data names it
    """
    source = _source(name)
    if not source.known_files:
        print(f"{source.name} has no file to fetch beforehand.")
    missing = [file for file in source.known_files if find(file) is None]
    lost = unreachable(address for file in missing for address in file.addresses)
    status = 0
    for file in source.known_files:
        try:
            print(f"{file.path}: {locate(file, unreachable_addresses=lost)}")
        except FedlitError as error:
            say(f"fedlit: error: {error}")
            # who has no address was never to be had this way
            status = max(status, int(file.url is not None))
    return status


def show_source(name: str) -> None:
    """Show the content of a source, its licence and its citation.

    Args:
        name: the source, as fedlit data names it
    """
    source = _source(name)
    print(for_terminal("\n\n".join(_about(source))))
    for file in source.known_files:
        # that of a page is part of what to do
        addresses = [f"  {address}" for address in file.addresses]
        lines = [f"{file.path}: {file.about}", *addresses, f"  {_where(source, file)}"]
        print(for_terminal("\n".join(lines)))


def _where(source: type[Source], file: RemoteFile) -> str:
    by_hand = f"by hand from {file.page}" if file.page else "no public address"
    return str(
        find(file) or f"not found: {f'fedlit data fetch {source.name}' if file.url else by_hand}"
    )


def _about(source: type[Source]) -> list[str]:
    """Return the paragraphs about a source before its arguments."""
    return (
        inspect.cleandoc(source.__doc__ or "")
        .partition("\n\nArgs:")[0]
        .replace("``", "")
        .split("\n\n")
    )


def _source(name: str) -> type[Source]:
    known = known_sources()
    expect(name.lower() in known, "fedlit data", f"one of {', '.join(known)}", name, known=known)
    return known[name.lower()]
