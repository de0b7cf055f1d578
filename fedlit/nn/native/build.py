"""Compiles the package's C++ sources with the system's compiler, once per machine, and loads
them.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from torch import Tensor

_log = logging.getLogger(__name__)

FLAGS = ("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-Wno-psabi")


def cache_folder() -> Path:
    """Return the folder of compiled files: ``FEDLIT_CACHE``, or the user's cache folder."""
    folder = os.environ.get("FEDLIT_CACHE")
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedlit"


@cache
def load(source: Path, definitions: tuple[tuple[str, int], ...]) -> ctypes.CDLL | None:
    """Return the compiled source, from the cache if it was compiled before; None, with one warning,
    if impossible.

    The cache's key covers the source, the flags, the compiler and the processor, so that a cache in
    a shared home folder serves machines that differ.

    Args:
        source: a C++ file.
        definitions: names and values for the preprocessor.
    """
    command = (
        os.environ.get("CXX")
        or shutil.which("c++")
        or shutil.which("g++")
        or shutil.which("clang++")
    )
    compiler = shlex.split(command or "")  # CXX may have several words, such as "ccache g++".
    if not compiler:
        _log.warning(
            "no C++ compiler was found (c++, g++, clang++, or CXX): plain torch operations are "
            "used, slower"
        )
        return None
    flags = [*FLAGS, *(f"-D{name}={value}" for name, value in definitions)]
    try:
        return ctypes.CDLL(str(_compiled(source, compiler, flags)))
    except (OSError, subprocess.CalledProcessError) as error:
        _log.warning(
            "%s could not be compiled with %s: plain torch operations are used, slower (%s)",
            source.name,
            command,
            _last_line(error),
        )
        return None


def _compiled(source: Path, compiler: list[str], flags: list[str]) -> Path:
    """Return the library of a source, compiled unless the cache has it."""
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, check=True
    ).stdout
    parts = "\0".join([source.read_text(), *flags, version, _processor()])
    key = hashlib.blake2b(parts.encode(), digest_size=12).hexdigest()
    folder = cache_folder()
    target = folder / f"{source.stem}-{key}.so"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / target.name
        command = [*compiler, *flags, str(source), "-o", str(built)]
        subprocess.run(command, capture_output=True, check=True)
        # Two processes may build at once. Each replaces the file as a whole.
        os.replace(built, target)
    return target


def _last_line(error: OSError | subprocess.CalledProcessError) -> str:
    """Return the last line of a failed compiler's output, or the error's own message."""
    detail = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    if isinstance(detail, bytes):
        detail = detail.decode(errors="replace")
    lines = (detail or "").strip().splitlines()
    return lines[-1] if lines else type(error).__name__


def pointer(tensor: Tensor | None) -> ctypes.c_void_p | None:
    """Return the address of a tensor's memory as an argument. The tensor must be contiguous and
    outlive the call.
    """
    return None if tensor is None else ctypes.c_void_p(tensor.data_ptr())


def _processor() -> str:
    """Return the properties of the processor on which ``-march=native`` depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        properties = ("model name", "flags", "Features")
        return "".join(sorted({line for line in lines if line.startswith(properties)}))
    except OSError:
        return platform.machine() + platform.processor()
