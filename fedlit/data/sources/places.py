"""The location of each client's table, and how it is read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlit.data.files import search_roots
from fedlit.data.reading import ReadOptions, check_url
from fedlit.data.reading.options import Declared, check_declared
from fedlit.data.sources.base import RESERVED, check_client_name, check_names, client_name
from fedlit.errors import DataError, Told, expect

Files = str | dict[str, str | dict[str, Any]]
"""A folder, a pattern or one file; or each client's name and its file, or its ``path`` and how it
is read."""

ENDINGS = (
    ".csv", ".tsv", ".txt", ".data", ".parquet", ".pq", ".feather", ".arrow", ".xlsx", ".xls", ".ods", ".sav", ".zsav",
    ".dta", ".sas7bdat", ".xpt",
)  # fmt: skip
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")


@dataclass(frozen=True)
class Place:
    """The location of one client's table.

    Attributes:
        client: the name of the client.
        path: the path of a file, or the URL of a database.
        options: the options for reading it.
        types: the declared types of its columns.
        note: A note on other files in the folder, which are not read.
        root: a folder that is searched for a relative path after the working directory;
            ``$FEDLIT_DATA`` if None.
    """

    client: str
    path: str
    options: ReadOptions
    types: Mapping[str, Declared] = field(default_factory=dict)
    note: str = ""
    root: str | None = None

    def find(self) -> Path:
        """Find the file in the working directory, in ``root`` or in the cache.

        Raises:
            DataError: There is no such file.
        """
        folders = [Path.cwd(), *search_roots(self.root)]
        # An absolute path replaces the folder.
        paths = [folder / Path(self.path).expanduser() for folder in folders]
        for path in paths:
            if os.path.isfile(path):
                return path
        problem = "none"
        if os.path.isdir(paths[0]):
            problem = "a folder; for a client of each file in it write files: FOLDER"
        raise DataError(
            f"client {self.client!r}: expected a file {self.path[:200]!r} in "
            f"{', '.join(map(str, folders))[:900]}, found {problem}; correct the path"
        )


MOVE_PREDICTIONS = (
    "predictions that fedlit wrote have such columns: move the file to a folder where no pattern of "
    "files finds it"
)


def are_predictions(columns: Iterable[str]) -> bool:
    """Return whether a table has the columns of a file that ``fedlit predict`` writes.

    Example:
        >>> are_predictions(["row", "probability_ill", "predicted"]), are_predictions(["age", "ill"])
        (True, False)
    """
    return any(name.partition("_")[0] == "predicted" for name in columns)


def places_of(
    files: Files | Mapping[str, Any],
    read: Mapping[str, Any] | None = None,
    root: str | None = None,
    source: str = "tables",
    endings: Sequence[str] = ENDINGS,
) -> list[Place]:
    """Return each client's place, in the given order, or sorted by name for a folder or a pattern.

    Args:
        files: the setting in a configuration.
        read: the options for reading all files; those of a single client take precedence.
        root: a further folder that is searched for relative paths.
        source: the source that has the setting ``files``, for messages.
        endings: the endings of the files to read in a folder.

    Raises:
        ConfigError: The setting is empty or does not name files, or a client has two files.
        DataError: No file matches the pattern, or the folder has none.
    """
    read = dict(read or {})
    # The common options are checked first, so that no client is blamed for their mistakes.
    ReadOptions.from_dict(read, "read")
    by_client: Mapping[str, Any]
    note = ""
    if isinstance(files, str | Path):
        by_client, note = _files_of(str(files), root, source, endings)
    else:
        is_named = bool(files) and isinstance(files, Mapping)
        expect(is_named, f"{source}: files", "a path, or a file for at least one client", files)
        by_client = files
    locations = []
    for client, setting in by_client.items():
        check_client_name(client)
        head = f"{source}: files: client {client!r}"
        settings: dict[str, Any] = {"path": setting}
        if isinstance(setting, Mapping):
            settings = dict(setting)
        path = settings.pop("path", None)
        is_path = isinstance(path, str | Path)
        expect(is_path, head, "a path, or path: FILE and how it is read", setting)
        types = settings.pop("types", None) or {}
        for column, declared in types.items():
            check_declared(column, declared, f"{head}: types")
        if "://" in str(path):
            check_url(str(path))
        options = ReadOptions.from_dict({**read, **settings}, head)
        locations.append(Place(client, str(path), options, types, note, root))
        note = ""  # The note stands at the first client alone.
    check_names([location.client for location in locations])
    return locations


def _files_of(
    pattern: str, root: str | None, source: str, endings: Sequence[str]
) -> tuple[dict[str, str], str]:
    """Return the files of a folder or a pattern, or a single file, by client; and a note on files
    that are not read.
    """
    if "://" in pattern:
        return {"all-rows": pattern}, ""
    folders = [Path.cwd(), *search_roots(root)]
    for folder in folders:
        paths, unread = _matches(str(folder / Path(pattern).expanduser()), endings)
        if paths:
            break
    else:
        raise DataError(
            f"{source}: files: expected files that fit {pattern[:200]} ({', '.join(endings)} of a "
            f"folder), found none in {', '.join(map(str, folders))}; correct the pattern"
        )
    files = dict[str, str]()
    for path in paths:
        name = os.path.basename(path)
        client = client_name(_without(name, (*PACKED, *endings)))
        # A single file may be called train.csv, because client_column names the clients.
        if len(paths) == 1 and client.casefold() in RESERVED:
            client += "-rows"
        expected = f"one file called {client!r}"
        is_new = client not in files
        expect(is_new, f"{source}: files", expected, Told("two"), f"rename {name}")
        files[client] = path
    if not unread:
        return files, ""
    return files, f"{source}: files: not read: {', '.join(map(os.path.basename, unread))}"


def _matches(pattern: str, endings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that a pattern, a file or a folder means, and what else matches it."""
    if os.path.isdir(pattern):
        # A name such as ~$lock.xlsx is that of an open file's lock.
        matches = sorted(glob.glob(os.path.join(glob.escape(pattern), "[!~]*")))
        tables = [
            path for path in matches if _without(path, PACKED).lower().endswith(tuple(endings))
        ]
    elif os.path.isfile(pattern):
        matches = tables = [pattern]
    else:
        matches = tables = sorted(glob.glob(pattern, recursive=True))
    paths = [path for path in tables if os.path.isfile(path)]
    return paths, [path for path in matches if path not in paths]


def _without(name: str, endings: Sequence[str]) -> str:
    for ending in endings:
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
    return name
