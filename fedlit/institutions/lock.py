"""One process at a time in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlit.errors import ConfigError

__all__ = ["alone"]


@contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock.

    Args:
        path: of the lock's file.
        refusal: what is said where another process holds it.

    Raises:
        ConfigError: another process holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(refusal) from None
    try:
        yield
    finally:
        lock.release()
