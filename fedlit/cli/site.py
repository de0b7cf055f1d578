"""``fedlit site``: a site's side of a federation across institutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedlit.cli.parser import Parser
from fedlit.errors import ConfigError, did_you_mean
from fedlit.show.shown import for_terminal
from fedlit.show.text import Verbatim

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run ``fedlit site`` and return its exit status."""
    command, *rest = argv or ["--help"]
    if command in ("-h", "--help"):
        print("usage: fedlit site COMMAND ...\n")
        print("\n".join(f"  {name:<8} {about}" for name, (_, about) in COMMANDS.items()))
        return 0
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise ConfigError(f"fedlit site: expected one of {', '.join(COMMANDS)}, found {command!r}.{hint}")
    return COMMANDS[command][0](rest)


def _keys(argv: Sequence[str]) -> int:
    from fedlit.institutions.certificates import make_site_keys
    from fedlit.institutions.settings import read_site

    parser = Parser(prog="fedlit site keys", description=COMMANDS["keys"][1])
    parser.add_argument("folder", help="the folder that the coordinator sent, with site.yaml")
    asked = parser.parse_args(argv)
    folder = Path(asked.folder)
    site = read_site(folder / "site.yaml").site
    mine = make_site_keys(folder, site)
    print(for_terminal(f"Made {folder / 'site.key'} (nobody else may have it) and {folder / f'{site}.pub'}."))
    print(for_terminal(f"Send {site}.pub to the coordinator, and tell them by telephone:"))
    print(for_terminal(Verbatim(f"  {mine}")))
    return 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "keys": (_keys, "make this site's key pair"),
}
"""Command → what does it, and what it is for."""
