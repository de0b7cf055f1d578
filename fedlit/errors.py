"""What fedlit raises when a person can do something about it.

Every message says what was expected, what was found and what to do. The command line prints the message alone and
ends with the class's ``exit_status``: 2 for what is refused before training, 1 for a run that failed.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable
from typing import NoReturn

__all__ = ["ConfigError", "DataError", "FedlitError", "Parser", "RunError", "did_you_mean"]


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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint such as ``" Did you mean 'epoch'?"``, or the empty string where nothing is close.

    >>> did_you_mean("epcoh", ["step", "epoch"])
    " Did you mean 'epoch'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class Parser(argparse.ArgumentParser):
    """Of light commands: a wrong argument is a :class:`ConfigError` instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        """See the class."""
        raise ConfigError(f"{message} ({self.prog} --help)")
