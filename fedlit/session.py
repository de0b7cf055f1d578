"""What a process remembers of the job that it works on: who prints its messages, what was reported
already, and its place among other processes.
"""

from __future__ import annotations

import atexit
import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TextIO


def _always(what: str) -> bool:
    return True


class Session:
    """The memory of one job. Used as a context manager, it is what :func:`session` returns inside
    the block. It begins with what the job around it prints by and has joined. At its end, what the
    job changed in this process is as it was before: fedlit's logger, how warnings are shown, and
    the standard output.

    A thread has the session of the context that it runs in (:func:`contextvars.copy_context`).

    Attributes:
        prints: prints a notice of this job; None for standard error.
        is_first: returns whether this process is the first one of the job to report something.
        reported: what was reported and is reported only once, such as a file that cannot be
            written.
        has_joined: whether it is known if there are other processes of this job.
        ranks: the transport to these; None if there are none.

    Example:
        >>> with Session():
        ...     session().reported.add("a.csv")
        ...     "a.csv" in session().reported
        True
        >>> "a.csv" in session().reported
        False
    """

    def __init__(self) -> None:
        self.prints: Callable[[str], None] | None = None
        self.is_first: Callable[[str], bool] = _always
        self.reported: set[str] = set()
        self.has_joined = False
        self.ranks: Any = None
        self._end: ExitStack | None = None

    def __enter__(self) -> Session:
        """Begin the job."""
        around = session()
        self.prints = around.prints
        self.is_first = around.is_first
        self.has_joined = around.has_joined
        self.ranks = around.ranks
        end = ExitStack()
        end.callback(_restore, sys.stdout, warnings.showwarning)
        end.callback(_restore_log, _LOG.handlers[:], _LOG.level, _LOG.propagate)
        end.callback(_current.reset, _current.set(self))
        self._end = end
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the job."""
        if self._end is not None:
            self._end.close()

    def on_end(self, work: Callable[[], object]) -> None:
        """Call a function when the job ends; outside of any job, when the process ends."""
        if self._end is None:
            atexit.register(work)
        else:
            self._end.callback(work)


_LOG = logging.getLogger("fedlit")


def _restore(stdout: TextIO, showwarning: Callable[..., None]) -> None:
    sys.stdout = stdout
    warnings.showwarning = showwarning


def _restore_log(handlers: list[logging.Handler], level: int, propagate: bool) -> None:
    _LOG.handlers = handlers
    _LOG.setLevel(level)
    _LOG.propagate = propagate


_current: ContextVar[Session] = ContextVar("fedlit_session")
_OF_PROCESS = Session()


def session() -> Session:
    """Return the session of the job that this context works on; outside of any job, that of the
    process.
    """
    return _current.get(_OF_PROCESS)
