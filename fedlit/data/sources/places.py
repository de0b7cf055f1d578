"""Where each client's own table is, and how it is read."""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedlit.data.files import search_roots
from fedlit.data.reading import ReadOptions, check_url
from fedlit.data.schema.declared import Declared, check_declared
from fedlit.data.sources.base import check_client_name, check_names
from fedlit.errors import ConfigError, DataError, did_you_mean

__all__ = ["Files", "Place", "clients_of", "files_in", "find_file", "places_of"]

Files = str | dict[str, str | dict[str, Any]]
"""A folder, a pattern or one file; or each client's name and its file, or its ``path`` and how it is read."""

ENDINGS = (".csv", ".tsv", ".txt", ".data", ".parquet", ".pq", ".feather", ".arrow", ".xlsx", ".xls", ".ods")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_TYPES = "types"


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


def places_of(files: Files | Mapping[str, Any], read: Mapping[str, Any] | None, root: str | None) -> list[Place]:
    """Each client's place, in the order given; of a folder or pattern by name.

    Args:
        files: as in a configuration.
        read: how all are read; what a client says itself goes before it.
        root: a folder in which relative paths are looked up too.

    Raises:
        ConfigError: nothing, or something else than files.
        DataError: a pattern or folder without files.
    """
    ReadOptions.from_dict(dict(read or {}), "read")  # of its own, so that its mistakes are not a client's
    if isinstance(files, str | Path):
        return _found(str(files), dict(read or {}), root)
    if not files:
        raise ConfigError("tables: files: expected a file for at least one client, found none.")
    made = []
    for client, given in files.items():
        check_client_name(client)
        own = {"path": given} if isinstance(given, str | Path) else given
        if not isinstance(own, Mapping) or not isinstance(own.get("path"), str | Path):
            raise ConfigError(
                f"tables: files: client {client!r}: expected a path, or path: FILE and how it is read; found {given!r}."
            )
        made.append(_place(client, dict(own), dict(read or {})))
    check_names([place.client for place in made])
    return made


def _place(client: str, own: dict[str, Any], read: dict[str, Any]) -> Place:
    path, types = str(own.pop("path")), own.pop(_TYPES, None) or {}
    where = f"tables: files: client {client!r}"
    for column, said in types.items():
        check_declared(column, said, f"{where}: {_TYPES}")
    known = [own.name for own in fields(ReadOptions)]
    for key in own:
        if key not in known:
            raise ConfigError(
                f"{where}: expected path, {_TYPES} or one of {', '.join(known)}; found {key!r}."
                + did_you_mean(key, ["path", _TYPES, *known])
            )
    options = ReadOptions.from_dict({**read, **own}, where)
    if "://" in path:
        check_url(path)
    return Place(client, path, options, dict(types))


def _found(pattern: str, read: dict[str, Any], root: str | None) -> list[Place]:
    """The files of a folder or pattern, or one file."""
    if "://" in pattern:
        return [_place("all-rows", {"path": pattern}, read)]
    named, left_out = clients_of("tables", pattern, root, ENDINGS, PACKED)
    first, *others = (replace(_place(client, {"path": str(path)}, read), note=note) for client, path, note in named)
    return [replace(first, note="; ".join(filter(None, (first.note, left_out)))), *others]


def clients_of(
    source: str, pattern: str, root: str | None, endings: Sequence[str], packed: Sequence[str]
) -> tuple[list[tuple[str, Path, str]], str]:
    """Client, file and what to say of its name, for each file that :func:`files_in` finds; and its note.

    Raises:
        ConfigError: two files would be one client's.
        DataError: there is no file.
    """
    paths, left_out = files_in(source, pattern, root, endings, packed)
    made, taken = list[tuple[str, Path, str]](), dict[str, Path]()
    for path in paths:
        stem = path.name
        for ending in (*packed, *endings):
            stem = stem[: -len(ending)] if stem.lower().endswith(ending) and len(stem) > len(ending) else stem
        client = client_name(stem)
        check_client_name(client)
        if (other := taken.setdefault(client.casefold(), path)) != path:
            raise ConfigError(
                f"{source}: files: {other} and {path} would both be client {client!r}. Name the clients: "
                "files: {NAME: FILE, ...}."
            )
        made.append((client, path, f"{client}: named after {path.name}" if client != stem else ""))
    return made, left_out


def files_in(
    source: str, pattern: str, root: str | None, endings: Sequence[str], packed: Sequence[str]
) -> tuple[list[Path], str]:
    """The files of a folder or pattern, or one file, by name; and a note of those that are not read, if any.

    Args:
        source: whose ``files`` it is; messages name it.
        pattern: looked up in the working directory, in ``root`` (``$FEDLIT_DATA`` if None) and in the cache.
        root: a folder.
        endings: of the files that count in a folder.
        packed: endings that may follow.

    Raises:
        DataError: there is none.
    """
    folders = [Path.cwd(), *search_roots(root)]
    given = Path(pattern).expanduser()
    for folder in folders:
        try:
            whole = folder / given
            if whole.is_dir():
                inside = sorted(whole.iterdir())
                paths = [path for path in inside if path.is_file() and _ends(path.name.lower(), tuple(endings), packed)]
                if not paths:
                    raise DataError(
                        f"{source}: files: expected {source} in {whole} ({', '.join(endings)}), found none. Name the "
                        "files."
                    )
            elif whole.is_file():  # its name may have what means something in patterns
                inside = paths = [whole]
            else:
                inside = [Path(path) for path in sorted(glob.glob(str(whole), recursive=True))]
                paths = [path for path in inside if path.is_file()]
        except OSError as error:
            raise DataError(f"{source}: files: {pattern[:200]} cannot be read: {error.strerror or error}.") from error
        if paths:
            left = [f"{path.name} ({_kind(path)})" for path in inside if path not in paths and path.name[0] != "."]
            return paths, f"{source}: files: not read: {', '.join(left)}" if left else ""
    tried = "" if given.is_absolute() else "\n  ".join([" Looked in:", *map(str, folders)])
    raise DataError(
        f"{source}: files: expected files that fit {pattern[:200]}, found none. Correct the pattern.{tried}"
    )


def _kind(path: Path) -> str:
    """Describe a path that is not read."""
    if path.is_dir():
        return "a folder"
    return "another ending" if path.is_file() else "a link that leads nowhere" if path.is_symlink() else "no file"


def _ends(name: str, endings: tuple[str, ...], packed: Sequence[str]) -> bool:
    for ending in packed:
        name = name.removesuffix(ending)
    return not name.startswith(".") and name.endswith(endings)


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
    given = Path(path).expanduser()
    folders = [Path.cwd(), *search_roots(root)]
    for folder in folders:
        try:
            if (folder / given).is_file():  # an absolute path replaces the folder
                return folder / given
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(
                f"client {client!r}: the path {path[:80]}... cannot be used: {reason}. Correct it."
            ) from error
        if (folder / given).is_dir():
            raise DataError(
                f"client {client!r}: expected a file, found the folder {folder / given}. Name one file; or write "
                f"files: {path} for a client of each file in it."
            )
    tried = "" if given.is_absolute() else "\n  ".join([" Looked in:", *map(str, folders)])
    raise DataError(f"client {client!r}: expected a file {given}, found none. Correct the path.{tried}")
