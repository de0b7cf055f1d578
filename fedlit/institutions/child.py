"""A process that ends when its parent does: ``python -m fedlit.institutions.child MODULE ARGUMENT …``.

The parent holds the other end of the child's standard input, and that end is closed when the parent ends, even by
SIGKILL. The child reads its standard input before it imports anything large, so a parent that dies during these imports
leaves no orphan. A closed pipe stays closed: there is no moment at which the end could be missed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from queue import SimpleQueue

__all__ = ["AGAIN", "Parent", "command", "main"]

AGAIN = 75
"""Exit status where the parent or the SuperLink was lost: starting again may help."""

_GRACE = 5.0


class Parent:
    """The parent process: what it says, and whether it still runs.

    Attributes:
        lines: that the parent has said.
        gone: called when the parent is gone. The process ends 5 s later, whatever this function does.
    """

    def __init__(self) -> None:
        self.lines: SimpleQueue[str] = SimpleQueue()
        self.gone: Callable[[], object] = partial(os._exit, AGAIN)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            with open(0, encoding="utf-8", closefd=False) as heard:
                for line in heard:
                    self.lines.put(line)
            self.gone()
            time.sleep(_GRACE)
        finally:
            os._exit(AGAIN)


def command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module's ``main(arguments, parent)`` in a child; its standard input must be a pipe."""
    return [sys.executable, "-m", __name__, module, *arguments]


def main() -> int:
    """Run the module that the first argument names; the exit status is the module's."""
    parent = Parent()
    status: int = import_module(sys.argv[1]).main(sys.argv[2:], parent)
    return status


if __name__ == "__main__":
    sys.exit(main())
