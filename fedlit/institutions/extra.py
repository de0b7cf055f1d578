"""What the extra ``fedlit[flower]`` brings, imported where it is needed, and how speaking over it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fedlit.errors import ConfigError, FedlitError

__all__ = ["EXITS", "FLOWER", "QUIET", "Lost", "Refusal", "needs_flower", "quiet"]

FLOWER = "1.41.0"
"""Flower's version: its interface for sites is not a public one, so another must be tested first."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_LOGGING": "0",
    "GRPC_VERBOSITY": "NONE",
}
"""Environment in which Flower tells nobody that it is used."""
EXITS = {"settings": 2, "key": 3, "expired": 4, "authority": 5, "unreachable": 6, "limit": 7, "site": 8, "clock": 9}
"""Why it ended → exit status. 0: it was told to."""


class Refusal(FedlitError):
    """Speaking makes no sense.

    Args:
        why: a key of :data:`EXITS`.
        message: for people.
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why, self.exit_status = why, EXITS[why]


class Lost(Exception):
    """The coordinator is away, or has forgotten this node: connect again."""


def quiet() -> None:
    """Switch off Flower's telemetry and update checks; before its first import, which reads the environment."""
    os.environ.update(QUIET)


@contextmanager
def needs_flower() -> Iterator[None]:
    """Import Flower and what it brings inside.

    Raises:
        ConfigError: they are not installed, or in another version.
    """
    quiet()
    try:
        from importlib.metadata import version

        import cryptography  # noqa: F401

        found = version("flwr")
        if found != FLOWER:
            raise ConfigError(
                f"expected flwr {FLOWER}, with which fedlit was tested, found {found}; pip install 'fedlit[flower]'"
            )
        yield
    except ImportError as error:
        raise ConfigError(
            f"federations across institutions need Flower, found that {error.name or 'it'} is missing; "
            "pip install 'fedlit[flower]'"
        ) from error
