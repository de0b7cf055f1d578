"""The table of commands, and how one is found among the words that were typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedlit.errors import ConfigError, did_you_mean

__all__ = ["COMMANDS", "Command", "find_command"]


class Command(NamedTuple):
    """One command.

    Attributes:
        home: ``module:function``. The parameters of the function are the arguments of the command (see
            :func:`fedlit.cli.parser.call`), and its docstring is the help.
        usage: what follows the name in the list of commands.
        help: one line for that list; empty where another line tells it.
        ranks: whether several processes may run it together.
        foreign: whether it reads files that somebody else may have written, so that ``--trust`` has a meaning.
    """

    home: str
    usage: str = ""
    help: str = ""
    ranks: bool = False
    foreign: bool = False


COMMANDS = {
    "init": Command("init:init", "FOLDER", "write a configuration for the tables of a folder"),
    "check": Command("check:check", "--config NAME", "look at the tables: what is odd, and what to write about it"),
    "recommend": Command(
        "recommend:recommend", "--config NAME", "is joining worth it, for whom, with what: within a budget"
    ),
    "fit": Command("runs:fit", "--config NAME", "train a federation (quickstart.yaml needs no data)", True, True),
    "describe": Command(
        "runs:describe", "--config NAME", "show the plan: rows, parameters, what travels (--format json)", True, True
    ),
    "validate": Command("runs:validate", "--config NAME", "score the validation split of the newest run", True, True),
    "test": Command(
        "runs:test", "--config NAME", "score its test split, write test.csv and test.json (--all shows every score)",
        True, True,
    ),
    "predict": Command(
        "runs:predict", "--config NAME", "write predictions, one file per client (--format csv|parquet)", True, True
    ),
    "predict --run": Command(
        "score:predict", "RUN --client NAME --data FILE", "score new rows with one client of a trained run",
        foreign=True,
    ),
    "export": Command(
        "score:export", "--run RUN --client NAME", "write one client as a folder of data, to score rows elsewhere",
        foreign=True,
    ),
    "add-client": Command(
        "joining:add_client", "--run RUN --config NAME", "let a new client join a trained run, and say what it gains",
        foreign=True,
    ),
    "explain": Command(
        "explain:explain", "--run RUN", "what a run's clients had to correct in their columns (fedlit.IFedAvg)",
        foreign=True,
    ),
    "compare": Command("study:compare", "STUDY", "many methods and seeds: what federation gains, for whom"),
    "search": Command("study:search", "STUDY", "look for what to federate, and how"),
    "methods": Command("methods:list_methods"),
    "methods list": Command(
        "methods:list_methods", "", "the methods that are there: what travels, what may differ, what it costs"
    ),
    "methods show": Command("methods:show_method", "NAME", "one of them: its equation, configuration, what to tune"),
    "partition describe": Command(
        "partition:describe", "--config NAME", "how clients' rows and classes differ: a table and a picture"
    ),
    "data": Command("data:list_sources"),
    "data list": Command("data:list_sources", "", "which known tables there are, and where they were found"),
    "data fetch": Command("data:fetch", "NAME", "fetch one of them"),
    "data show": Command("data:show", "NAME", "its columns, licence and citation"),
    "coordinate init": Command(
        "coordinate:init", "FOLDER", "across institutions: certificates, a registry of keys, what each site needs"
    ),
    "coordinate add": Command("coordinate:add", "FOLDER SITE KEY", "put a site's public key into the registry"),
    "coordinate start": Command(
        "coordinate:start", "FOLDER", "wait for the sites and coordinate; started again, it goes on"
    ),
    "coordinate watch": Command("coordinate:watch", "FOLDER", "rounds, who is in, seconds, bytes"),
    "coordinate renew": Command(
        "coordinate:renew", "FOLDER", "make a new server certificate; sites need nothing new"
    ),
    "site keys": Command("site:keys", "FOLDER", "across institutions: make this site's key pair"),
    "site check": Command(
        "site:check", "--config FILE", "show what would leave this site; sends nothing", foreign=True
    ),
    "site join": Command(
        "site:join", "--config FILE", "take part, once somebody has agreed to what leaves", foreign=True
    ),
}  # fmt: skip
"""Command → where it is, and how it is listed."""
_NEW_ROWS = ("--run", "--client", "--out", "--keys")
"""Flags by which ``fedlit predict`` is about new rows."""


def find_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that words begin with, and the words behind it.

    Args:
        words: what was typed after ``fedlit``; at least one word.

    Returns:
        Its name in :data:`COMMANDS`, or ``site``, the name of a group, where its list is asked for; and the other
        words.

    Raises:
        ConfigError: there is no such command.

    >>> find_command(["site", "join", "--config", "site.yaml"])
    ('site join', ['--config', 'site.yaml'])
    >>> find_command(["predict", "--run=mine", "--client", "a"])
    ('predict --run', ['--run=mine', '--client', 'a'])
    """
    first, *rest = words
    group = {name.split()[1]: name for name in COMMANDS if name.startswith(f"{first} ") and "--" not in name}
    if rest and rest[0] in group:
        return group[rest[0]], rest[1:]
    if group and rest and not rest[0].startswith("-"):
        hint = did_you_mean(rest[0], group)
        raise ConfigError(f"fedlit {first}: expected one of {', '.join(group)}, found {rest[0]!r}.{hint}")
    if first == "predict" and any(word.partition("=")[0] in _NEW_ROWS for word in rest):
        return "predict --run", rest
    if first in COMMANDS or group:
        return first, rest
    known = [*dict.fromkeys(name.split()[0] for name in COMMANDS), "--version", "--help"]
    hint = did_you_mean(first, known) or (" Did you mean fedlit fit --config …?" if first.startswith("-") else "")
    raise ConfigError(f"expected a command, found {first!r}; fedlit --help lists them.{hint}")
