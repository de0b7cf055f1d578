"""Messages between the coordinator and sites: bytes that are checked before they are used.

A site makes *requests*, one at a time. Each has a key: ``share:<topic>`` before training, ``at:<round>`` when it begins
or begins again, ``round:<number>``, ``done``; and ``round:<number>/<n>`` with its answer to question n of the rule in
that round. The coordinator's *reply* says to which key it belongs (``to``). It is what the site asked for, or the next
question of the rule. A request can be repeated without harm: it gets the same reply. So whoever was killed goes on.
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
    "question_key",
    "question_of",
    "read",
    "round_key",
    "round_of",
    "share_key",
    "topic_of",
]

MOST = 64 * 2**20
"""Bytes of a message before it is known what travels."""

WIRE = 2
"""The version of the wire format: it rises with each change after which two sides would misunderstand each other."""

HEAD = 16 * 2**20
"""Bytes of a message's text, at most."""


def read(content: bytes, most: int) -> dict[str, Any]:
    """Read a message that somebody else has sent.

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
        raise RunError(f"expected a message of fedlit, found {len(content):,} bytes that are not one")
    return unpack(content)


def share_key(topic: str) -> str:
    """Return the key of facts."""
    return f"share:{topic}"


def round_key(number: int) -> str:
    """Return the key of an update.

    Example:
        >>> round_of(round_key(3)), topic_of(share_key("columns")), round_of("done")
        (3, 'columns', None)
    """
    return f"round:{number}"


def round_of(key: str) -> int | None:
    """The number of a round's key, with or without a question behind it; None of another key."""
    kind, _, rest = key.partition("/")[0].partition(":")
    return int(rest) if kind == "round" and _is_number(rest.removeprefix("-")) else None


def question_key(key: str, number: int) -> str:
    """Return the key of the answer to a question within a round.

    Example:
        >>> question_of(question_key(round_key(3), 0)), question_of(round_key(3))
        (0, None)
    """
    return f"{key}/{number}"


def question_of(key: str) -> int | None:
    """The number of the question that a request answers; None where it answers none."""
    _, _, rest = key.partition("/")
    return int(rest) if _is_number(rest) else None


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 10


def topic_of(key: str) -> str | None:
    """The topic of a key of facts; None of another key."""
    kind, _, rest = key.partition(":")
    return rest if kind == "share" else None


def forms_of(state: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Name → (dtype, shape)."""
    return {name: form_of(value) for name, value in state.items()}
