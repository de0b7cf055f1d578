"""What fedlit raises when a person can do something about it.

Every message says what was expected, what was found and what to do. The command line prints the message alone and
ends with the class's ``exit_status``: 2 for what is refused before training, 1 for a run that failed, 3 for one that
came to its end without a client.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

__all__ = [
    "ConfigError",
    "DataError",
    "FedlitError",
    "LeftOutError",
    "RunError",
    "closest",
    "described",
    "did_you_mean",
    "expect",
    "failed_in",
    "told_as",
]


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


class LeftOutError(FedlitError):
    """A run came to its end, and a client was left out of half or more of its exchanges."""

    exit_status = 3


def expect(holds: bool, key: str, expected: str, found: object, advice: str = "") -> None:
    """Refuse a setting unless it holds.

    Args:
        holds: whether it does.
        key: the setting's.
        expected: what may stand there.
        found: what stands there.
        advice: what to do about it.

    Raises:
        ConfigError: it does not.
    """
    if not holds:
        raise ConfigError(f"{key}: expected {expected}, found {found!r}" + (advice and f"; {advice}"))


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, None where nothing is close."""
    names = {own.casefold(): own for own in reversed(list(known))}
    close = difflib.get_close_matches(word.casefold(), names, n=1)
    return names[close[0]] if close else None


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
    return f" Did you mean {prefix + close!r}?" if close and close != word else ""


@contextmanager
def told_as(tell: Callable[[Exception], FedlitError]) -> Iterator[None]:
    """What somebody else's code raises inside is raised as an error of fedlit's; fedlit's own pass as they are.

    Args:
        tell: the error to raise in its place.

    Example:
        >>> with told_as(lambda error: RunError(f"my rule: {error}")):
        ...     raise ValueError("no clients")
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: my rule: no clients
    """
    try:
        yield
    except FedlitError:
        raise
    except Exception as error:
        raise tell(error) from error


def failed_in(where: str) -> AbstractContextManager[None]:
    """What a user's own code raises inside is raised as a :class:`RunError` that names where, and the line.

    Args:
        where: whose code it is: a client, a rule, and the method.

    Example:
        >>> with failed_in("north: publish"):
        ...     raise ValueError("no counts")
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: north: publish: expected an answer, found ValueError: no counts (<doctest ...
    """
    return told_as(lambda error: RunError(f"{where}: expected an answer, found {described(error)}; mend it"))


def described(error: BaseException) -> str:
    """What somebody else's code raised: the kind of error, its first line, file and line.

    Example:
        >>> try:
        ...     compile("def f(:", "mine.py", "exec")
        ... except SyntaxError as error:
        ...     described(error)
        'SyntaxError: invalid syntax (mine.py, line 1)'
    """
    told = next(iter(str(error).splitlines()), "nothing said")
    if not isinstance(error, SyntaxError):  # which says it itself
        calls = reversed(traceback.extract_tb(error.__traceback__))  # the last one that is not torch's
        at = max(calls, key=lambda own: "torch" not in Path(own.filename).parts, default=None)
        told += f" ({Path(at.filename).name}, line {at.lineno})" if at else ""  # a cause may never have been raised
    return f"{type(error).__name__}: {told}"
