"""Files that are written as a whole or not at all, and messages for failed writes.

A file is first written under a temporary name, and renamed when it is complete. If the disk is full
or the process ends, the previous file stays. An archive of tensors is a zip file whose records each
have a checksum (CRC-32), which torch writes but does not check. A lock allows only one process at a
time to write to a folder.
"""

from __future__ import annotations

import csv
import errno
import os
import re
import shlex
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING

from fedlit.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

UNWRITABLE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
)
"""What the system says where a place cannot be written to, whoever asks."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PARTIAL = ".partial"

_NAMES = ("client", "column", "concept", "feature", "first", "label", "measure", "method", "metric", "of", "output",
          "part", "path", "second", "split", "study")  # fmt: skip
_VALUES = ("error", "loss", "value")


def reason(error: OSError) -> str:
    """Return why a file could not be written, in the system's words."""
    return error.strerror or str(error)


def advice(error: OSError) -> str:
    """Return what the user can do about an error."""
    return (
        "make room"
        if error.errno in _FULL
        else "make the folder writable, or move away what is in its place"
    )


@contextmanager
def naming(place: Path) -> Iterator[None]:
    """Set the ``filename`` of an ``OSError`` inside the block to this path. The system names no
    file if a disk is full.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(place)
        error.filename2 = None
        raise


def write_whole(
    contents: Mapping[Path, Callable[[IO[bytes]], object]], before: Path | None = None
) -> None:
    """Write files under temporary names, and rename them when all of them are complete.

    Args:
        contents: maps each path to a function that writes its bytes to an open file.
        before: the new name of the one previous file, which is replaced if None.

    Raises:
        OSError: the disk is full, for example; ``filename`` is the path. Nothing that was written
            is left then.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.txt")
        ...     write_whole({path: lambda file: file.write(b"whole")})
        ...     path.read_text()
        'whole'
    """
    partials = {path: partial_of(path) for path in contents}
    try:
        for path, partial in partials.items():
            with naming(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with partial.open("wb") as file:
                    contents[path](file)
                    file.flush()
                    os.fsync(file.fileno())
                if path.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        for path, partial in partials.items():
            with naming(path):
                if before is not None and path.exists():
                    _keep(path, before)
                os.replace(partial, path)
        for folder in {path.parent for path in contents}:
            sync(folder)
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def sync(folder: Path) -> None:
    """Have the names of a folder's files on disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    with suppress(OSError):  # a file system that does not sync folders
        os.fsync(handle)
    os.close(handle)


def _keep(path: Path, before: Path) -> None:
    """Give a file a second name. If the file system supports links, a file exists under either name
    at any moment.
    """
    second = partial_of(before)
    try:
        os.link(path, second)
        os.replace(second, before)
    except OSError:
        os.replace(path, before)
    finally:
        # where both names were of one file already, nothing was renamed
        second.unlink(missing_ok=True)


def write_text(text: str, path: Path, before: Path | None = None) -> None:
    """Write a text in the same way as :func:`write_whole`."""
    write_whole({path: lambda file: file.write(text.encode())}, before)


def write_frames(frames: Mapping[Path, pd.DataFrame], raw: bool = False) -> None:
    """Write frames without their index, in the same way as :func:`write_whole`. Maps each path
    (``.parquet``, otherwise CSV, see :func:`csv_of`) to its frame.
    """

    def writer(path: Path, frame: pd.DataFrame) -> Callable[[IO[bytes]], object]:
        if path.suffix.lower() == ".parquet":
            return lambda file: frame.to_parquet(file, index=False)
        return lambda file: file.write(csv_of(frame, raw=raw).encode())

    write_whole({path: writer(path, frame) for path, frame in frames.items()})


# A spreadsheet computes cells that begin so. To be undone, one apostrophe is also put before those
# that have some.
_FORMULA = re.compile(r"'*[=+\-@\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"''*[=+\-@\x00-\x1f\x7f]")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+|inf|nan)(?:e[-+]?\d+)?", re.I)


def csv_of(
    frame: pd.DataFrame, *, index: bool = False, header: bool = True, raw: bool = False
) -> str:
    """Return a frame as CSV. Texts that a spreadsheet would compute get an apostrophe before them:
    those that are no number and begin with ``=``, ``+``, ``-``, ``@`` or a control character.
    :func:`read_named` takes it off.

    Args:
        frame: the rows.
        index: whether to write the index, too.
        header: whether to write the names of columns.
        raw: whether to write texts as they are.

    Example:
        >>> import pandas as pd
        >>> print(csv_of(pd.DataFrame({"label": ["=1+1", "-1", "a"]})), end="")
        label
        '=1+1
        -1
        a
    """
    plain = frame
    if not raw:
        plain = _of_texts(frame, _guarded)
    text = str(plain.to_csv(index=index, header=header))
    if "\r" in text:  # which pandas does not put in quotes, and readers take for the end of a line
        text = str(plain.to_csv(index=index, header=header, quoting=csv.QUOTE_NONNUMERIC))
    return text


def _of_texts(frame: pd.DataFrame, change: Callable[[object], object]) -> pd.DataFrame:
    """Return a frame whose texts and names of columns are changed by a function."""
    changed = {}
    for position, (_, column) in enumerate(frame.items()):
        changed[position] = column
        if column.dtype.kind not in "biufmM":
            changed[position] = column.astype(object).map(change)
    changed_frame = type(frame)(changed, index=frame.index)
    changed_frame.columns = frame.columns.map(change)
    return changed_frame


