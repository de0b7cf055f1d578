"""``fedlit methods`` and ``fedlit data``: what comes with fedlit, and how to use it."""

from __future__ import annotations

import inspect
from itertools import chain

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
    methods = cards()
    expect(
        name in methods, "fedlit methods show", f"one of {', '.join(methods)}", name, known=methods
    )
    print(for_terminal(section(methods[name])))
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
    lost = unreachable(chain.from_iterable(file.addresses for file in missing))
    status = 0
    for file in source.known_files:
        try:
            print(f"{file.path}: {locate(file, unreachable_addresses=lost)}")
        except FedlitError as error:
            say(f"fedlit: error: {error}")
            # a file without an address cannot be fetched, which is no failure
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
        addresses = [f"  {address}" for address in file.addresses]
        lines = [f"{file.path}: {file.about}", *addresses, f"  {_where(source, file)}"]
        print(for_terminal("\n".join(lines)))


def _where(source: type[Source], file: RemoteFile) -> str:
    path = find(file)
    if path is not None:
        return str(path)
    if file.url:
        return f"not found: fedlit data fetch {source.name}"
    if file.page:
        return f"not found: by hand from {file.page}"
    return "not found: no public address"


def _about(source: type[Source]) -> list[str]:
    """Return the paragraphs about a source before its arguments."""
    return (
        inspect.cleandoc(source.__doc__ or "")
        .partition("\n\nArgs:")[0]
        .replace("``", "")
        .split("\n\n")
    )


def _source(name: str) -> type[Source]:
    sources = known_sources()
    expect(
        name.lower() in sources, "fedlit data", f"one of {', '.join(sources)}", name, known=sources
    )
    return sources[name.lower()]
