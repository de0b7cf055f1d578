"""Whether what was read from a checkpoint has the form that fedlit writes, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedlit.errors import ConfigError

__all__ = ["check_form"]

_NEEDED = ("data", "pace", "seed", "engine", "kernels", "threads", "clients")


def check_form(header: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint that lacks what every one has.

    Raises:
        ConfigError: says what is wrong.
    """
    saved = header["fedlit"]
    tensors = header.get("state_dict")
    if not isinstance(saved, Mapping):
        wrong = f"a {type(saved).__name__} in place of the run"
    elif missing := [key for key in _NEEDED if key not in saved]:
        wrong = f"a run without {', '.join(missing)}"
    elif odd := [key for key in ("data", "clients", "encoders", "specs") if not _mapping(saved.get(key))]:
        wrong = f"{odd[0]} of another form"
    elif not all(isinstance(own, Mapping) for key in ("clients", "encoders", "specs") for own in _values(saved, key)):
        wrong = "a client of another form"
    elif not isinstance(tensors, Mapping) or not all(isinstance(own, Tensor) for own in tensors.values()):
        wrong = "other things in place of tensors"
    elif not all(isinstance(header.get(key), int) for key in ("epoch", "global_step")):
        wrong = "no epoch and step"
    else:
        return
    raise ConfigError(f"{path}: expected a file that fedlit wrote, found {wrong}; use another one")


def _mapping(found: Any) -> bool:
    return found is None or isinstance(found, Mapping)


def _values(saved: Mapping[str, Any], key: str) -> list[Any]:
    return list((saved.get(key) or {}).values())
