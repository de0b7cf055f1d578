"""The names of checkpoints, and the message if something cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlit.files import advice, reason
from fedlit.session import session
from fedlit.show.shown import say

CHECKPOINTS = "checkpoints"
"""The folder of a run's checkpoints, in the run's folder."""

LAST = "last.ckpt"
"""The checkpoint that a run can be resumed from."""

PREVIOUS = "previous.ckpt"
"""The checkpoint before the last one. If the last one is damaged, the run continues from here."""


@contextmanager
def spared(path: Path | str, lost: str, *, go_on: str = "training goes on") -> Iterator[None]:
    """Report once that something cannot be written, and let work go on.

    Args:
        path: the file, or the name of what else cannot write.
        lost: what will be missing.
        go_on: what happens nevertheless.
    """
    try:
        yield
    except OSError as error:
        reported = session().reported
        if str(path) not in reported:
            reported.add(str(path))
            say(
                f"{path}: expected to write there, found: {reason(error)}; {go_on}, without "
                f"{lost}. If that is wanted: {advice(error)}, and start again"
            )
