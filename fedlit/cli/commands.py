"""The table of commands; which of them is typed, and its arguments, which are the parameters of its
function.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, NamedTuple, NoReturn, Union, get_args, get_origin

from docstring_parser import parse

from fedlit.errors import ConfigError, did_you_mean, expect
from fedlit.names import joined
from fedlit.run.allowed import FLAG as TRUST
from fedlit.show.text import definitions


class Command(NamedTuple):
    """The description of one command.

    Attributes:
        home: ``module:function``. The parameters of the function are the arguments of the command
            (see :func:`call`), and its docstring is the help.
        usage: the arguments that follow the name in the list of commands.
        help: one line for that list.
    """

    home: str
    usage: str
    help: str


_GROUPS = {
    "Your tables": {
        "init": Command(
            "tables:init",
            "FILES --target COLUMN",
            "write a configuration for tables (--example: make some)",
        ),
        "check": Command(
            "tables:check", "--config NAME", "find problems in the tables, and what fixes them"
        ),
        "recommend": Command(
            "tables:recommend", "--config NAME", "find out who should join, and with which method"
        ),
    },
    "A federation": {
        "fit": Command(
            "runs:fit", "--config NAME", "train a federation (quickstart needs no data)"
        ),
        "describe": Command(
            "runs:describe", "--config NAME", "print the plan: rows, parameters, what is sent"
        ),
        "validate": Command(
            "runs:validate", "--config NAME", "score the validation split of the newest run"
        ),
        "test": Command(
            "runs:test", "--config NAME", "score the test split (--all shows every score)"
        ),
        "predict": Command(
            "runs:predict", "--config NAME", "write predictions, one file per client"
        ),
    },
    "A trained run": {
        "predict --run": Command(
            "trained:predict", "RUN --client NAME --data FILE", "score new rows"
        ),
        "export": Command(
            "trained:export", "--run RUN --client NAME", "write one client as a folder of data"
        ),
        "explain": Command(
            "trained:explain", "--run RUN", "show what a client relies on, or what clients correct"
        ),
        "add-client": Command(
            "trained:add_client", "--run RUN --config NAME", "add a client to a trained run"
        ),
    },
    "Comparisons": {
        "compare": Command("study:compare", "STUDY", "measure what federation gains, and for whom"),
        "search": Command("study:search", "STUDY", "search for what to federate, and how"),
        "methods": Command("catalogue:list_methods", "", "list the methods, with the idea of each"),
        "methods show": Command(
            "catalogue:show_method", "NAME", "show one: equation, configuration, what to tune"
        ),
        "data": Command(
            "catalogue:list_sources", "", "list the known tables, and where they were found"
        ),
        "data fetch": Command("catalogue:fetch", "NAME", "download one of them"),
        "data show": Command(
            "catalogue:show_source", "NAME", "show its columns, licence and citation"
        ),
    },
    "Across institutions": {
        "coordinate init": Command(
            "institutions:init", "FOLDER", "make certificates, keys, and invitations for sites"
        ),
        "coordinate add": Command(
            "institutions:add", "FOLDER SITE KEY", "add a site's public key to the registry"
        ),
        "coordinate start": Command(
            "institutions:start", "FOLDER", "wait for sites and train; run it again to resume"
        ),
        "coordinate watch": Command(
            "institutions:watch", "FOLDER", "show rounds, participants, seconds, bytes"
        ),
        "coordinate renew": Command(
            "institutions:renew", "FOLDER", "renew the server certificate; sites need nothing"
        ),
        "site keys": Command(
            "institutions:keys", "FOLDER", "write this site's settings, and make its key pair"
        ),
        "site check": Command(
            "institutions:check", "--config FILE", "show what would leave this site; send nothing"
        ),
        "site join": Command(
            "institutions:join", "--config FILE", "take part, after somebody has consented"
        ),
    },
}
COMMANDS = joined(_GROUPS.values())
"""Command → where it is, and how it is listed."""
_NEW_ROWS = ("--run", "--client", "--out", "--keys")
"""Flags by which ``fedlit predict`` is about new rows."""


def usage(first: str = "") -> str:
    """Return the list of commands by group, or, for a word such as ``site``, of those that begin
    with it.
    """
    if first:
        of_group = {
            name: command for name, command in COMMANDS.items() if name.startswith(f"{first} ")
        }
        return f"usage: fedlit {first} COMMAND ...\n\n{_listed(of_group)}"
    lines = [
        "usage: fedlit COMMAND ...",
        "",
        "Partial federated learning on tables that differ in columns and classes.",
        "",
        "To begin:          fedlit fit quickstart",
        "With example data: fedlit init --example",
        "With your tables:  fedlit init FILES --target COLUMN",
    ]
    for title, of_group in _GROUPS.items():
        lines += ["", f"{title}:", _listed(of_group)]
    lines += [
        "",
        "NAME is a YAML file: here, in configs/, or one that comes with fedlit.",
        "You can leave out --config. Any key can be changed: --trainer.max_epochs 3",
        "fedlit fit --help shows the main keys, --help all shows every key.",
        "If a run's folder names classes of your own, add --trust MODULE",
    ]
    return "\n".join(lines)


def _listed(commands: Mapping[str, Command]) -> str:
    return definitions(
        (f"fedlit {name} {command.usage}".rstrip(), command.help)
        for name, command in commands.items()
    )


def find_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the command with which the arguments begin, and the arguments after it.

    Args:
        arguments: the words typed after ``fedlit``; at least one word.

    Returns:
        Its name in :data:`COMMANDS`, or ``site``, the name of a group, where its list is asked for;
        and the other words.

    Raises:
        ConfigError: there is no such command.

    >>> find_command(["site", "join", "--config", "site.yaml"])
    ('site join', ['--config', 'site.yaml'])
    >>> find_command(["predict", "--run=mine", "--client", "a"])
    ('predict --run', ['--run=mine', '--client', 'a'])
    """
    first, *rest = arguments
    if first == "predict" and any(argument.partition("=")[0] in _NEW_ROWS for argument in rest):
        return "predict --run", rest
    parts = [
        name.split()[1] for name in COMMANDS if name.startswith(f"{first} ") and "--" not in name
    ]
    part = "".join(rest[:1])
    if parts and part and not part.startswith("-"):
        alone = ", or nothing for the list" if first in COMMANDS else ""
        expect(
            part in parts, f"fedlit {first}", f"one of {', '.join(parts)}{alone}", part, known=parts
        )
        return f"{first} {part}", rest[1:]
    typable = [*dict.fromkeys(name.split()[0] for name in COMMANDS), "--version", "--help"]
    expect(first in typable[:-2], "command", "one that fedlit --help lists", first, known=typable)
    return first, rest


