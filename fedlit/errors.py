"""The errors that fedlit raises if the user can do something about them.

Every message states what was expected, what was found and what to do. The command line prints only
the message, and exits with the class's ``exit_status``: 2 if something is refused before training,
1 if a run failed, 3 if a run ended without a client.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


class FedlitError(Exception):
    """Base of all errors that carry a message for the user."""

    exit_status = 1


class ConfigError(FedlitError):
    """The configuration cannot be run. It is refused before the first step."""

    exit_status = 2


class DataError(ConfigError):
    """A file or a table is missing, unreadable or unsuitable. It is refused before the first
    step.
    """


class RunError(FedlitError):
    """A run that had started had to stop."""


class LeftOutError(FedlitError):
    """A run reached its end, but a client was left out of half or more of its exchanges."""

    exit_status = 3


class Told(str):
    """Words about what was found, which a message shows without quotes."""

    __repr__ = str.__str__


def expect(
    holds: bool, key: str, expected: str, found: object, advice: str = "", kind: type[FedlitError] = ConfigError,
    known: Iterable[str] = (),
) -> None:  # fmt: skip
    """Refuse a setting, or what stands in a table, if its condition does not hold.

    Args:
        holds: whether the condition holds.
        key: the key of the setting, or the place in the data.
        expected: the values that are allowed.
        found: the value that was found, or :class:`Told` what is the matter with it.
        advice: what the user can do about it.
        kind: the error to raise: :class:`ConfigError`, or :class:`DataError` for what stands in a
            table.
        known: names that exist; the one that is most like ``found`` is suggested.

    Raises:
        ConfigError: the condition does not hold.
    """
    if not holds:
        hint = did_you_mean(str(found), known)
        message = f"{key}: expected {expected}, found {found!r}"
        if advice:
            message += f"; {advice}"
        if hint:
            message += f".{hint}"
        raise kind(message)


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to this one, the first of equals, or None if
    nothing is close.
    """
    scores = {
        candidate: difflib.SequenceMatcher(None, candidate.casefold(), word.casefold()).ratio()
        for candidate in known
    }
    close = max(
        scores, key=lambda candidate: scores[candidate], default=""
    )  # of equal ones the first
    return close if scores.get(close, 0) >= 0.6 else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a hint such as ``" Did you mean 'epoch'?"``, or an empty string if nothing is close.

    Args:
        word: the word that was found.
        known: the words that exist.
        prefix: what the user types before the word.

    >>> did_you_mean("epcoh", ["step", "epoch"])
    " Did you mean 'epoch'?"
    """
    close = closest(word, known)
    return f" Did you mean {prefix + close!r}?" if close and close != word else ""


def must_be_known(key: str, found: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown names.

    Raises:
        ConfigError: a name is unknown; the message has the key and the known names.
    """
    for name in found:
        expect(name in known, key, f"some of {', '.join(known)}", name, known=known)


@contextmanager
def told_as(
    tell: Callable[[Exception], FedlitError],
    passing: type[Exception] | tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Convert exceptions that other code raises inside the block into fedlit's errors; fedlit's
    errors pass unchanged.

    Args:
        tell: returns the error to raise instead of the given exception.
        passing: kinds of exceptions that pass unchanged, too.

    Example:
        >>> with told_as(lambda error: RunError(f"my rule: {error}")):
        ...     raise ValueError("no clients")
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: my rule: no clients
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (FedlitError, passing)):
            raise
        raise tell(error) from error


def failed_in(where: str) -> AbstractContextManager[None]:
    """Raise an exception of the user's code inside the block as a :class:`RunError` that names the
    place and the line.

    Args:
        where: whose code it is: a client or a rule, and the method.

    Example:
        >>> with failed_in("north: publish"):
        ...     raise ValueError("no counts")
        Traceback (most recent call last):
        ...
        fedlit.errors.RunError: north: publish: expected an answer, found ValueError: no counts
            (<doctest ...
    """
    return told_as(
        lambda error: RunError(f"{where}: expected an answer, found {described(error)}; mend it")
    )


def described(error: BaseException) -> str:
    """Describe an exception of other code: its kind, its first line, and the file and line.

    Example:
        >>> try:
        ...     compile("def f(:", "mine.py", "exec")
        ... except SyntaxError as error:
        ...     described(error)
        'SyntaxError: invalid syntax (mine.py, line 1)'
    """
    description = next(iter(str(error).splitlines()), "nothing said")
    if not isinstance(error, SyntaxError):  # its text names the file and the line already
        # the last call that is not torch's
        calls = reversed(traceback.extract_tb(error.__traceback__))
        at = max(calls, key=lambda call: "torch" not in Path(call.filename).parts, default=None)
        if at is not None:  # a cause may never have been raised
            description += f" ({Path(at.filename).name}, line {at.lineno})"
    return f"{type(error).__name__}: {description}"
