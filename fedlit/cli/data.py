"""``fedlit data``: lists sources and the places of their files, and downloads files."""

from __future__ import annotations

import inspect

from fedlit.data.files import find, locate
from fedlit.data.sources import SOURCES, source_class
from fedlit.data.sources.base import Source
from fedlit.errors import ConfigError, FedlitError, did_you_mean
from fedlit.show.shown import for_terminal, say


def list_sources() -> None:
    """List the known data sources: what they are, and where their files were found."""
    for source in map(source_class, SOURCES):
        print(for_terminal(f"{source.name}: {source.about}"))
        width = max((len(file.path) for file in source.known_files()), default=0)
        for file in source.known_files():
            by_hand = f"by hand from {file.page}" if file.page else "no public address"
            missing = f"not found: {f'fedlit data fetch {source.name}' if file.url else by_hand}"
            print(for_terminal(f"  {file.path:{width}}  {find(file) or missing}"))


def fetch(name: str) -> int:
    """Fetch those files of a source that have a verified public address.

    Args:
        name: the source, as fedlit data list names it
    """
    source = _source(name)
    if not source.known_files():
        print(f"{source.name} has no file to fetch beforehand: {source.about}.")
    status = 0
    for file in source.known_files():
        # A file without an address is no failure of the fetching: it was never to be had this way.
        if file.url is None and find(file) is None:
            get = f" Get it from {file.page} (address not verified)." if file.page else ""
            print(f"{file.path}: has no verified public address; it is read if you put it in a data folder.{get}")
            continue
        try:
            print(f"{file.path}: {locate(file)}")
        except FedlitError as error:
            say(f"fedlit: error: {error}")
            status = 1
    return status


def show(name: str) -> None:
    """Show the content of a source, its licence and its citation.

    Args:
        name: the source, as fedlit data list names it
    """
    source = _source(name)
    print(for_terminal(f"{source.name}: {source.about}"))
    print(for_terminal(inspect.cleandoc(source.__doc__ or "").partition("\n\nArgs:")[0]))
    for file in source.known_files():
        print(for_terminal(f"{file.path}: {file.about}"))
        if file.url:
            print(f"  from    {file.url}")
        if file.page:
            print(f"  by hand {file.page} (address not verified)")
        print(f"  sha256  {file.sha256 or 'not stated'}")
        print(f"  found   {find(file) or 'no'}")


def _source(name: str) -> type[Source]:
    if name.lower() not in SOURCES:
        raise ConfigError(
            f"fedlit data: expected a source among {', '.join(SOURCES)}; found {name!r}.{did_you_mean(name, SOURCES)}"
        )
    return source_class(name.lower())
