"""Finds data files, and downloads those that are missing.

A file is looked for in two places: the folder given as ``root``, otherwise ``$FEDLIT_DATA``, otherwise ``data/`` of the
working directory; and the cache. What is found is used as it is. What is not found is downloaded into the cache, and
only a download whose checksum is right gets its final name.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedlit.errors import DataError


@dataclass(frozen=True)
class RemoteFile:
    """A file that a source reads, and the address of the original.

    Attributes:
        path: the file's path below a data folder, ``/`` between its parts. The file name alone counts too.
        url: the original's address; None if there is no public one that lasts.
        sha256: the checksum of the original, in hexadecimal, without which nothing is downloaded.
        about: a one-line description of the content.
        alternatives: other paths below a data folder that serve as well, for example the unpacked file or the name
            that the original has on its server.
        page: where a person can get the file if there is no ``url``. Nothing is downloaded from there, because nobody
            has verified the address or knows the checksum.

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

    def names(self) -> tuple[str, ...]:
        """Return every path below a data folder under which this file is accepted, the best first."""
        names = [name for path in (self.path, *self.alternatives) for name in (path, PurePosixPath(path).name)]
        return tuple(dict.fromkeys(names))


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
    return [Path(root or os.environ.get("FEDLIT_DATA") or "data").expanduser().absolute(), cache_folder()]


def find(file: RemoteFile, root: str | Path | None = None) -> Path | None:
    """Return the path of a file that already exists, or None. This never uses the network."""
    places = (folder / name for folder in search_roots(root) for name in file.names())
    return next((place for place in places if place.is_file()), None)


def locate(file: RemoteFile, root: str | Path | None = None) -> Path:
    """Return the path of a file, and download it into the cache if it exists nowhere else.

    Safe in parallel processes: each downloads under a temporary name of its own and renames it, in one step, to the
    final name when the checksum is right. Nothing partial remains after a failure.

    Raises:
        DataError: if the file is not here and cannot be fetched. The message says which folders and which address were
            tried, why it failed, and where to put the file by hand.
    """
    if (path := find(file, root)) is not None:
        return path
    reason = "it has no public address" + (f" that is verified; try {file.page}" if file.page else "")
    folder, cache = search_roots(root)
    if file.url is not None:
        import pooch

        target, loader = cache / file.path, pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16)
        try:
            # Made here because pooch's own check-then-make fails when two processes arrive together.
            target.parent.mkdir(parents=True, exist_ok=True)
            return Path(
                pooch.retrieve(file.url, f"sha256:{file.sha256}", target.name, target.parent, downloader=loader)
            )
        except (OSError, ValueError) as error:  # requests' errors are OSErrors; ValueError for a wrong checksum
            reason = f"{file.url} could not be fetched: {error}"
    raise DataError(
        f"{file.path} ({file.about}): expected it in {folder} or {cache}, found it in neither; {reason}. Put it at "
        f"{folder / file.path}, or name its folder with root or $FEDLIT_DATA."
    )
