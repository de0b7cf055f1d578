"""Ends a child process whose parent is gone, also while the child still imports."""

from __future__ import annotations

import os
import signal
import threading
import time

__all__ = ["PARENT", "environment"]

PARENT = "FEDLIT_PARENT"
"""The environment's name for the number of the process that must outlive this one."""
_LOOK, _GRACE = 0.2, 5.0


def environment() -> dict[str, str]:
    """What a child's environment says of this process."""
    return {PARENT: str(os.getpid())}


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os._exit(1)


if PARENT in os.environ:  # not what the parent was at first: that may be gone already
    threading.Thread(target=_watch, args=(int(os.environ.pop(PARENT)),), daemon=True).start()
