"""What checkpoints are called, and what is said where a file cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlit.files import advice, reason
from fedlit.show.shown import say

__all__ = ["LAST", "PREVIOUS", "forget", "spared"]

LAST = "last.ckpt"
"""The checkpoint that a run can be resumed from."""

PREVIOUS = "previous.ckpt"
"""The one before it: where the last one is damaged, the run goes on from here."""

_said: set[str] = set()


def forget() -> None:
    """Say again what was said: another run begins."""
    _said.clear()


@contextmanager
def spared(path: Path | str, lost: str, *, go_on: str = "training goes on") -> Iterator[None]:
    """What cannot be written there is said, once, and work goes on.

    Args:
        path: of the file, or what else cannot write.
        lost: what there will not be.
        go_on: what happens all the same.
    """
    try:
        yield
    except OSError as error:
        if str(path) not in _said:
            _said.add(str(path))
            say(
                f"{path}: expected to write there, found: {reason(error)}; {go_on}, without {lost}. If that is "
                f"wanted: {advice(error)}, and start again"
            )
