"""The classes that a configuration may name, and why one that it names is not there."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any

import fedlit
from fedlit.errors import did_you_mean

__all__ = ["imported", "lightnings", "ours", "subclasses"]


def subclasses(base: type) -> list[type]:
    """Of a class, and of these."""
    children: list[type] = base.__subclasses__()
    return [own for child in children for own in (child, *subclasses(child))]


def ours(classes: tuple[type, ...]) -> dict[str, type]:
    """Classes of a kind that come with fedlit, by the name by which a configuration names them."""
    named = {name: getattr(fedlit, name) for name in dir(fedlit)}
    return {
        f"fedlit.{name}": own
        for name, own in named.items()
        if inspect.isclass(own) and issubclass(own, classes) and not inspect.isabstract(own)
    }


def lightnings(classes: tuple[type, ...]) -> list[str]:
    """Classes of a kind that come with Lightning: a configuration need not say their module."""
    all_of = {own.__name__: own for base in classes for own in subclasses(base)}
    public = {name: own for name, own in all_of.items() if not name.startswith(("_", "Dummy"))}
    return sorted(
        name
        for name, own in public.items()
        if own.__module__.startswith("lightning.pytorch.") and not inspect.isabstract(own)
    )


def imported(path: str, classes: tuple[type, ...]) -> tuple[Any, str]:
    """What a class path means; None and what was found instead."""
    module, _, name = path.rpartition(".")
    if not module:
        known = {own.__name__: own for base in classes for own in (base, *subclasses(base))}
        if name in known:
            return known[name], ""
        own_names = [own.removeprefix("fedlit.") for own in ours(classes)]
        return None, f"found {path}.{did_you_mean(name, own_names, 'fedlit.') or did_you_mean(name, known)}"
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if module == missing or module.startswith(f"{missing}."):
            folders = f"{Path.cwd()} and beside the configuration"
            return None, f"found {path}, whose module {missing} does not exist (looked in {folders})"
        return None, f"found that {module} needs a module that is not installed: {missing}{_line(error, module)}"
    except Exception as error:
        return None, f"found an error in {module}: {type(error).__name__}: {error}{_line(error, module)}"
    if not hasattr(home, name):
        return None, f"found {path}, which {module} does not have.{did_you_mean(name, dir(home), f'{module}.')}"
    return getattr(home, name), ""


def _line(error: Exception, module: str) -> str:
    """File and line of an error in a person's own module."""
    if isinstance(error, SyntaxError):
        return "" if "line" in str(error) else f" ({error.filename}, line {error.lineno})"
    frames = [own for own in traceback.extract_tb(error.__traceback__) if "importlib" not in own.filename]
    own = [frame for frame in frames if not frame.filename.startswith((sys.prefix, str(Path(__file__).parents[1])))]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
