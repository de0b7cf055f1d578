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
        note: which other files in the folder are not read.
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
            DataError: there is no such file.
        """
        folders = [Path.cwd(), *search_roots(self.root)]
        # an absolute path replaces the folder
        places = [folder / Path(self.path).expanduser() for folder in folders]
        if (place := next(filter(os.path.isfile, places), None)) is not None:
            return place
        found = (
            "a folder; for a client of each file in it write files: FOLDER"
            if os.path.isdir(places[0])
            else "none"
        )
        told = f"expected a file {self.path[:200]!r} in {', '.join(map(str, folders))[:900]}"
        raise DataError(f"client {self.client!r}: {told}, found {found}; correct the path")


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
        ConfigError: nothing is given, or something other than files, or two files for one client.
        DataError: no file matches the pattern, or the folder has none.
    """
    read = dict(read or {})
    ReadOptions.from_dict(read, "read")  # of its own, so that its mistakes are not a client's
    by_client: Mapping[str, Any]
    if isinstance(files, str | Path):
        by_client, note = _found(str(files), root, source, endings)
    else:
        named = bool(files) and isinstance(files, Mapping)
        expect(named, f"{source}: files", "a path, or a file for at least one client", files)
        by_client = files
        note = ""
    made = []
    for client, given in by_client.items():
        check_client_name(client)
        where = f"{source}: files: client {client!r}"
        own: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {"path": given}
        path = own.pop("path", None)
        expect(
            isinstance(path, str | Path), where, "a path, or path: FILE and how it is read", given
        )
        types = own.pop("types", None) or {}
        for column, said in types.items():
            check_declared(column, said, f"{where}: types")
        if "://" in str(path):
            check_url(str(path))
        options = ReadOptions.from_dict({**read, **own}, where)
        made.append(Place(client, str(path), options, types, note, root))
        note = ""  # said once
    check_names([place.client for place in made])
    return made


def _found(
    pattern: str, root: str | None, source: str, endings: Sequence[str]
) -> tuple[dict[str, str], str]:
    """Return the files of a folder or a pattern, or a single file, by client, and which others are
    not read.
    """
    if "://" in pattern:
        return {"all-rows": pattern}, ""
    for folder in (folders := [Path.cwd(), *search_roots(root)]):
        whole = str(folder / Path(pattern).expanduser())
        if os.path.isdir(whole):
            inside = sorted(glob.glob(os.path.join(glob.escape(whole), "[!~]*")))  # no ~$lock.xlsx
            paths = [
                path for path in inside if _without(path, PACKED).lower().endswith(tuple(endings))
            ]
        else:
            inside = paths = (
                [whole] if os.path.isfile(whole) else sorted(glob.glob(whole, recursive=True))
            )
        if paths := [path for path in paths if os.path.isfile(path)]:
            break
    else:
        told = f"expected files that fit {pattern[:200]} ({', '.join(endings)} of a folder)"
        raise DataError(
            f"{source}: files: {told}, found none in {', '.join(map(str, folders))}; correct the "
            "pattern"
        )
    files = dict[str, str]()
    for path in paths:
        client = client_name(_without(name := os.path.basename(path), (*PACKED, *endings)))
        # train.csv, with client_column
        client += "-rows" * (len(paths) == 1 and client.casefold() in RESERVED)
        expect(
            client not in files,
            f"{source}: files",
            f"one file called {client!r}",
            Told("two"),
            f"rename {name}",
        )
        files[client] = path
    left = ", ".join(os.path.basename(path) for path in inside if path not in paths)
    return files, left and f"{source}: files: not read: {left}"


def _without(name: str, endings: Sequence[str]) -> str:
    for ending in endings:
        name = (
            name[: -len(ending)]
            if name.lower().endswith(ending) and len(name) > len(ending)
            else name
        )
    return name