def _guarded(cell: object) -> object:
    if not isinstance(cell, str) or _FORMULA.match(cell) is None or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"


def _unguarded(cell: object) -> object:
    if isinstance(cell, str) and _ESCAPED.match(cell):
        return cell[1:]
    return cell


def read_named(path: Path) -> pd.DataFrame:
    """Read a CSV file of named numbers that fedlit wrote: scores, corrections, clusters. Names stay
    text even if they look like a number or a missing value (a client called NA).
    """
    import pandas as pd

    names = dict.fromkeys(_NAMES, str)
    missing = {key: ["", "nan"] for key in _VALUES}
    return _of_texts(
        pd.read_csv(path, dtype=names, keep_default_na=False, na_values=missing), _unguarded
    )


def partial_of(path: Path) -> Path:
    """Return the temporary name of a file while it is being written."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}{_PARTIAL}")


def clear_partials(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder to which no other process
    may write.
    """
    for file in folder.glob(f".*{_PARTIAL}"):
        with suppress(OSError):
            file.unlink()


# ---------------------------------------------------------------------- archives


def check_archive(path: Path) -> None:
    """Refuse an archive whose bytes have changed since it was written. It is read once, in pieces;
    a file that was checked and has not changed is not read again.

    Raises:
        ConfigError: the archive is damaged; the message names the place.
        FileNotFoundError: there is no such file.
    """
    file = path.stat()
    if damage := _damage(path, file.st_ino, file.st_size, file.st_mtime_ns):
        raise ConfigError(
            f"{path}: expected a file that fedlit wrote, found {damage}; use another one"
        )


@cache
def _damage(path: Path, *_: int) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            record = archive.testzip()
    except Exception as error:  # of damaged files zipfile raises many kinds
        return (
            "a file that cannot be read: it is damaged or cut short "
            f"({error or type(error).__name__})"
        )
    if record is None:
        return ""
    return (
        f"that the checksum of {record.partition('/')[2] or record} differs: its bytes have changed"
    )


def write_archive(content: object, path: Path, before: Path | None = None) -> None:
    """Write tensors and plain data to a temporary file and rename it, so that a killed process
    leaves the previous file whole.

    Args:
        content: the content that ``torch.save`` writes.
        path: the file.
        before: the new name of the previous file, which is deleted if None.

    Raises:
        OSError: the disk is full, for example. Nothing that was written is left then.
    """
    write_whole({path: lambda file: _save(content, file)}, before)


def _save(content: object, file: IO[bytes]) -> None:
    import torch

    target = _Target(file)
    torch.save(content, target)  # type: ignore[arg-type]  # It only writes.
    if target.error is not None:
        raise target.error


class _Target:
    """A file for torch, which must see no error: it would report another one, or end the process.
    After the first error nothing is written, and ``error`` has it.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.error: OSError | None = None
        self._file = file

    def write(self, data: bytes | memoryview) -> int:
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Leave it to whoever opened the file."""


# ---------------------------------------------------------------------- locks

# The system releases a lock when its process ends in any way. The lock's file also names the
# process that holds the lock, for messages to other processes. It is removed when the lock is
# released. A file that is left belongs to a process that was killed, and its lock is taken over.


@contextmanager
def exclusive(path: Path, expected: str, do: str) -> Iterator[None]:
    """Hold a lock inside the block.

    Args:
        path: the path of its file.
        expected: what must not be the case, as the beginning of the error message: ``"expected no
            other process …"``.
        do: what the user can do, for the error message.

    Raises:
        ConfigError: another process holds the lock (the message says which), or its folder cannot
            be written to.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, exclusive(Path(folder, ".lock"), "expected nobody here", "wait"):
        ...     try:
        ...         exclusive(Path(folder, ".lock"), "expected nobody here", "wait").__enter__()
        ...     except ConfigError as error:
        ...         str(error).startswith(f"expected nobody here, found process {os.getpid()} on ")
        True
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, mode=0o644, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        holder_found = ""
        with suppress(OSError):  # it may be empty for a moment
            holder_found = path.read_text(encoding="utf-8", errors="replace")
        raise ConfigError(f"{expected}, found {holder_found or 'one'}; {do}") from None
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: expected a folder that can be written to, found: {reason(error)}; "
            f"{advice(error)}, or give another one"
        ) from error
    locked = os.stat(path)
    command = ""
    if "fedlit" in sys.argv[0]:
        command = shorten(f", {shlex.join(['fedlit', *sys.argv[1:]])}", 120, placeholder=" …")
    holder = (
        f"process {os.getpid()} on {socket.gethostname()}{command}, since "
        f"{time.strftime('%Y-%m-%d %H:%M:%S')}"
    )
    with suppress(OSError):  # a full disk does not keep it from being held
        path.write_text(holder, encoding="utf-8")  # the file itself: a new one would not be locked
    try:
        yield
    finally:
        # another process may hold a new file, where the folder was removed meanwhile
        with suppress(OSError):
            if os.path.samestat(locked, os.stat(path)):
                path.unlink()
        lock.release(force=True)
