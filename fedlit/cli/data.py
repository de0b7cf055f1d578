"""``fedlit data``: which sources there are, where their files were found, and how they are fetched."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from fedlit.cli.parser import Parser
from fedlit.data.files import find, locate
from fedlit.data.sources import SOURCES, source_class
from fedlit.data.sources.base import Source
from fedlit.errors import ConfigError, FedlitError, did_you_mean
from fedlit.show.shown import for_terminal, say
from fedlit.show.text import terminal_width

__all__ = ["main"]

_ACTIONS = ("list", "fetch", "show")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``fedlit data`` and return its exit status: 0, 1 if a file could not be fetched, 2 for a wrong command.

    Args:
        argv: what follows ``fedlit data``; the process's own arguments if None.
    """
    parser = Parser(
        prog="fedlit data",
        description="Sources of data: which there are, where their files were found, and how they are fetched.",
        epilog=f"sources: {', '.join(SOURCES)}",
    )
    parser.add_argument("action", nargs="?", default="list", help="list (the default), fetch NAME or show NAME")
    parser.add_argument("name", nargs="?", help="the source to fetch or to show")
    try:
        arguments = parser.parse_args(sys.argv[1:] if argv is None else argv)
        if arguments.action not in _ACTIONS:
            hint = did_you_mean(arguments.action, _ACTIONS)
            raise ConfigError(f"fedlit data: expected list, fetch or show; found {arguments.action!r}.{hint}")
        if arguments.action == "list":
            return _list(arguments.name)
        source = _source(arguments.action, arguments.name)
        return _fetch(source) if arguments.action == "fetch" else _show(source)
    except FedlitError as error:
        say(f"fedlit: error: {error}")
        return error.exit_status


def _source(action: str, name: str | None) -> type[Source]:
    if name is None:
        raise ConfigError(f"fedlit data {action}: expected a source, found none. Sources: {', '.join(SOURCES)}.")
    if name.lower() not in SOURCES:
        raise ConfigError(
            f"fedlit data {action}: expected a source among {', '.join(SOURCES)}; found {name!r}."
            f"{did_you_mean(name, SOURCES)}"
        )
    return source_class(name.lower())


def _list(name: str | None) -> int:
    if name is not None:
        raise ConfigError(f"fedlit data list: expected no name, found {name!r}. Did you mean: fedlit data show {name}?")
    for source in map(source_class, SOURCES):
        print(for_terminal(f"{source.name}: {source.about}"))
        _print_files(source)
    return 0


def _print_files(source: type[Source]) -> None:
    width = max((len(file.path) for file in source.files()), default=0)
    for file in source.files():
        by_hand = f"by hand from {file.page}" if file.page else "no public address"
        missing = f"not found: {f'fedlit data fetch {source.name}' if file.url else by_hand}"
        print(for_terminal(f"  {file.path:{width}}  {find(file) or missing}"))


def _fetch(source: type[Source]) -> int:
    if not source.files():
        print(f"{source.name} has no file to fetch beforehand: {source.about}.")
    status = 0
    for file in source.files():
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


def _show(source: type[Source]) -> int:
    print(for_terminal(f"{source.name}: {source.about}"))
    for heading, text in (("", source.layout), ("Licence: ", source.licence), ("Citation: ", source.citation)):
        if text:
            # lines that were broken by hand are broken anew for a terminal
            print(for_terminal(heading + (re.sub(r"\n +", " ", text) if terminal_width() else text)))
    for file in source.files():
        print(for_terminal(f"{file.path}: {file.about}"))
        if file.url:
            print(f"  from    {file.url}")
        if file.page:
            print(f"  by hand {file.page} (address not verified)")
        print(f"  sha256  {file.sha256 or 'not stated'}")
        print(f"  found   {find(file) or 'no'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
