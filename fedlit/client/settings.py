"""Settings of a client's training that its classes cannot take."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fedlit.errors import ConfigError, told_as

__all__ = ["check_clipping", "settings_of"]


def check_clipping(value: float | None, key: str) -> None:
    """Refuse a limit that is none: with one below zero a client would climb instead of descend.

    Raises:
        ConfigError: it is not above zero.
    """
    if value is not None and not value > 0:
        raise ConfigError(f"{key}: expected a norm above 0, found {value}; leave it out, or null, for no limit")


def settings_of(client: str, key: str) -> AbstractContextManager[None]:
    """Whatever another library's class says against its settings is a :class:`ConfigError` that names the key."""
    return told_as(
        lambda error: ConfigError(
            f"client {client!r}: {key}: expected settings that its class accepts, found that it refuses them: "
            f"{error} ({type(error).__name__}); fedlit fit --help {key} says where to look"
        )
    )
