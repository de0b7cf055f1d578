"""Sources: where a federation's tables come from.

Importing this package imports neither torch nor pandas; a source's module is imported when its class is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlit.data.sources.activity import HumanActivity
    from fedlit.data.sources.base import Source
    from fedlit.data.sources.bundled import Bundled
    from fedlit.data.sources.covertype import Covertype
    from fedlit.data.sources.emnist import EMNIST
    from fedlit.data.sources.heart import Heart
    from fedlit.data.sources.openml import OpenML
    from fedlit.data.sources.populations import Populations
    from fedlit.data.sources.reads import Reads
    from fedlit.data.sources.tables import Tables
    from fedlit.data.sources.vehicle import VehicleSensors

__all__ = [
    "EMNIST",
    "SOURCES",
    "Bundled",
    "Covertype",
    "Heart",
    "HumanActivity",
    "OpenML",
    "Populations",
    "Reads",
    "Source",
    "Tables",
    "VehicleSensors",
    "source_class",
]

SOURCES: dict[str, str] = {
    "activity": "fedlit.data.sources.activity.HumanActivity",
    "bundled": "fedlit.data.sources.bundled.Bundled",
    "covertype": "fedlit.data.sources.covertype.Covertype",
    "emnist": "fedlit.data.sources.emnist.EMNIST",
    "heart": "fedlit.data.sources.heart.Heart",
    "openml": "fedlit.data.sources.openml.OpenML",
    "populations": "fedlit.data.sources.populations.Populations",
    "reads": "fedlit.data.sources.reads.Reads",
    "tables": "fedlit.data.sources.tables.Tables",
    "vehicle": "fedlit.data.sources.vehicle.VehicleSensors",
}
"""The sources that ship, by name, with the import path of each class."""

_CLASSES = {path.rpartition(".")[2]: path for path in (*SOURCES.values(), "fedlit.data.sources.base.Source")}


def _load(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def source_class(name: str) -> type[Source]:
    """The class of the source with this name, one of ``SOURCES``.

    >>> source_class("heart").__name__
    'Heart'
    """
    loaded: type[Source] = _load(SOURCES[name])
    return loaded


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return _load(_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
