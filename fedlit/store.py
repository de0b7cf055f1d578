"""Stores values by name and number in one SQLite file. Changes are atomic, and damage is
detected.
"""

from __future__ import annotations

import errno
import io
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from fedlit.errors import ConfigError
from fedlit.files import write_whole

_FAILED = {
    "SQLITE_FULL": errno.ENOSPC,
    "SQLITE_READONLY": errno.EROFS,
    "SQLITE_IOERR": errno.EIO,
    "SQLITE_BUSY": errno.EIO,
    "SQLITE_TOOBIG": errno.EIO,
}
"""How the names of SQLite's errors begin that are the disk's fault, and the system's number for
each."""


class Store:
    """Keeps tensors and plain data. A change is on disk when :meth:`put` returns; if a process is
    killed before that, the file stays as it was.

    SQLite checks the structure of the file when it is opened, and each value has a checksum
    (CRC-32). Values are torch archives of at most 10⁹ bytes each, which are read without running
    any code from them.

    Args:
        path: the file, which is created if it does not exist.
        mend: what the user should do if the file is damaged.

    Raises:
        ConfigError: the file is damaged.
        OSError: the file cannot be read or written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     store = Store(Path(folder, "a.db"), "restore it")
        ...     store.put({("loss", 1): {"mean": 0.5}, ("loss", 2): {"mean": 0.25}})
        ...     store.put({("last", 0): 2}, drop=[("loss", 0, 2)])
        ...     store.get("loss", 2), store.get("loss", 1), store.numbers("loss")
        ({'mean': 0.25}, None, [2])
    """

    def __init__(self, path: Path, mend: str) -> None:
        self.path = path
        self.mend = mend
        if not path.exists():
            with closing(sqlite3.connect(":memory:")) as empty:
                empty.execute(
                    "CREATE TABLE kept (name, number, value, crc, PRIMARY KEY (name, number))"
                )
                write_whole({path: lambda file: file.write(empty.serialize())})
        with self._open() as database:
            (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if answer != "ok":
                raise sqlite3.DatabaseError(answer)
            # nothing is forgotten silently
            database.execute("SELECT name, number, value, crc FROM kept LIMIT 0")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction. In a block, whatever fails is the file's fault: a flipped bit can
        make a text that is no text, or a number where bytes were.
        """
        try:
            with (
                closing(
                    sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=rw", uri=True)
                ) as database,
                database,
            ):
                database.execute("PRAGMA synchronous = EXTRA")
                yield database
        except OSError:
            raise
        except Exception as error:
            name = getattr(error, "sqlite_errorname", "")
            for failed, number in _FAILED.items():
                if name.startswith(failed):
                    raise OSError(number, str(error), str(self.path)) from error
            raise ConfigError(
                f"{self.path}: expected a file that fedlit wrote, found a damaged one ({error}); "
                f"{self.mend}"
            ) from error

    def get(self, name: str, number: int = 0) -> Any:
        """Return the value of a name and number, or None if there is none."""
        with self._open() as database:
            query = "SELECT value, crc FROM kept WHERE name = ? AND number = ?"
            value, crc = database.execute(query, [name, number]).fetchone() or (None, None)
            if value is not None:
                _check(name, number, value, crc)
        if value is None:
            return None
        return _loaded(value)

    def put(
        self, values: Mapping[tuple[str, int], object], drop: Iterable[tuple[str, int, int]] = ()
    ) -> None:
        """Write some values and delete others, in one transaction.

        Args:
            values: maps each (name, number) to tensors and plain data.
            drop: (name, first, end) for each range to delete: the numbers from ``first`` up to but
                not including ``end``.
        """
        import torch

        from fedlit.stacks import alone

        rows = []
        for key, value in values.items():
            torch.save(alone(value), file := io.BytesIO())
            content = file.getvalue()
            rows.append([*key, content, crc32(content)])
        with self._open() as database:
            database.executemany(
                "DELETE FROM kept WHERE name = ? AND number >= ? AND number < ?", drop
            )
            database.executemany("REPLACE INTO kept VALUES (?, ?, ?, ?)", rows)

    def values(self, name: str) -> dict[int, Any]:
        """Return all values under a name, by number, sorted."""
        with self._open() as database:
            rows = database.execute(
                "SELECT number, value, crc FROM kept WHERE name = ? ORDER BY 1", [name]
            ).fetchall()
            for number, value, crc in rows:
                _check(name, number, value, crc)
        return {number: _loaded(value) for number, value, _ in rows}

    def numbers(self, name: str) -> list[int]:
        """Return the numbers under a name, sorted."""
        with self._open() as database:
            return [
                number
                for (number,) in database.execute(
                    "SELECT number FROM kept WHERE name = ? ORDER BY 1", [name]
                )
            ]


def _check(name: str, number: int, value: bytes, crc: int | None) -> None:
    if crc32(value) != crc:
        raise sqlite3.DatabaseError(f"the checksum of {name} {number} differs")


def _loaded(value: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(value), map_location="cpu", weights_only=True)
