"""Bytes as Flower carries them: as a message of arrays, whose pieces travel one by one."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.serde_utils import metadata_from_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedlit.errors import RunError

SLACK = 2**20
"""The bytes that a message may have in addition to its content."""
LIFE = 6 * 3600.0
"""The seconds for which Flower keeps a question."""
_KIND = "fedlit"


def packed(content: bytes) -> RecordDict:
    """Return bytes in the form that Flower's messages carry."""
    return RecordDict(
        {_KIND: ArrayRecord({_KIND: Array("uint8", (len(content),), _KIND, content)})}
    )


def unpacked(record: RecordDict) -> bytes:
    """Return the bytes of a message of :func:`packed`. Nothing is decoded: what Flower would read
    as an array is taken as it is.

    Raises:
        RunError: it is another message.
    """
    try:
        array: Any = record[_KIND][_KIND]
        return bytes(array.data)
    except (KeyError, AttributeError, TypeError) as error:
        raise RunError(
            "expected a message of fedlit, found another; do all run the same version?"
        ) from error


def check_pieces(pieces: Mapping[str, bytes], most: int) -> None:
    """Check, before anything is put together, how long the arrays of a message will be. Flower's
    array names the chunks that it consists of, each any number of times, so that a small message
    can become a large array.

    Args:
        pieces: the pieces of the message as Flower sends them, by their names.
        most: the largest number of bytes of all arrays together.

    Raises:
        RunError: the message is longer.
    """
    size = 0
    names = 0
    for piece in pieces.values():
        kind, chunks, _ = get_object_head_values_from_object_content(piece)
        if kind == ArrayChunk.__qualname__:
            continue
        names += len(piece)
        if names > SLACK:
            raise RunError(
                f"expected at most {SLACK} bytes beside the content of a message, found more"
            )
        if kind == Array.__qualname__:
            numbers = json.loads(get_object_body(piece, Array))["arraychunk_ids"]
            size += sum(len(pieces[chunks[number]]) for number in numbers)
        if size > most + SLACK:
            raise RunError(
                f"expected a message of at most {most} bytes, found one that becomes longer"
            )


def put_together(name: str, pieces: dict[str, bytes], most: int) -> Any:
    """Return a site's message from its pieces. One that cannot be put together, or would be too
    long, becomes a message without content, which is refused like any other that is not fedlit's:
    it must not end the coordinator.

    Args:
        name: the name of the piece that heads the message.
        pieces: the pieces of the message as Flower sends them, by their names.
        most: the largest number of bytes of a message.
    """
    head = pieces.get(name, b"")
    try:
        check_pieces(pieces, most)
        return inflate_object_from_contents(name, pieces)
    except Exception:  # Flower raises kinds of its own
        return _without_content(head)


def _without_content(head: bytes) -> Message:
    """Return a message that has nothing but what its head says of the message to which it
    replies.
    """
    metadata = ProtoMetadata(message_type="query", ttl=LIFE)
    with suppress(Exception):  # if it replies to nothing, its site counts as silent
        metadata.reply_to_message_id = ProtoMessage.FromString(
            get_object_body(head, Message)
        ).metadata.reply_to_message_id
    return make_message(metadata=metadata_from_proto(metadata), content=RecordDict())
