"""Where data files are found, and how they are fetched when they are not.

A file is looked for in several folders, in this order: the folder given as ``root``; ``$FEDLIT_DATA``; ``data/`` of the
working directory and of the checkout; ``shared/data/`` beside either (one copy for several checkouts); the cache.
What is found is used as it is. What is not found is downloaded into the cache, and only a download whose checksum is
right gets its final name.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedlit.errors import DataError

__all__ = ["RemoteFile", "cache_folder", "find", "locate", "search_roots"]


@dataclass(frozen=True)
class RemoteFile:
    """A file that a source reads, and where the original is.

    Attributes:
        path: the file's path below a data folder, ``/`` between its parts. The file name alone counts too.
        url: the original's address; None if there is no public one that lasts.
        sha256: the checksum of the original, in hexadecimal; None only if there is no ``url``.
        about: what the file holds, in one line.
        mirrors: further addresses of the very same bytes, tried in order when ``url`` fails.
        alternatives: other paths below a data folder that serve as well, for example the unpacked file or the name
            that the original has on its server.
        page: where a person can get the file if there is no ``url``: nothing is fetched from there, for nobody has
            verified the address or knows the checksum.

    Example:
        >>> file = RemoteFile("heart/va.data", "https://example.org/processed.va.data", "e7c9", "200 patients")
        >>> file.names()
        ('heart/va.data', 'va.data')
    """

    path: str
    url: str | None
    sha256: str | None
    about: str
    mirrors: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    page: str | None = None

    def __post_init__(self) -> None:
        """Refuse an address without a checksum: its download could not be trusted."""
        if self.url is not None and self.sha256 is None:
            raise DataError(f"{self.path}: expected a sha256 beside the url, found None. State the file's checksum.")

    def names(self) -> tuple[str, ...]:
        """Every path below a data folder under which this file counts as found, the best first."""
        names = [name for path in (self.path, *self.alternatives) for name in (path, PurePosixPath(path).name)]
        return tuple(dict.fromkeys(names))

    @property
    def why_not_fetched(self) -> str:
        """Of a file without ``url``: the words that follow its name."""
        return "has an address but no known checksum, so it is not fetched" if self.page else "has no public address"

    def urls(self) -> tuple[str, ...]:
        """Every address to try, in order; empty if there is none."""
        return () if self.url is None else (self.url, *self.mirrors)


def cache_folder() -> Path:
    """The folder that downloads go to: ``$FEDLIT_CACHE``, otherwise the user's cache folder."""
    if folder := os.environ.get("FEDLIT_CACHE"):
        return Path(folder).expanduser()
    import pooch

    return Path(pooch.os_cache("fedlit"))


def search_roots(root: str | Path | None = None) -> list[Path]:
    """The folders in which files are looked for, the first first; some may not exist.

    Args:
        root: a folder that comes before all others. Unlike the others it must exist.

    Raises:
        DataError: if ``root`` is given and is no folder.
    """
    roots: list[Path] = []
    if root is not None:
        given = Path(root).expanduser()
        if not given.is_dir():
            found = "a file" if given.exists() else "nothing"
            raise DataError(
                f"root: expected a folder at {given}, found {found}. Create the folder, correct the path, or leave "
                f"root out to search the usual folders."
            )
        roots.append(given)
    if variable := os.environ.get("FEDLIT_DATA"):
        roots.append(Path(variable).expanduser())
    bases = [Path.cwd()]
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():  # otherwise this is an installed wheel, and that folder is not ours
        bases.append(checkout)
    roots += [base / "data" for base in bases]
    roots += [base.parent / "shared" / "data" for base in bases]
    roots.append(cache_folder())
    return list({folder.resolve(): folder for folder in reversed(roots)}.values())[::-1]


def find(file: RemoteFile, root: str | Path | None = None) -> Path | None:
    """The path of a file that is already here, or None. Never touches the network."""
    for folder in search_roots(root):
        for name in file.names():
            if (folder / name).is_file():
                return folder / name
    return None


def locate(file: RemoteFile, root: str | Path | None = None) -> Path:
    """The path of a file, downloaded into the cache first if it is nowhere else.

    Safe in parallel processes: each downloads under a temporary name of its own and renames it, in one step, to the
    final name when the checksum is right. Nothing partial remains after a failure.

    Raises:
        DataError: if the file is not here and cannot be fetched. The message says which folders and addresses were
            tried, why each failed, and where to put the file by hand.
    """
    if (path := find(file, root)) is not None:
        return path
    reasons: list[str] = []
    for url in file.urls():
        try:
            return _download(file, url)
        except _DownloadFailed as error:
            reasons.append(f"{url}: {error}")
    raise DataError(_not_found(file, root, reasons))


class _DownloadFailed(Exception):
    """One address did not deliver the file; the text is the reason."""


def _download(file: RemoteFile, url: str) -> Path:
    import pooch
    import requests

    target = cache_folder() / file.path
    try:
        # Made here because pooch's own check-then-make fails when two processes arrive together.
        target.parent.mkdir(parents=True, exist_ok=True)
        downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 16)
        pooch.retrieve(url, f"sha256:{file.sha256}", target.name, target.parent, downloader=downloader)
    except requests.exceptions.ChunkedEncodingError as error:
        raise _DownloadFailed("the connection was cut before the file was complete") from error
    except requests.Timeout as error:
        raise _DownloadFailed("the server did not answer in time") from error
    except requests.ConnectionError as error:
        raise _DownloadFailed("no connection (is there a network?)") from error
    except (requests.RequestException, OSError) as error:  # among them the server's own refusals, such as 404
        raise _DownloadFailed(str(error)) from error
    except ValueError as error:  # pooch's class for a wrong checksum
        raise _DownloadFailed(f"wrong checksum, expected sha256 {file.sha256}; the download was removed") from error
    return target


def _not_found(file: RemoteFile, root: str | Path | None, reasons: list[str]) -> str:
    folders = search_roots(root)
    lines = [f"{file.path} ({file.about}): expected in one of these folders, found in none:"]
    lines += [f"  {folder}" + ("" if folder.is_dir() else " (does not exist)") for folder in folders]
    if reasons:
        lines += ["Downloads that were tried and failed:", *(f"  {reason}" for reason in reasons)]
        get = f"Get it from {file.url} by other means"
    else:
        lines.append(f"It {file.why_not_fetched}: it is read only if it is there.")
        get = f"Get it from {file.page}" if file.page else "Get it from whoever has it"
    place = Path(os.environ.get("FEDLIT_DATA") or "data").expanduser().absolute() / file.path
    lines.append(f"{get} and put it at {place}, or name its folder with root or $FEDLIT_DATA.")
    return "\n".join(lines)
