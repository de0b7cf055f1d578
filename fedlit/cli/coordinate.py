"""``fedlit coordinate``: the coordinator's side of a federation across institutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedlit.cli.parser import Commands, Parser, dispatch
from fedlit.show.shown import for_terminal
from fedlit.show.text import Verbatim

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit coordinate`` and return its exit status."""
    return dispatch("fedlit coordinate", "COMMAND FOLDER ...", COMMANDS, argv)


def _parser(name: str) -> Parser:
    parser = Parser(prog=f"fedlit coordinate {name}", description=COMMANDS[name][1])
    parser.add_argument("folder", help="the coordinator's folder")
    return parser


def _tell(lines: Sequence[str]) -> int:
    for line in lines:
        print(for_terminal(Verbatim(line) if line.startswith("  ") else line))
    return 0


def _init(argv: Sequence[str]) -> int:
    from fedlit.institutions.folder import PORT, init

    parser = _parser("init")
    parser.add_argument("--sites", required=True, help="their names, divided by commas")
    parser.add_argument("--address", default="localhost", help="where sites reach this machine (default: localhost)")
    parser.add_argument("--port", type=int, default=PORT, help=f"the port that is open to them (default: {PORT})")
    asked = parser.parse_args(argv)
    return _tell(init(Path(asked.folder), asked.sites.split(","), asked.address, asked.port))


def _add(argv: Sequence[str]) -> int:
    from fedlit.institutions.folder import add
    from fedlit.institutions.settings import read_coordinator

    parser = _parser("add")
    parser.add_argument("site", help="its name")
    parser.add_argument("key", help="the .pub file that it sent")
    asked = parser.parse_args(argv)
    return _tell(add(read_coordinator(Path(asked.folder)), asked.site, Path(asked.key)))


def _renew(argv: Sequence[str]) -> int:
    from fedlit.institutions.folder import renew
    from fedlit.institutions.settings import read_coordinator

    return _tell([renew(read_coordinator(Path(_parser("renew").parse_args(argv).folder)))])


def _start(argv: Sequence[str]) -> int:
    from fedlit.institutions.log import with_time
    from fedlit.institutions.start import start

    with_time()
    return start(Path(_parser("start").parse_args(argv).folder))


def _watch(argv: Sequence[str]) -> int:
    from fedlit.institutions.watch import watch

    parser = _parser("watch")
    parser.add_argument("--once", action="store_true", help="print it once, and end")
    asked = parser.parse_args(argv)
    return watch(Path(asked.folder), once=asked.once)


COMMANDS: Commands = {
    "init": (_init, "make a folder: certificates, a registry of keys, settings, what each site needs"),
    "add": (_add, "put a site's public key into the registry"),
    "start": (_start, "wait for the sites and coordinate; started again, it goes on"),
    "watch": (_watch, "rounds, who is in, seconds, bytes"),
    "renew": (_renew, "make a new server certificate; sites need nothing new"),
}
"""Command → what does it, and what it is for."""
