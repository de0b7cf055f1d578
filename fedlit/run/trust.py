"""Whether a run's own configuration was written on this account, and whom the user trusts besides.

A run's ``config.yaml`` names classes, so reading it runs code. fedlit signs what it writes, by a key that lies in the
user's configuration folder. What is not signed is data (see :mod:`fedlit.run.foreign`), unless the user says otherwise.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from fedlit.errors import ConfigError
from fedlit.run.config import MOST_BYTES
from fedlit.show.shown import say

__all__ = [
    "FLAG",
    "is_of_run",
    "is_signed",
    "key_file",
    "signed",
    "take",
    "trusted_classes",
    "trusting",
    "trusts",
    "why_not_signed",
]

FLAG = "--trust"
_LINE = "# signed: "
_PASSED_ON = "FEDLIT_KEY_OF_THIS_PROCESS"
_ALL: tuple[str, ...] = ("*",)
_trusted: ContextVar[tuple[str, ...] | None] = ContextVar("fedlit_trusted", default=None)


def key_file() -> Path:
    """Where the key lies: ``$XDG_CONFIG_HOME/fedlit/key``, else ``~/.config/fedlit/key``."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".config") / "fedlit" / "key"


def signed(text: str) -> str:
    """A configuration with the line that says that this account wrote it.

    Args:
        text: of the configuration; an earlier signature is replaced.

    Example:
        >>> is_signed(signed("seed: 8"))
        True
        >>> is_signed(signed("seed: 8").replace("8", "9"))
        False
    """
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_LINE)).rstrip("\n") + "\n"
    return f"{body}{_LINE}{_code(_key_to_sign(), body)}\n"


def is_signed(text: str) -> bool:
    """Whether this account, or a process that this one comes from, signed a configuration as it is."""
    body, found, code = text.rpartition(_LINE)
    if not found or (body and not body.endswith("\n")):
        return False
    return any(hmac.compare_digest(_code(key, body).encode(), code.strip().encode()) for key in _known_keys())


def _code(key: bytes, body: str) -> str:
    return hmac.new(key, b"fedlit configuration 1\n" + body.encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------------- the key


def _known_keys() -> list[bytes]:
    keys = [os.environ[_PASSED_ON].encode()] if os.environ.get(_PASSED_ON) else []
    with suppress(OSError, RuntimeError):
        keys.append(_read(key_file()))
    return keys


def why_not_signed() -> str:
    """Why nothing counts as signed on this account, where that is so; else what may have become of a file."""
    try:
        path = key_file()
        if path.exists():
            _read(path)
    except (OSError, RuntimeError) as error:
        return f"for the key of this account cannot be used: {getattr(error, 'strerror', None) or error}"
    return "for it is not signed on this account: it was copied, changed by hand, or written by a version before 0.6"


def _key_to_sign() -> bytes:
    """The user's, made on first use; where none can be kept one that this process and those it starts have."""
    if os.environ.get(_PASSED_ON):
        return os.environ[_PASSED_ON].encode()
    try:
        path = key_file()
        if not path.exists():
            _make(path)
        return _read(path)
    except (OSError, RuntimeError) as error:  # there is no home, say
        os.environ[_PASSED_ON] = secrets.token_hex(32)
        say(
            f"Runs of this process are not signed for later ones: expected a key in {_where()} that can be made and "
            f"read, found: {getattr(error, 'strerror', None) or error}. Training goes on; later commands on this run "
            f"will ask for {FLAG}. Mend that, or set XDG_CONFIG_HOME to another folder"
        )
        return os.environ[_PASSED_ON].encode()


def _where() -> str:
    try:
        return str(key_file())
    except RuntimeError:
        return "~/.config/fedlit"


def _make(path: Path) -> None:
    """Of two processes that make one at once, both use the first one's."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_name(f".key.{secrets.token_hex(8)}.partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            os.link(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    """The key, if nobody else can have it."""
    if os.name == "posix":
        about = path.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise OSError(0, f"others can read or change it (chmod 600 {path})")
    key = path.read_text(encoding="ascii", errors="replace").strip().encode()
    if len(key) < 64:
        raise OSError(0, f"it is damaged (delete {path})")
    return key


# ---------------------------------------------------------------------- what the user says


@contextmanager
def trusting(*classes: str) -> Iterator[None]:
    """Trust what runs' configurations say inside, though nobody on this account signed them.

    Args:
        *classes: such as ``package.Class``: these beside what is always built; everything if none is named.

    Example:
        >>> with trusting("my.Net"):
        ...     trusted_classes()
        ('my.Net',)
    """
    token = _trusted.set(classes or _ALL)
    try:
        yield
    finally:
        _trusted.reset(token)


def trusted_classes() -> tuple[str, ...]:
    """Those that are named; see :func:`trusting`."""
    known = _trusted.get()
    return () if known is None or known == _ALL else known


def take(args: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """What is typed without ``--trust``, and what it says: None where it is not there, nothing where it is alone.

    Example:
        >>> take(["--config", "mine", "--trust", "--seed", "8"])
        (['--config', 'mine', '--seed', '8'], ())
        >>> take(["--trust", "my.Net", "my.Rule", "--run", "ward"])
        (['--run', 'ward'], ('my.Net', 'my.Rule'))
    """
    rest, found, taking = list[str](), None, False
    for arg in args:
        flag, equals, value = arg.partition("=")
        if flag == FLAG:
            found, taking = (*(found or ()), *([value] if equals else [])), not equals
        elif taking and not arg.startswith("-"):
            found = (*(found or ()), arg)
        else:
            taking = False
            rest.append(arg)
    for name in found or ():
        if "." not in name or not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{FLAG}: expected nothing behind it, or classes such as package.Class, found {name!r}")
    return rest, found


# ---------------------------------------------------------------------- files


def is_of_run(path: Path) -> bool:
    """Whether a configuration lies in a run's folder, where fedlit wrote it."""
    folder = path.parent
    in_place = folder.name.startswith("version_") or any((folder / name).is_dir() for name in ("checkpoints", "parts"))
    return path.name.startswith("config") and in_place


def trusts(path: Path, *, of_run: bool = False) -> bool:
    """Whether a configuration is the user's: it is no run's own, or signed, or the user trusts everything.

    Args:
        path: of the configuration.
        of_run: it is a run's own, wherever it lies.
    """
    if _trusted.get() == _ALL or not (of_run or is_of_run(path)):
        return True
    if path.stat().st_size > MOST_BYTES:
        return False
    return is_signed(path.read_text(encoding="utf-8", errors="replace"))
