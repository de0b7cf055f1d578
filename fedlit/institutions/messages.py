"""Messages between the coordinator and sites: bytes that are checked before they are used.

A site makes *requests*, one at a time. Each has a key: ``share:<topic>`` before training, ``at:<round>`` when the site
begins or begins again, ``round:<number>``, ``done``; and ``round:<number>/<n>`` with its answer to question n of the
rule in that round. The coordinator's *reply* names the key that it belongs to (``to``). It is what the site asked for,
or the next question of the rule. A request can be repeated without harm, because it gets the same reply. So a process
that was killed can continue.
"""

import struct
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedlit.errors import RunError
from fedlit.exchange.wire import unpack
from fedlit.sharing import form_of

MOST = 64 * 2**20
"""The largest number of bytes of a message before it is known which tensors are sent."""

WIRE = 2
"""The version of the wire format: it rises with each change after which two sides would misunderstand each other."""

HEAD = 16 * 2**20
"""The largest number of bytes of a message's text."""


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
    """Return the number of the round in a key, with or without a question after it; None for another key."""
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
    """Return the number of the question that a request answers; None if it answers none."""
    _, _, rest = key.partition("/")
    return int(rest) if _is_number(rest) else None


def _is_number(digits: str) -> bool:
    return digits.isascii() and digits.isdigit() and len(digits) < 10


def topic_of(key: str) -> str | None:
    """Return the topic in a key of facts; None for another key."""
    kind, _, rest = key.partition(":")
    return rest if kind == "share" else None


def forms_of(state: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Map each name to the (dtype, shape) of its tensor."""
    return {name: form_of(value) for name, value in state.items()}
