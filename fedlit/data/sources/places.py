"""Where each client's own table is, and how it is read."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlit.data.files import search_roots
from fedlit.data.reading import ReadOptions, check_url
from fedlit.data.schema.declared import Declared, check_declared
from fedlit.data.sources.base import check_client_name, check_names
from fedlit.errors import ConfigError, DataError

__all__ = ["Files", "Place", "client_name", "find_file", "places_of"]

Files = str | dict[str, str | dict[str, Any]]
"""A folder, a pattern or one file; or each client's name and its file, or its ``path`` and how it is read."""

ENDINGS = (".csv", ".tsv", ".txt", ".data", ".parquet", ".pq", ".feather", ".arrow", ".xlsx", ".xls", ".ods")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")


@dataclass(frozen=True)
class Place:
    """The place of one client's table.

    Attributes:
        client: its name.
        path: a file's path, or the URL of a database.
        options: how it is read.
        types: what is said of its columns.
        note: what was made of its name, or which files beside it are not read.
    """

    client: str
    path: str
    options: ReadOptions
    types: Mapping[str, Declared] = field(default_factory=dict)
    note: str = ""

    @property
    def is_database(self) -> bool:
        """Whether the table is read by SQL."""
        return "://" in self.path


def places_of(
    files: Files | Mapping[str, Any],
    read: Mapping[str, Any] | None,
    root: str | None,
    source: str = "tables",
    endings: Sequence[str] = ENDINGS,
) -> list[Place]:
    """Each client's place, in the order given; of a folder or pattern by name.

    Args:
        files: as in a configuration.
        read: how all are read; what a client says itself goes before it.
        root: a folder in which relative paths are looked up too.
        source: whose ``files`` it is; messages name it.
        endings: of the files that count in a folder.

    Raises:
        ConfigError: nothing, something else than files, or two files of one client.
        DataError: a pattern or folder without files.
    """
    read = dict(read or {})
    ReadOptions.from_dict(read, "read")  # of its own, so that its mistakes are not a client's
    if isinstance(files, str | Path):
        made = _found(str(files), read, root, source, endings)
    else:
        if not files or not isinstance(files, Mapping):
            raise ConfigError(f"{source}: files: expected a path, or a file for at least one client; found {files!r}.")
        made = [_place(client, given, read, source) for client, given in files.items()]
    check_names([place.client for place in made])
    return made


def _place(client: str, given: Any, read: dict[str, Any], source: str, note: str = "") -> Place:
    check_client_name(client)
    where = f"{source}: files: client {client!r}"
    own = dict(given) if isinstance(given, Mapping) else {"path": given}
    if not isinstance(path := own.pop("path", None), str | Path):
        raise ConfigError(f"{where}: expected a path, or path: FILE and how it is read; found {given!r}.")
    types = own.pop("types", None) or {}
    for column, said in types.items():
        check_declared(column, said, f"{where}: types")
    if "://" in str(path):
        check_url(str(path))
    return Place(client, str(path), ReadOptions.from_dict({**read, **own}, where), dict(types), note)


def _found(pattern: str, read: dict[str, Any], root: str | None, source: str, endings: Sequence[str]) -> list[Place]:
    """The files of a folder or pattern, or one file."""
    if "://" in pattern:
        return [_place("all-rows", pattern, read, source)]
    for folder in (folders := _folders(root)):
        whole = str(folder / Path(pattern).expanduser())
        inside = [whole] if os.path.isfile(whole) else sorted(glob.glob(whole, recursive=True))
        paths = [Path(path) for path in inside if os.path.isfile(path)]
        if os.path.isdir(whole):
            inside = sorted(glob.glob(os.path.join(glob.escape(whole), "*")))
            paths = [Path(path) for path in inside if _without(path, PACKED).lower().endswith(tuple(endings))]
            paths = [path for path in paths if path.is_file()]
        if paths:
            break
    else:
        raise DataError(
            f"{source}: files: expected files that fit {pattern[:200]} ({', '.join(endings)} of a folder), found none "
            f"in {', '.join(map(str, folders))}. Correct the pattern."
        )
    left = [Path(path).name for path in inside if Path(path) not in paths]
    made: list[Place] = []
    for path in paths:
        stem = _without(path.name, (*PACKED, *endings))
        client = client_name(stem)
        notes = [f"{client}: named after {path.name}"] if client != stem else []
        notes += [f"{source}: files: not read: {', '.join(left)}"] if left and not made else []
        made.append(_place(client, path, read, source, "; ".join(notes)))
    return made


def _without(name: str, endings: Sequence[str]) -> str:
    for ending in endings:
        name = name[: -len(ending)] if name.lower().endswith(ending) and len(name) > len(ending) else name
    return name


def _folders(root: str | None) -> list[Path]:
    return [Path.cwd(), *search_roots(root)]


def client_name(text: object) -> str:
    """A name that a client can have, made of any text.

    Example:
        >>> client_name("São Paulo (2024)"), client_name(3.0)
        ('Sao_Paulo_2024', '3')
    """
    import unicodedata

    if isinstance(text, float) and text.is_integer():
        text = int(text)
    plain = unicodedata.normalize("NFKD", str(text)).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("_-")
    return name[:64] or "client"


def find_file(client: str, path: str, root: str | None) -> Path:
    """The file itself: in the working directory, in ``root`` (``$FEDLIT_DATA`` if None) or in the cache.

    Raises:
        DataError: there is none.
    """
    places = [folder / Path(path).expanduser() for folder in _folders(root)]  # an absolute path replaces the folder
    for place in places:
        if os.path.isfile(place):
            return place
    found = "a folder; for a client of each file in it write files: FOLDER" if os.path.isdir(places[0]) else "none"
    raise DataError(
        f"client {client!r}: expected a file {path[:200]!r} in {', '.join(str(own)[:200] for own in _folders(root))}, "
        f"found {found}. Correct the path."
    )
