"""Methods of a user's class that nobody calls, for their names are hooks' but for a letter or two."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

from lightning.pytorch.core.hooks import CheckpointHooks, ModelHooks

from fedlit.client.client import FederatedClient
from fedlit.errors import ConfigError, failed_in

__all__ = ["CLIENT_HOOKS", "check_signatures", "hook_of", "misspelt", "say_misspelt"]

_log = logging.getLogger(__name__)

CLIENT_HOOKS = frozenset(
    name for base in (FederatedClient, ModelHooks, CheckpointHooks) for name in vars(base) if not name.startswith("_")
)
"""What a subclass of FederatedClient may override."""

CLOSE, CLOSE_WORD = 0.85, 0.88
"""Of difflib: ``on_recieve`` is 0.9 of ``on_receive``, ``train_step`` 0.87 of ``training_step``; helpers such as
``receive`` and ``train_steps`` are 0.82 and 0.83. One word has to be closer, for others are made of it: ``predictor``
is 0.875 of ``predict``, ``need`` 0.89 of ``needs``."""


def hook_of(client: FederatedClient, name: str) -> AbstractContextManager[None]:
    """What a hook of a client raises is raised so that it names the client, the hook and the line."""
    return failed_in(f"client {client.spec.name!r}: {type(client).__name__}.{name}")


def misspelt(kind: type, base: type, hooks: Iterable[str]) -> dict[str, str]:
    """Names that a class and its ancestors below ``base`` define → the hook that each resembles.

    Left out are private names, names that the base knows, those that the class itself uses (a helper), and those whose
    hook stands beside them in the same class.

    Example:
        >>> from fedlit.client.client import FederatedClient
        >>> class Mine(FederatedClient):
        ...     def on_recieve(self, received): ...
        >>> misspelt(Mine, FederatedClient, CLIENT_HOOKS)
        {'on_recieve': 'on_receive'}
    """
    # a plain class beside the base, a mixin, is the user's as well; what the base is made of is not
    own = [vars(one) for one in reversed(kind.__mro__) if not issubclass(base, one)]
    used = {name for names in own for value in names.values() for code in _codes(value) for name in _names(code)}
    return {
        name: hook
        for names in own
        for name in names
        if not name.startswith("_") and not hasattr(base, name) and name not in used
        if (hook := _closest(name, sorted(set(hooks) - names.keys())))
    }


def _closest(name: str, hooks: list[str]) -> str:
    words = [hook for hook in hooks if "_" not in hook]
    found = difflib.get_close_matches(name, words, 1, CLOSE_WORD)
    found += difflib.get_close_matches(name, sorted(set(hooks) - set(words)), 1, CLOSE)
    return found[0] if found else ""


_CALLED = ("training_step", "evaluate")


def check_signatures(client: str, kind: type) -> None:
    """Refuse a method that cannot be called as it will be.

    Raises:
        ConfigError: names the class, and the arguments.
    """
    for name in _CALLED:
        asked = list(inspect.signature(getattr(FederatedClient, name)).parameters)
        found = inspect.signature(getattr(kind, name))
        try:
            found.bind(*asked)
        except TypeError as error:
            raise ConfigError(
                f"client {client!r}: expected {kind.__name__}.{name}({', '.join(asked)}), found "
                f"({', '.join(found.parameters)}); take these arguments"
            ) from error


_SAID: set[tuple[type, type]] = set()


def say_misspelt(kind: type, base: type, hooks: Iterable[str]) -> None:
    """Warn of each, once for a class."""
    if (kind, base) in _SAID:
        return
    _SAID.add((kind, base))
    for name, hook in misspelt(kind, base, hooks).items():
        _log.warning(
            "class %s: nobody calls its %s; did you mean %s? If it is a helper of its own, begin its name with _",
            kind.__name__,
            name,
            hook,
        )


def _codes(value: Any) -> Iterator[CodeType]:
    """Of a method, also where it is a property, a class's or a static one."""
    functions = [value, *(getattr(value, name, None) for name in ("fget", "fset", "func", "__func__", "__wrapped__"))]
    for function in functions:
        if isinstance(code := getattr(function, "__code__", None), CodeType):
            yield code


def _names(code: CodeType) -> Iterator[str]:
    """What it reads, also inside of functions that it makes."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
