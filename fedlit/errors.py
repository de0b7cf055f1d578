"""What fedlit raises when a person can do something about it.

Every message says what was expected, what was found and what to do. The command line prints the message alone and
ends with the class's ``exit_status``: 2 for what is refused before training, 1 for a run that failed.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

__all__ = ["ConfigError", "DataError", "FedlitError", "Parser", "RunError", "closest", "did_you_mean"]


class FedlitError(Exception):
    """Base of all errors that carry a message for the user."""

    exit_status = 1


class ConfigError(FedlitError):
    """The configuration cannot be run: refused before the first step."""

    exit_status = 2


class DataError(ConfigError):
    """A file or a table is missing, unreadable or unfit: refused before the first step."""


class RunError(FedlitError):
    """A run that started had to stop."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, None where nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """A hint such as ``" Did you mean 'epoch'?"``, or the empty string where nothing is close.

    Args:
        word: what was found.
        known: what there is.
        prefix: what is typed before it.

    >>> did_you_mean("epcoh", ["step", "epoch"])
    " Did you mean 'epoch'?"
    """
    close = closest(word, known)
    return f" Did you mean {prefix + close!r}?" if close else ""


_TOLD = {
    r"^argument ([^:]+): invalid int value: (.*)$": r"\1: expected a whole number, found \2",
    r"^argument ([^:]+): invalid float value: (.*)$": r"\1: expected a number, found \2",
    r"^argument ([^:]+): expected one argument$": r"\1: expected a value behind it, found nothing",
    r"^the following arguments are required: (.*)$": r"expected \1, found nothing of the kind",
    r"^unrecognized arguments: (.*)$": r"expected nothing more, found \1",
}
"""What argparse says → in fedlit's words."""


class _Formatter(argparse.HelpFormatter):
    """Words are never pushed beyond the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24 if shutil.get_terminal_size().columns >= 60 else 6)

    def _format_usage(self, *args: Any) -> str:
        text = " ".join(super()._format_usage(*args).split())
        return textwrap.fill(text, self._width, subsequent_indent="  ", break_on_hyphens=False) + "\n\n"


class Parser(argparse.ArgumentParser):
    """Of light commands: a wrong argument is a :class:`ConfigError` instead of a page of usage, and explanations stand
    below what they explain where the terminal is narrow.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def parse_args(self, args: Sequence[str], namespace: None = None) -> argparse.Namespace:  # type: ignore[override]
        """See the class; a misspelt flag is said before one that is missing, for it may be that one."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        for flag in (arg.partition("=")[0] for arg in args):
            if flag.startswith("--") and flag not in known:
                hint = did_you_mean(flag[2:], [name[2:] for name in known], "--")
                raise ConfigError(f"{self.prog}: expected some of {', '.join(known)}, found {flag}.{hint}")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """See the class."""
        choice = re.fullmatch(r"argument ([^:]+): invalid choice: '([^']*)'.*", message)
        if choice:
            known = next(own.choices for own in self._actions if choice[1] in own.option_strings) or ()
            hint = did_you_mean(choice[2], known)
            message = f"{choice[1]}: expected one of {', '.join(known)}, found {choice[2]!r}.{hint}"
        for pattern, told in _TOLD.items():
            message = re.sub(pattern, told, message)
        raise ConfigError(f"{message} ({self.prog} --help)")
