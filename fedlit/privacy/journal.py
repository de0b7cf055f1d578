"""Files that must be on disk before an answer leaves a site."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlit.errors import RunError

__all__ = ["Journal", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole or not at all, and on disk when this returns. Its owner alone may
    read it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Journal:
    """What was decided, line by line; a line is on disk before :meth:`add` returns.

    Args:
        path: a file of JSON lines; made where there is none. A last line that was not written to its end counts as not
            written, and is taken out.

    Attributes:
        entries: all lines.

    Raises:
        RunError: a line that is no JSON, other than an unfinished last one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[dict[str, Any]] = []
        if not path.exists():
            write_whole(path, b"")
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            write_whole(path, whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                self.entries.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise RunError(
                    f"{path}, line {number}: expected what fedlit has written, found something else; restore the file "
                    "from a copy, or begin anew in another folder (never delete this file alone: it says what this "
                    "site has told already)"
                ) from error

    def add(self, entry: Mapping[str, Any]) -> None:
        """Write a line."""
        with os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND, 0o600), "ab") as file:
            file.write(json.dumps(dict(entry)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(dict(entry))
