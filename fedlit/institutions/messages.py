"""What coordinator and sites say to each other, as bytes that are checked before they are believed.

A site *says* something under a key: ``share:<topic>`` before training, ``at:<round>`` when it begins or begins again,
``round:<number>``, ``done``. The coordinator's *question* carries the reply to what the site said last, and is answered
by what the site says next. So every question can be asked again, and everything said can be said again, without harm.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.wire import pack, unpack
from fedlit.sharing import form_of

__all__ = [
    "HEAD",
    "MOST",
    "WIRE",
    "forms_of",
    "pack",
    "read",
    "round_key",
    "round_of",
    "share_key",
    "topic_of",
]

MOST = 64 * 2**20
"""Bytes of a message before it is known what travels."""

WIRE = 1
"""The version of the wire format: it rises with each change after which two sides would misunderstand each other."""

HEAD = 16 * 2**20
"""Bytes of a message's text, at most."""


def read(content: bytes, most: int) -> dict[str, Any]:
    """A message that somebody else has sent.

    Args:
        content: its bytes.
        most: how many they may be.

    Raises:
        RunError: too many, or no message.

    Example:
        >>> read(pack({"key": "done"}), MOST)
        {'key': 'done'}
    """
    if len(content) > most:
        raise RunError(f"expected a message of at most {most:,} bytes, found {len(content):,}")
    size = struct.unpack(">Q", content[:8])[0] if len(content) >= 8 else -1
    if not 0 <= size <= min(HEAD, len(content) - 8):
        raise RunError(f"expected a message of fedlit, found {len(content):,} bytes that are none")
    return unpack(content)


def share_key(topic: str) -> str:
    """Under which facts are said."""
    return f"share:{topic}"


def round_key(number: int) -> str:
    """Under which an update is said.

    Example:
        >>> round_of(round_key(3)), topic_of(share_key("columns")), round_of("done")
        (3, 'columns', None)
    """
    return f"round:{number}"


def round_of(key: str) -> int | None:
    """The number of a round's key; None of another key."""
    kind, _, rest = key.partition(":")
    digits = rest.removeprefix("-")
    return int(rest) if kind == "round" and digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def topic_of(key: str) -> str | None:
    """The topic of a key of facts; None of another key."""
    kind, _, rest = key.partition(":")
    return rest if kind == "share" else None


def forms_of(state: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name → (dtype, shape)."""
    return {name: form_of(value) for name, value in state.items()}
