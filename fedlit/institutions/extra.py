"""The packages of the extra ``flower``, imported where they are needed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fedlit.errors import ConfigError
from fedlit.extras import install, needs

FLOWER = "1.41.0"
"""Flower's version: its interface for sites is not a public one, so another must be tested
first."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_LOGGING": "0",
    "GRPC_VERBOSITY": "NONE",
}
"""The environment in which Flower does not report its use."""


class Lost(Exception):
    """The other end of a line is away, or has forgotten this one, which must connect again."""


@contextmanager
def needs_flower() -> Iterator[None]:
    """Check that Flower is installed, and let it be imported inside this context.

    Raises:
        ConfigError: a package is not installed, or has another version.
    """
    os.environ.update(QUIET)  # before the first import of Flower, which reads it
    try:
        from importlib.metadata import version

        import cryptography  # noqa: F401

        installed = version("flwr")
        if installed != FLOWER:
            raise ConfigError(
                f"expected flwr {FLOWER}, the version fedlit was tested with, found {installed}; "
                f"{install('flower')}"
            )
        yield
    except ImportError as error:
        sentence = needs(error.name or "flwr", "flower")
        raise ConfigError(f"a federation across institutions {sentence}") from error
