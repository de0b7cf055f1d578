"""Partial federated learning on tables whose columns, classes and distributions differ, on PyTorch
Lightning.

The public names are listed in ``__init__.pyi``. Each is imported when it is first used.
"""

from functools import cache
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class _UnknownName(AttributeError):
    """A name that fedlit does not have; the names that are like it are looked for when the message is
    read, because jsonargparse asks for many names that it does not need.
    """

    def __str__(self) -> str:
        from fedlit.errors import did_you_mean

        hint = did_you_mean(self.name, __all__)
        return f"module 'fedlit' has no attribute {self.name!r}.{hint}".rstrip(".")


@cache  # jsonargparse asks for the same names hundreds of times for each configuration
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise _UnknownName(name=name)
    return _load(name)
