"""Archives of tensors and plain data that are written as a whole or not at all, and whose damage is detected.

An archive is a zip file whose records each have a checksum (CRC-32), which torch writes but does not check.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError
from fedlit.files import write_whole


def check_archive(path: Path) -> None:
    """Refuse an archive whose bytes have changed since it was written. It is read once, in pieces; a file that was
    checked and has not changed is not read again.

    Raises:
        ConfigError: the archive is damaged; the message names the place.
        FileNotFoundError: there is no such file.
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
    """Write tensors and plain data to a temporary file and rename it, so that a killed process leaves the previous file
    whole.

    Args:
        content: the content that ``torch.save`` writes.
        path: the file.
        before: the new name of the previous file, which is deleted if None.

    Raises:
        OSError: the disk is full, for example. Nothing that was written is left then.
    """
    import torch

    torch.save(content, file := io.BytesIO())
    write_whole({path: lambda place: place.write(file.getbuffer())}, before)
