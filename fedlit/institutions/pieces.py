"""Bytes as what Flower's messages carry, which it sends in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedlit.errors import RunError

if TYPE_CHECKING:
    from flwr.app import RecordDict

__all__ = ["LARGEST", "SLACK", "packed", "unpacked"]

LARGEST = 8 * 2**20
"""Bytes of one request or response: Flower cuts messages into pieces of 5 MiB."""
SLACK = 2**20
"""Bytes that a message may have beyond its content."""
_KIND = "fedlit"


def packed(content: bytes) -> RecordDict:
    """Bytes as what Flower's messages carry."""
    from flwr.app import Array, ArrayRecord, RecordDict

    return RecordDict({_KIND: ArrayRecord({_KIND: Array("uint8", (len(content),), _KIND, content)})})


def unpacked(record: RecordDict) -> bytes:
    """The inverse of :func:`packed`. Nothing is decoded: what Flower would read as an array is taken as it is.

    Raises:
        RunError: this is another message.
    """
    try:
        array: Any = record[_KIND][_KIND]
        return bytes(array.data)
    except (KeyError, AttributeError, TypeError) as error:
        raise RunError("expected a message of fedlit, found another; do all run the same version?") from error
