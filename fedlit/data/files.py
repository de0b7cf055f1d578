"""Finds data files, and downloads those that are missing.

A file is looked for in two places: the folder given as ``root``, otherwise ``$FEDLIT_DATA``,
otherwise ``data/`` of the working directory; and the cache. A file that exists is used as it is. A
missing file is downloaded into the cache, from the first of its addresses that answers, and gets
its final name only if its checksum is right.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from fedlit.data.reach import unreachable
from fedlit.errors import DataError

if TYPE_CHECKING:
    from fedlit.show.bar import Bar


@dataclass(frozen=True)
class RemoteFile:
    """A file that a source reads, and the address of the original.

    Attributes:
        path: the file's path below a data folder, ``/`` between its parts. The file name alone
            counts too.
        url: the original's address; None if there is no public one that lasts.
        sha256: the checksum of the original, in hexadecimal, without which nothing is downloaded.
        about: a one-line description of the content.
        alternatives: other paths below a data folder that serve as well, for example the unpacked
            file or the name that the original has on its server.
        page: where a person can get the file if there is no ``url``. Nothing is downloaded from
            there, because nobody has verified the address or knows the checksum.
        mirrors: other addresses of the same file, which are asked where the original's does not
            answer.

    Example:
        >>> file = RemoteFile("heart/va.data", "https://example.org/processed.va.data", "e7c9", "200 patients")
        >>> file.names()
        ('heart/va.data', 'va.data')
    """

    path: str
    url: str | None
    sha256: str | None
    about: str
    alternatives: tuple[str, ...] = ()
    page: str | None = None
    mirrors: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The original's address, followed by those of its mirrors."""
        return () if self.url is None else (self.url, *self.mirrors)

    def names(self) -> tuple[str, ...]:
        """Return every path below a data folder under which this file is accepted, the best
        first.
        """
        paths = (self.path, *self.alternatives)
        pairs = ((path, PurePosixPath(path).name) for path in paths)
        return tuple(dict.fromkeys(chain(*pairs)))


def cache_folder() -> Path:
    """Return the folder for downloads: ``$FEDLIT_CACHE``, otherwise the user's cache folder."""
    if folder := os.environ.get("FEDLIT_CACHE"):
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("fedlit"))


def search_roots(root: str | Path | None = None) -> list[Path]:
    """Return the two folders in which files are searched, in order. They need not exist.

    Args:
        root: a folder that takes the place of ``$FEDLIT_DATA``.
    """
    return [
        Path(root or os.environ.get("FEDLIT_DATA") or "data").expanduser().absolute(),
        cache_folder(),
    ]


def find(file: RemoteFile, root: str | Path | None = None) -> Path | None:
    """Return the path of a file that already exists, or None. This never uses the network."""
    for folder, name in product(search_roots(root), file.names()):
        path = folder / name
        if path.is_file():
            return path
    return None


def locate(
    file: RemoteFile,
    root: str | Path | None = None,
    unreachable_addresses: Mapping[str, str] | None = None,
) -> Path:
    """Return the path of a file, and download it into the cache if it exists nowhere else.

    Safe in parallel processes: each downloads under a temporary name of its own and renames it, in
    one step, to the final name when the checksum is right. Nothing partial remains after a failure.

    Args:
        file: the file.
        root: a folder that takes the place of ``$FEDLIT_DATA``.
        unreachable_addresses: addresses that are known not to answer, each with the reason; if
            None, they are asked.

    Raises:
        DataError: if the file is not here and cannot be fetched. The message says which folders and
            which addresses were tried, why each failed, and where to put the file by hand.
    """
    if (path := find(file, root)) is not None:
        return path
    if unreachable_addresses is None:
        unreachable_addresses = unreachable(file.addresses)
    folder, cache = search_roots(root)
    failures = []
    for address in file.addresses:
        reason = unreachable_addresses.get(address)
        if reason is None:
            try:
                return _download(file, address, cache)
            # requests raises OSError; a wrong checksum is a ValueError.
            except (OSError, ValueError) as error:
                reason = str(error)
        failures.append(f"{address} could not be fetched: {reason}")
    if not failures:
        advice = f" that is verified; try {file.page}" if file.page else ""
        failures.append(f"it has no public address{advice}")
    raise DataError(
        f"{file.path} ({file.about}): expected it in {folder} or {cache}, found it in neither; "
        f"{'; '.join(failures)}. Put it at {folder / file.path}, or name its folder with root or "
        "$FEDLIT_DATA."
    )


def _download(file: RemoteFile, address: str, cache: Path) -> Path:
    """Download a file into the cache."""
    import pooch
    from rich.progress import DownloadColumn, TimeRemainingColumn

    from fedlit.show.bar import Bar

    target = cache / file.path
    # Made here because pooch's own check-then-make fails when two processes arrive together.
    target.parent.mkdir(parents=True, exist_ok=True)
    with Bar(None, 0, DownloadColumn(), TimeRemainingColumn()) as bar:
        bar.show(description=file.path)
        loader = pooch.HTTPDownloader(progressbar=_Bytes(bar), chunk_size=1 << 16)
        path = pooch.retrieve(
            address, f"sha256:{file.sha256}", target.name, target.parent, downloader=loader
        )
    return Path(path)


class _Bytes:
    """Shows how much of a file has come, as pooch reports it.

    Args:
        bar: the bar.

    Attributes:
        total: the size of the file; 0 if the server does not say it.
    """

    def __init__(self, bar: Bar) -> None:
        self.total = 0
        self._bar = bar
        self._done = 0

    def update(self, size: int) -> None:
        """Advance by a number of bytes."""
        self._done += size
        self._bar.show(self._done, total=self.total or None)

    def reset(self) -> None:
        """Begin again: the number of bytes was an estimate."""
        self._done = 0

    def close(self) -> None:
        """End."""