def call(name: str, function: Callable[..., Any], arguments: Sequence[str]) -> Any:
    """Call the function of a command with the arguments that were typed.

    A positional parameter is a word, or several if it is a ``list``; a keyword-only parameter is a
    flag, spelt with underscores like keys or with hyphens: ``bool`` is a flag without a value,
    ``list`` a flag with several values, ``tuple`` a flag that may be repeated, ``Literal`` one of
    several values. ``*words`` are the remaining words, such as the keys of a configuration; a
    function with no other parameter gets all words.

    Args:
        name: the name of the command, such as ``site join``.
        function: its docstring is the help.
        arguments: the words typed after the command.

    Returns:
        What the function returns.

    Raises:
        ConfigError: the words are not arguments of this command.

    >>> def greet(who: str, *, times: int = 1) -> None:
    ...     print(times * f"Hello {who}!")
    >>> call("greet", greet, ["you", "--times", "2"])
    Hello you!Hello you!
    """
    parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    takes_rest = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_rest and len(parameters) == 1:
        return function(*arguments)
    documentation = parse(inspect.getdoc(function) or "")
    parser = _Parser(
        prog=f"fedlit {name.removesuffix(' --run')}",
        description=documentation.description,
        allow_abbrev=False,
    )
    helps = {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in documentation.params
    }
    for parameter in parameters:
        if parameter.kind is not parameter.VAR_POSITIONAL:
            _add(parser, parameter, helps.get(parameter.name, ""))
    namespace, keys = parser.parse_known_args(list(map(_with_underscores, arguments)))
    if keys and not takes_rest:
        flags = [
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        ]
        parser.error(
            f"unrecognized arguments: {' '.join(keys)}.{did_you_mean(keys[0][2:], flags, '--')}"
        )
    options = vars(namespace)
    placed = [
        options.pop(parameter.name)
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    return function(*placed, *keys, **options)


def _with_underscores(argument: str) -> str:
    """Return an argument with underscores in place of the hyphens in its flag."""
    return re.sub(r"^--[\w-]+", lambda flag: "--" + flag[0][2:].replace("-", "_"), argument)


def take_trusted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Remove ``--trust MODULE``, which may be repeated. Return the other words and the modules.

    >>> take_trusted(["--trust", "my.networks", "--trust=yours", "--run", "ward"])
    (['--run', 'ward'], ['my.networks', 'yours'])
    """
    parser = _Parser(prog="fedlit", add_help=False, allow_abbrev=False)
    parser.add_argument(TRUST, action="append", default=[])
    namespace, rest = parser.parse_known_args(arguments)
    return rest, namespace.trust


def names(text: str | None) -> list[str] | None:
    """Return the names of a list with commas; no name for ``none``."""
    if text is None:
        return None
    if text == "none":
        return []
    return [name.strip() for name in text.split(",") if name.strip()]


def _add(parser: argparse.ArgumentParser, parameter: inspect.Parameter, about: str) -> None:
    required = parameter.default is parameter.empty
    by_name = parameter.kind is parameter.KEYWORD_ONLY
    name = f"--{parameter.name}" if by_name else parameter.name
    kind = parameter.annotation
    if get_origin(kind) in (Union, UnionType):  # such as int | None; the first with Literal
        kind = get_args(kind)[0]
    if kind is bool:
        parser.add_argument(name, action="store_true", help=about)
        return
    if parameter.default not in (parameter.empty, None, (), ""):
        about += f" (default: {parameter.default})"
    options: dict[str, Any] = {"default": None, "help": about}
    if not required:
        options["default"] = parameter.default
    if by_name:
        options["required"] = required
    elif not required:
        options["nargs"] = "?"
    if get_origin(kind) is Literal:
        options["choices"] = get_args(kind)
    elif get_origin(kind) is tuple:
        options |= {"action": "append", "default": []}
    elif get_origin(kind) is list:
        options["nargs"] = "+" if required or by_name else "*"
    else:
        options["type"] = _READERS.get(kind, kind)
    if by_name and "nargs" not in options:
        options.setdefault("action", _Once)
    parser.add_argument(name, **options)


class _Once(argparse.Action):
    """Stores the value of a flag. A second one is refused: the first would be dropped in silence."""

    typed = False

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if self.typed:
            first = getattr(namespace, self.dest)
            parser.error(f"{option_string}: expected one value, found {first} and {values}")
        self.typed = True
        setattr(namespace, self.dest, values)


def _reader(kind: Callable[[str], object], expected: str) -> Callable[[str], object]:
    """Return what reads a text as a number, and refuses another text in plain words."""

    def read(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {expected}, found {text!r}") from None

    return read


_READERS = {int: _reader(int, "a whole number"), float: _reader(float, "a number")}
"""Type of a parameter → what reads its text."""


class _Parser(argparse.ArgumentParser):
    """Raises :class:`ConfigError` for a wrong argument instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`ConfigError`."""
        raise ConfigError(f"{message.removeprefix('argument ')} ({self.prog} --help)")
