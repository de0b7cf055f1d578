"""Classes that users name or define: errors name the hook or the setting, and names that nearly
match a hook are reported.
"""

import difflib
import logging
from contextlib import AbstractContextManager
from typing import Protocol

from lightning.pytorch import LightningModule

from fedlit.errors import ConfigError, expect, failed_in, told_as
from fedlit.spec import ClientSpec


class HasSpec(Protocol):
    """A client, as far as messages about it need it."""

    spec: ClientSpec


_log = logging.getLogger(__name__)

CLOSE = 0.85
CLOSE_WORD = 0.88
"""Thresholds of difflib's ratio: ``on_recieve`` is 0.9 of ``on_receive``, ``train_step`` 0.87 of
``training_step``; helpers such as ``receive`` and ``train_steps`` are 0.82 and 0.83. A single word
has to be closer, because other names are made of it: ``predictor`` is 0.875 of ``predict``,
``need`` 0.89 of ``needs``."""


class NoteOfSteps:
    """A hook of a client's optimizer that notes that it has stepped. It need not be called by what
    steps in the optimizer's place and notes this itself.

    Args:
        client: the client's name.
        stepped: the names of the clients whose optimizers have stepped.
    """

    def __init__(self, client: str, stepped: set[str]) -> None:
        self._client = client
        self._stepped = stepped

    def __call__(self, *_: object) -> None:
        """Note that the optimizer has stepped."""
        self._stepped.add(self._client)


def hook_of(client: HasSpec, name: str) -> AbstractContextManager[None]:
    """Return a context in which errors of a client's hook name the client, the hook and the
    line.
    """
    return failed_in(f"client {client.spec.name!r}: {type(client).__name__}.{name}")


def misspelt(kind: type, *bases: type) -> dict[str, str]:
    """Map public names that a class or one of its mixins defines to the hook of the bases that each
    resembles.

    Args:
        kind: a subclass of the first base.
        bases: the base, and classes that it inherits hooks from.

    Example:
        >>> from fedlit.client.client import FederatedClient
        >>> class Mine(FederatedClient):
        ...     def on_recieve(self, received): ...
        >>> misspelt(Mine, FederatedClient)
        {'on_recieve': 'on_receive'}
    """
    mixins = [base for base in kind.__bases__ if not issubclass(base, bases[0])]
    names = _public_names(kind, *mixins)
    hooks = sorted(_public_names(*bases) - names)
    hook_by_name: dict[str, str] = {}
    for name in sorted(names):
        if hasattr(bases[0], name):
            continue
        for hook in difflib.get_close_matches(name, hooks, 3, CLOSE):
            if "_" in hook or difflib.SequenceMatcher(None, hook, name).ratio() > CLOSE_WORD:
                hook_by_name.setdefault(name, hook)
    return hook_by_name


def _public_names(*classes: type) -> set[str]:
    names = set().union(*map(vars, classes))
    return {name for name in names if not name.startswith("_")}


def warn_of_misspelt(kind: type, *bases: type) -> None:
    """Warn about each name that resembles a hook (see :func:`misspelt`), because nobody calls
    it.
    """
    for name, hook in misspelt(kind, *bases).items():
        _log.warning(
            "class %s: nobody calls its %s; did you mean %s? If it is a helper, begin its name "
            "with _",
            kind.__name__,
            name,
            hook,
        )


def check_clipping(value: float | None, key: str) -> None:
    """Refuse a gradient limit that is not above zero: with a negative one, a client would climb
    instead of descend.

    Raises:
        ConfigError: the limit is not above zero.
    """
    if value is not None:
        expect(value > 0, key, "a norm above 0", value, "leave it out, or null, for no limit")


def settings_of(client: str, key: str) -> AbstractContextManager[None]:
    """Return a context that turns errors of another library's class about its settings into a
    :class:`ConfigError` that names the key.
    """

    def refusal(error: Exception) -> ConfigError:
        return ConfigError(
            f"client {client!r}: {key}: expected settings that its class accepts, found that it "
            f"refuses them: {error} ({type(error).__name__}); fedlit fit --help {key} says where "
            "to look"
        )

    return told_as(refusal)


def call_hook(client: LightningModule, hook: str, *args: object) -> None:
    """Call a Lightning hook if the client's class overrides it (the empty ones cost time at each
    step).
    """
    if overrides(client, hook):
        getattr(client, hook)(*args)


def overrides(client: LightningModule, hook: str) -> bool:
    """Return whether a client's class overrides a hook."""
    return overridden(type(client), hook)


def overridden(kind: type[LightningModule], hook: str) -> bool:
    """Return whether a class of clients overrides a hook."""
    return getattr(kind, hook) is not getattr(LightningModule, hook)
