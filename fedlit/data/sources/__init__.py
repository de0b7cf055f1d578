"""The sources of a federation's tables.

Importing this package imports neither torch nor pandas; a source's module is imported when its
class is asked for.
"""

from __future__ import annotations

from typing import Any

import fedlit
from fedlit.data.sources.base import Source

_SHIPPED = (
    *("Bundled", "Covertype", "EMNIST", "Heart", "Hospitals", "HumanActivity", "OpenML"),
    *("Populations", "Rdatasets", "Reads", "Tables", "VehicleSensors"),
)
__all__ = [*_SHIPPED, "Source", "known_sources"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(fedlit, name)


def known_sources() -> dict[str, type[Source]]:
    """Return the sources that ship, by name.

    >>> known_sources()["heart"].__name__
    'Heart'
    """
    sources = [getattr(fedlit, name) for name in _SHIPPED]
    return {source.name: source for source in sorted(sources, key=lambda source: source.name)}
