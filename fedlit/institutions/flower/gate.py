"""Which requests of nodes may pass to the SuperLink, and a report of those of strangers."""

import base64
import time
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedlit.errors import FedlitError
from fedlit.privacy.keys import fingerprint_of


def acceptable(most: int) -> Callable[[str, bytes], bool]:
    """Return a function that decides which requests of sites' nodes may pass.

    Answers must name the node that sends them (Flower checks a node's key, but not that its answers
    are its own), and must not announce more pieces than an answer can have.

    Args:
        most: the largest number of bytes of an answer.

    Returns:
        A function that maps a request's path and body to whether it may pass.
    """
    pieces = most // FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + 16

    def count(tree: Any) -> int:
        return 1 + sum(count(child) for child in tree.children)

    def may(path: str, body: bytes) -> bool:
        if not path.endswith("/push-messages"):
            return True
        try:
            request = PushMessagesRequest.FromString(body)
        except Exception:  # of kinds of protobuf's own
            return False
        sent_by_node = all(
            message.metadata.src_node_id == request.node.node_id
            for message in request.messages_list
        )
        return sent_by_node and sum(map(count, request.message_object_trees)) <= pieces

    return may


class Strangers:
    """Reports requests that are signed with a key that no site has: a site with a new key, or
    somebody else. Flower refuses them without a word here.

    Args:
        sites: maps each site to its public key.
        note: prints a line.
        every: the seconds for which further ones are not reported, because anybody can send them.
    """

    def __init__(
        self, sites: dict[str, Any], note: Callable[[str], object], every: float = 60.0
    ) -> None:
        self._sites = {public_key_to_bytes(key): site for site, key in sites.items()}
        self._note = note
        self._every = every
        self._next = 0.0

    def __call__(self, scope: Mapping[str, Any]) -> None:
        """Look at the head of one request, which is a scope of ASGI."""
        sent = dict(scope.get("headers", ())).get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode())
        if sent is None or time.monotonic() < self._next:
            return
        try:
            key = base64.b64decode(sent, validate=True)
            if key in self._sites:
                return
            fingerprint = fingerprint_of(
                load_pem_public_key(key)
                .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
                .decode()
            )
        except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm, FedlitError):
            fingerprint = "no key"
        self._next = time.monotonic() + self._every
        host = (scope.get("client") or ("somebody",))[0]
        sites = ", ".join(self._sites.values())
        self._note(
            f"{host}: expected the key of one of {sites}, found {fingerprint}; refused. If a site has a "
            "new key, add it by fedlit coordinate add, and start again"
        )
