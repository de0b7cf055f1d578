"""The arguments of a command: the parameters of its function, in fedlit's words and at the terminal's width."""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Literal, NoReturn, get_args, get_origin

from docstring_parser import parse

from fedlit.errors import ConfigError, did_you_mean
from fedlit.run.keys import SINGLE

__all__ = ["call"]

_TOLD = {
    r"^argument ([^:]+): invalid int value: (.*)$": r"\1: expected a whole number, found \2",
    r"^argument ([^:]+): invalid float value: (.*)$": r"\1: expected a number, found \2",
    r"^argument ([^:]+): expected (one|at least one) argument$": r"\1: expected a value behind it, found nothing",
    r"^the following arguments are required: (.*)$": r"expected \1, found nothing of the kind",
    r"^unrecognized arguments: (.*)$": r"expected nothing more, found \1",
}
"""What argparse says → in fedlit's words."""


def call(name: str, function: Callable[..., Any], words: Sequence[str], *, foreign: bool = False) -> Any:
    """Call the function of a command with the arguments that were typed.

    A parameter that may be given by its place is a word, one that may be given by its name alone a flag: ``bool`` is a
    flag without a value, ``list`` one with several, ``tuple`` one that may be repeated, ``Literal`` one of these.
    ``*words`` are those that are left, such as the keys of a configuration; a function with nothing else gets all.

    Args:
        name: of the command, such as ``site join``.
        function: its docstring is the help.
        words: what was typed behind the command.
        foreign: whether ``--trust`` is told in the help; whoever calls has taken it out of the words.

    Returns:
        What the function returns.

    Raises:
        ConfigError: the words are no arguments of this command.

    >>> def greet(who: str, *, times: int = 1) -> None:
    ...     print(times * f"Hello {who}!")
    >>> call("greet", greet, ["north", "--times", "2"])
    Hello north!Hello north!
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    left = any(own.kind is own.VAR_POSITIONAL for own in parameters)
    if left and len(parameters) == 1:
        return function(*words)
    told = parse(inspect.getdoc(function) or "")
    parser = _Parser(prog=f"fedlit {name.removesuffix(' --run')}", description=told.description)
    helps = {own.arg_name: " ".join((own.description or "").split()) for own in told.params}
    if foreign:
        parser.add_argument(
            "--trust", nargs="+", metavar="MODULE", default=argparse.SUPPRESS,
            help="installed modules whose classes the files may name, beside those of fedlit, torch.nn and torch.optim",
        )  # fmt: skip
    for own in parameters:
        if own.kind is not own.VAR_POSITIONAL:
            parser.add_argument(*_flags(own), **_options(own, helps.get(own.name, "")))
    parser.check_flags(words, keys=left)
    asked, keys = parser.parse_known_args(words)
    if keys and not left:
        parser.error(f"unrecognized arguments: {' '.join(keys)}")
    given = vars(asked)
    placed = [given.pop(own.name) for own in parameters if own.kind is own.POSITIONAL_OR_KEYWORD]
    return function(*placed, *keys, **given)


def _flags(parameter: inspect.Parameter) -> list[str]:
    name = parameter.name.rstrip("_")
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return [name]
    return list(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))  # as keys are written, and as commands do


def _options(parameter: inspect.Parameter, about: str) -> dict[str, Any]:
    """Return the options of argparse for a parameter."""
    required, by_name = parameter.default is parameter.empty, parameter.kind is parameter.KEYWORD_ONLY
    annotation = parameter.annotation
    if isinstance(annotation, UnionType):  # such as int | None
        annotation = get_args(annotation)[0]
    kind = get_origin(annotation)
    if annotation is bool:
        return {"action": "store_true", "help": about}
    if parameter.default not in (parameter.empty, None, (), ""):
        about += f" (default: {parameter.default})"
    options: dict[str, Any] = {"default": None if required else parameter.default, "help": about}
    options |= {"required": required} if by_name else {} if required else {"nargs": "?"}
    if kind is Literal:
        return options | {"choices": get_args(annotation)}
    if kind is tuple:
        return options | {"action": "append", "default": []}
    if kind is list:
        return options | {"nargs": "+"}
    return options | {"type": annotation}


class _Formatter(argparse.HelpFormatter):
    """Words are never pushed beyond the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24 if shutil.get_terminal_size().columns >= 60 else 6)

    def _format_usage(self, *args: Any) -> str:
        text = " ".join(super()._format_usage(*args).split())
        return textwrap.fill(text, self._width, subsequent_indent="  ", break_on_hyphens=False) + "\n\n"


class _Parser(argparse.ArgumentParser):
    """A wrong argument is a :class:`ConfigError` instead of a page of usage, and explanations stand below what they
    explain where the terminal is narrow.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **options)

    def check_flags(self, words: Sequence[str], *, keys: bool) -> None:
        """Refuse a misspelt flag before one that is missing, for it may be that one.

        Args:
            words: what was typed.
            keys: whether keys of a configuration may stand among them.

        Raises:
            ConfigError: a word that begins with two dashes is neither a flag nor may be a key.
        """
        known = [name for name in self._option_string_actions if name.startswith("--") and name != "--help"]
        fine = [*known, "--help", *(f"--{name}" for name in SINGLE if keys)]
        for flag in (word.partition("=")[0] for word in words):
            if not flag.startswith("--") or flag in fine or (keys and "." in flag):
                continue
            hint = did_you_mean(flag[2:], [name[2:] for name in known], "--")
            if hint or not keys:
                raise ConfigError(f"{self.prog}: expected some of {', '.join(known)}, found {flag}.{hint}")

    def error(self, message: str) -> NoReturn:
        """See the class."""
        message = re.sub(r"^argument (--\w+)/--[\w-]+:", r"argument \1:", message)  # one spelling will do
        choice = re.fullmatch(r"argument ([^:]+): invalid choice: '([^']*)'.*", message)
        if choice:
            known = next(own.choices for own in self._actions if choice[1] in own.option_strings) or ()
            hint = did_you_mean(choice[2], known)
            message = f"{choice[1]}: expected one of {', '.join(known)}, found {choice[2]!r}.{hint}"
        for pattern, told in _TOLD.items():
            message = re.sub(pattern, told, message)
        raise ConfigError(f"{message} ({self.prog} --help)")
