"""Parses the arguments of a command, which are the parameters of its function."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from types import UnionType
from typing import Any, Literal, NoReturn, get_args, get_origin

from docstring_parser import parse

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.keys import SINGLE

_TRUST = "an installed module whose classes the files may name, too; may be repeated"


def call(name: str, function: Callable[..., Any], words: Sequence[str], *, foreign: bool = False) -> Any:
    """Call the function of a command with the arguments that were typed.

    A positional parameter is a word, a keyword-only parameter is a flag: ``bool`` is a flag without a value, ``list`` a
    flag with several values, ``tuple`` a flag that may be repeated, ``Literal`` one of several values. ``*words`` are
    the remaining words, such as the keys of a configuration; a function with no other parameter gets all words.

    Args:
        name: the name of the command, such as ``site join``.
        function: its docstring is the help.
        words: the words typed after the command.
        foreign: whether the help lists ``--trust``; the caller has removed it from the words.

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
    left = any(own.kind is own.VAR_POSITIONAL for own in parameters)
    if left and len(parameters) == 1:
        return function(*words)
    told = parse(inspect.getdoc(function) or "")
    parser = _Parser(prog=f"fedlit {name.removesuffix(' --run')}", description=told.description, allow_abbrev=False)
    helps = {own.arg_name: " ".join((own.description or "").split()) for own in told.params}
    if foreign:
        parser.add_argument("--trust", metavar="MODULE", default=argparse.SUPPRESS, help=_TRUST)
    for own in parameters:
        if own.kind is not own.VAR_POSITIONAL:
            _add(parser, own, helps.get(own.name, ""))
    _check_flags(parser.prog, parameters, words, keys=left)
    asked, keys = parser.parse_known_args(words)
    if keys and not left:
        parser.error(f"unrecognized arguments: {' '.join(keys)}")
    given = vars(asked)
    placed = [given.pop(own.name) for own in parameters if own.kind is own.POSITIONAL_OR_KEYWORD]
    return function(*placed, *keys, **given)


def names(text: str | None) -> list[str] | None:
    """Return the names of a list with commas; no name for ``none``."""
    if text is None:
        return None
    return [] if text == "none" else [name.strip() for name in text.split(",") if name.strip()]


def _flags(parameter: inspect.Parameter) -> list[str]:
    """Return a parameter's flags, spelt with underscores like keys and with hyphens like commands."""
    return list(dict.fromkeys((f"--{parameter.name}", f"--{parameter.name.replace('_', '-')}")))


def _add(parser: argparse.ArgumentParser, parameter: inspect.Parameter, about: str) -> None:
    required, by_name = parameter.default is parameter.empty, parameter.kind is parameter.KEYWORD_ONLY
    names = _flags(parameter) if by_name else [parameter.name]
    kind = parameter.annotation
    if isinstance(kind, UnionType):  # such as int | None
        kind = get_args(kind)[0]
    if kind is bool:
        parser.add_argument(*names, action="store_true", help=about)
        return
    if parameter.default not in (parameter.empty, None, (), ""):
        about += f" (default: {parameter.default})"
    options: dict[str, Any] = {"default": None if required else parameter.default, "help": about}
    options |= {"required": required} if by_name else {} if required else {"nargs": "?"}
    origin = get_origin(kind)
    if origin is Literal:
        options["choices"] = get_args(kind)
    elif origin is tuple:
        options |= {"action": "append", "default": []}
    elif origin is list:
        options["nargs"] = "+"
    else:
        options["type"] = partial(_typed, kind, about)
    parser.add_argument(*names, **options)


def _typed(kind: Callable[[str], Any], about: str, word: str) -> Any:
    """Return the value of a word, or refuse it by what the help says."""
    try:
        return kind(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {about}, found {word!r}") from None


def _check_flags(prog: str, parameters: Sequence[inspect.Parameter], words: Sequence[str], *, keys: bool) -> None:
    """Refuse a misspelt flag before argparse reports a missing one, because the misspelt flag may be
    the missing one.
    """
    known = [flag for own in parameters if own.kind is own.KEYWORD_ONLY for flag in _flags(own)]
    fine = {*known, "--help", "--trust", *(f"--{name}" for name in SINGLE if keys)}
    for flag in (word.partition("=")[0] for word in words):
        hint = did_you_mean(flag[2:], [name[2:] for name in known], "--")
        if flag.startswith("--") and flag not in fine and not (keys and ("." in flag or not hint)):
            raise ConfigError(f"{prog}: expected {', '.join(known) or 'no flag'}, found {flag}.{hint}")


class _Parser(argparse.ArgumentParser):
    """Raises :class:`ConfigError` for a wrong argument instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`ConfigError`."""
        raise ConfigError(re.sub(r"^argument ([^:/]+)(/--[\w-]+)?:", r"\1:", message) + f" ({self.prog} --help)")
