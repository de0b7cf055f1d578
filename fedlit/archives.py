"""Archives of tensors and plain data that are there as a whole or not at all, and whose damage is noticed.

An archive is a zip whose records each have a checksum (CRC-32), which torch writes and does not look at.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.files import write_whole

__all__ = ["check_archive", "write_archive"]


def check_archive(path: Path) -> None:
    """Refuse an archive whose bytes are not those that were written. It is read once, in pieces; a file that was
    checked and has not changed is not read again.

    Raises:
        ConfigError: it is damaged; says where.
        FileNotFoundError: there is none.
    """
    file = path.stat()
    if damage := _damage(path, file.st_ino, file.st_size, file.st_mtime_ns):
        raise ConfigError(f"{path}: expected a file that fedlit wrote, found {damage}; use another one")


@cache
def _damage(path: Path, *_: int) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            record = archive.testzip()
    except Exception as error:  # of damaged files zipfile raises many kinds
        return f"a file that cannot be read: it is damaged or cut short ({error or type(error).__name__})"
    if record is None:
        return ""
    return f"that the checksum of {record.partition('/')[2] or record} differs: its bytes have changed"


def write_archive(content: Any, path: Path, before: Path | None = None) -> None:
    """Write tensors and plain data beside the file and rename: whoever is killed leaves the file before it whole.

    Args:
        content: what torch saves.
        path: the file.
        before: what the file that was there is called from now on; forgotten if None.

    Raises:
        OSError: the disk is full, say. Nothing is left then of what was written.
    """
    import torch

    torch.save(content, file := io.BytesIO())
    write_whole({path: lambda place: place.write(file.getbuffer())}, before)
