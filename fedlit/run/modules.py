"""Finds a user's own modules, beside the configuration that names them and in the working
directory.

Installed modules come first, so no file in a folder can take the place of one. A folder is searched
only if the user names a module in it, and never if it holds a file that somebody else may have
written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import all_suffixes
from importlib.util import find_spec
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.run.allowed import ALL, trusted
from fedlit.run.arguments import Asked

_INSTALLED = {path.partition(".")[0] for path in ALL}
"""Packages of classes that every configuration may name: a folder of the same name is never
meant."""
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


def find_modules(asked: Asked) -> None:
    """Let Python find the modules that the user names, after all installed ones: those beside the
    user's own configurations, and in the working directory.

    Args:
        asked: a command and its configuration.

    Raises:
        ConfigError: such a module has the name of an installed one, which Python would import in
            its place.
    """
    closed = {path.parent.resolve() for path in asked.foreign}
    folders = dict.fromkeys(path.parent.resolve() for path in asked.own)
    folders[Path.cwd().resolve()] = None
    candidates = {*filter(_DOTTED.fullmatch, asked.words), *trusted()}
    for folder in folders:
        if folder in closed or folder in {Path(entry or ".").resolve() for entry in sys.path}:
            continue
        named = {
            candidate.partition(".")[0]
            for candidate in candidates
            if not (folder / candidate).is_file()
        } - _INSTALLED
        beside = _used(folder, named)
        for name, file in beside.items():
            _check_single(name, file)
        if beside:
            sys.path.append(str(folder))


def _file_of(folder: Path, name: str) -> Path | None:
    """Return the file of a module in a folder; the folder itself for a package without
    ``__init__.py``.
    """
    package = folder / name
    for suffix in all_suffixes():
        for file in (package / f"__init__{suffix}", folder / f"{name}{suffix}"):
            if file.is_file():
                return file
    if any(package.glob("*.py")) or any(package.glob("*/*.py")):
        return package
    return None


def _used(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Map the named modules, and those in the same folder that they import, to their files."""
    files = dict[str, Path]()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        file = _file_of(folder, name)
        if file is None or name in files:
            continue
        files[name] = file
        for source in _sources(file):
            waiting += _imports(source)
    return files


def _sources(file: Path) -> Iterator[Path]:
    """Yield the file of a module, or all Python files of its package."""
    if file.is_dir():
        yield from file.rglob("*.py")
    elif file.stem == "__init__":
        yield from file.parent.rglob("*.py")
    else:
        yield file


def _imports(source: Path) -> Iterator[str]:
    """Yield the first names of all modules that a file imports; none if Python cannot read it."""
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):  # The import will raise it again, with the reason.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _check_single(name: str, file: Path) -> None:
    try:
        installed = find_spec(name)
    except (ImportError, ValueError):
        return
    if installed is None or not installed.origin or file.is_dir():
        return
    if Path(installed.origin).resolve() != file.resolve():
        location = installed.origin
        if location in ("built-in", "frozen"):
            location = "Python itself"
        raise ConfigError(
            f"{name}: expected one module of this name, found {file} and the one in {location}, which "
            "Python would import; rename yours"
        )
