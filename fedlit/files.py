"""Files that are there as a whole or not at all, and words for what could not be written.

What is written lies beside its place first, and is renamed when it is whole: a full disk, or whoever ends the process,
leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "UNWRITABLE",
    "advice",
    "clear_partials",
    "naming",
    "partial_of",
    "read_named",
    "reason",
    "write_frames",
    "write_text",
    "write_whole",
]

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
"""What the system says where a place cannot be written to, whoever asks."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PARTIAL = ".partial"

_NAMES = ("client", "column", "concept", "feature", "first", "label", "measure", "method", "metric", "of", "output",
          "part", "path", "second", "split", "study")  # fmt: skip
_VALUES = ("error", "loss", "value")


def reason(error: OSError) -> str:
    """Why a file could not be written, in the system's words."""
    return error.strerror or str(error)


def advice(error: OSError) -> str:
    """Return what a person can do about an error."""
    return "make room" if error.errno in _FULL else "make the folder writable, or move away what is in its place"


@contextmanager
def naming(place: Path) -> Iterator[None]:
    """An ``OSError`` inside the block has this place as its ``filename``: the system names none when a disk is full."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(place), None
        raise


def write_whole(contents: Mapping[Path, Callable[[IO[bytes]], Any]], before: Path | None = None) -> None:
    """Write files beside their places, and rename them when all are whole.

    Args:
        contents: path → what writes its bytes.
        before: the name that the one file that was there gets; it is replaced if None.

    Raises:
        OSError: the disk is full, for instance; ``filename`` is the path. Nothing is left then of what was written.

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
        for folder in {path.parent for path in contents}:  # the new names are on disk, too
            handle = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # a file system that does not sync folders
                os.fsync(handle)
            os.close(handle)
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


def _keep(path: Path, before: Path) -> None:
    """Give a file a second name. There is a file of either name at any moment, where the file system has links."""
    second = partial_of(before)
    try:
        os.link(path, second)
        os.replace(second, before)
    except OSError:
        os.replace(path, before)
    finally:
        second.unlink(missing_ok=True)  # where both names were of one file already, nothing was renamed


def write_text(text: str, path: Path, before: Path | None = None) -> None:
    """Write a text as :func:`write_whole` does."""
    write_whole({path: lambda file: file.write(text.encode())}, before)


def write_frames(frames: Mapping[Path, pd.DataFrame]) -> None:
    """Write frames, without their index, as :func:`write_whole` does: path (``.parquet``, else CSV) → frame."""

    def writer(path: Path, frame: pd.DataFrame) -> Callable[[IO[bytes]], Any]:
        if path.suffix.lower() == ".parquet":
            return lambda file: frame.to_parquet(file, index=False)
        return lambda file: frame.to_csv(file, index=False)

    write_whole({path: writer(path, frame) for path, frame in frames.items()})


def read_named(path: Path) -> pd.DataFrame:
    """Read a CSV of numbers by names: scores, corrections, clusters. Names are text, also where one reads like a number
    or a missing value (a client NA).
    """
    import pandas as pd

    names, missing = dict.fromkeys(_NAMES, str), {key: ["", "nan"] for key in _VALUES}
    return pd.read_csv(path, dtype=names, keep_default_na=False, na_values=missing)


def partial_of(path: Path) -> Path:
    """Return the name under which a file is written before it is renamed."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}{_PARTIAL}")


def clear_partials(folder: Path, *, ours: bool) -> None:
    """Remove what processes left that were killed while they wrote.

    Args:
        folder: and those below.
        ours: whether nobody else may write here; else only what dead processes of this machine left.
    """
    for file in folder.rglob(f".*{_PARTIAL}"):
        host, _, pid = file.name.removesuffix(_PARTIAL).rpartition("-")
        if ours or (host.endswith(f".{socket.gethostname()}") and pid.isdigit() and not _lives(int(pid))):
            with suppress(OSError):
                file.unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
