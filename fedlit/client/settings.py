"""Checks settings of a client's training that its classes cannot take."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fedlit.errors import ConfigError, told_as

__all__ = ["check_clipping", "settings_of"]


def check_clipping(value: float | None, key: str) -> None:
    """Refuse a gradient limit that is not above zero: with a negative one, a client would climb instead of descend.

    Raises:
        ConfigError: the limit is not above zero.
    """
    if value is not None and not value > 0:
        raise ConfigError(f"{key}: expected a norm above 0, found {value}; leave it out, or null, for no limit")


def settings_of(client: str, key: str) -> AbstractContextManager[None]:
    """Return a context that turns errors of another library's class about its settings into a :class:`ConfigError` that
    names the key.
    """
    return told_as(
        lambda error: ConfigError(
            f"client {client!r}: {key}: expected settings that its class accepts, found that it refuses them: "
            f"{error} ({type(error).__name__}); fedlit fit --help {key} says where to look"
        )
    )
