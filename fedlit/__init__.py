"""Partial federated learning on tables whose columns, classes and distributions differ, on PyTorch
Lightning.

The public names are listed in ``__init__.pyi``. Each is imported when it is first used.
"""

from functools import cache
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


@cache  # jsonargparse asks for the same names hundreds of times for each configuration
def __getattr__(name: str) -> Any:
    from fedlit.errors import did_you_mean

    if name not in __all__:
        raise AttributeError(
            f"module 'fedlit' has no attribute {name!r}.{did_you_mean(name, __all__)}".rstrip(".")
        )
    return _load(name)
