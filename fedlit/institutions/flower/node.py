"""The node of a site: how it reaches the coordinator's SuperLink, over TLS."""

import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.institutions.extra import Lost
from fedlit.institutions.flower.pieces import SLACK, check_pieces, packed, unpacked
from fedlit.institutions.gate import LARGEST

_UNKNOWN_KEY = "2004"
_RUN_IS_OVER = 403
_BEAT = 10.0
"""The seconds after which Flower misses a node that says nothing."""
_AGAIN = 0.1
"""The seconds after which a piece that is not there yet is asked for again."""


class _RunOver(Lost):
    """The run that a request was about is over."""


class Speaker:
    """A node of Flower that carries bytes.

    Args:
        address: ``HOST:PORT`` of the coordinator.
        certificate: the certificate of the authority that signed the coordinator's certificate,
            PEM.
        key: the site's private key, as OpenSSH writes it.
        most: the largest number of bytes of a question.
    """

    def __init__(self, address: str, certificate: bytes, key: bytes, most: int) -> None:
        self.address = address
        self.most = most
        try:
            private: Any = load_ssh_private_key(key, None)
            self._public = public_key_to_bytes(private.public_key())
            signer = NodeAuthHttpInterceptor(private, private.public_key())
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(
                "expected a key made by fedlit site keys, found another file"
            ) from error
        try:
            self._client = FleetHttpClient.from_server_address(
                address, False, certificate, interceptors=[signer]
            )
        except (ValueError, ssl.SSLError) as error:
            raise ConfigError("expected the coordinator's ca.crt, found no certificate") from error
        http = self._client._client
        http.follow_redirects = False  # what is meant for the coordinator goes nowhere else
        http.headers["accept-encoding"] = "identity"
        http.event_hooks = {"response": [self._bounded]}
        self._node: Any = None
        self._beat = 0.0

    def _bounded(self, response: httpx.Response) -> None:
        """Refuse a response that is longer than a piece can be, before it is read. One that is
        compressed may be any length once it is read, so none may be.
        """
        if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
            raise RunError(
                f"{self.address}: expected pieces without content encoding, found {encoding!r:.40}"
            )
        length = response.headers.get("content-length", "")
        if not length.isdecimal():
            # of a coordinator that is ending; nothing of it is read
            raise Lost("an answer of no length")
        if int(length) > LARGEST:
            raise RunError(
                f"{self.address}: expected pieces of at most {LARGEST} bytes, found a longer one"
            )

    def _say(self, method: Callable[[Any], Any], request: Any) -> Any:
        """Send one request. Errors name their cause.

        Raises:
            Lost: it may work later.
            RunError: it will not.
        """
        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            if _UNKNOWN_KEY in error.response.text:
                raise RunError(
                    f"{self.address}: the coordinator does not know this site's key; give it the "
                    ".pub that fedlit site keys made, and let it start again"
                ) from error
            status = error.response.status_code
            lost = _RunOver if status == _RUN_IS_OVER else Lost
            raise lost(f"{status}") from error
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise RunError(
                    f"{self.address}: expected a certificate that the authority of ca.crt signed "
                    f"for this address and for now, found another ({error}); compare the "
                    "fingerprint, the address and this machine's clock with the coordinator's by "
                    "telephone. It makes a new one by fedlit coordinate renew"
                ) from error
            raise Lost(str(error)) from error
        except ValueError as error:
            raise Lost(str(error)) from error

    def connect(self) -> None:
        """Register this node with the coordinator."""
        response = self._say(
            self._client.ActivateNode,
            ActivateNodeRequest(public_key=self._public, heartbeat_interval=_BEAT),
        )
        self._node = Node(node_id=response.node_id)
        self._beat = time.monotonic()

    def beat(self) -> None:
        """Send a heartbeat of this node if it is due."""
        if time.monotonic() - self._beat < _BEAT / 2:
            return
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_BEAT)
        if not self._say(self._client.SendNodeHeartbeat, request).success:
            raise Lost("forgotten")
        self._beat = time.monotonic()

    def hear(self) -> tuple[Any, bytes] | None:
        """Return the newest waiting question, as Flower's message and its bytes; None if there is
        none.
        """
        newest = None
        while True:
            waiting = self._say(self._client.PullMessages, PullMessagesRequest(node=self._node))
            if not waiting.messages_list:
                return newest
            run = waiting.messages_list[0].metadata.run_id
            with suppress(_RunOver):
                newest = self._fetched(run, waiting.message_object_trees[0])

    def _fetched(self, run: int, tree: Any) -> tuple[Any, bytes]:
        """Fetch the pieces of a message, and return the message.

        Raises:
            _RunOver: its run is over.
        """
        pieces: dict[str, bytes] = {}
        size = 0
        for piece in iterate_object_tree(tree):
            pieces[piece.object_id] = self._piece(run, piece.object_id)
            size += len(pieces[piece.object_id])
            if size > self.most + SLACK:
                raise RunError(
                    f"{self.address}: expected a question of at most {self.most} bytes, found a "
                    "longer one; nothing of it was used",
                )
        message, content = self._put_together(tree.object_id, pieces)
        confirm = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=tree.object_id
        )
        self._say(self._client.ConfirmMessageReceived, confirm)
        return message, content

    def _piece(self, run: int, name: str) -> bytes:
        """Fetch a piece, as soon as it is there."""
        request = PullObjectRequest(node=self._node, run_id=run, object_id=name)
        while True:
            self.beat()
            response = self._say(self._client.PullObject, request)
            if not response.object_found:
                raise _RunOver("no such piece")
            if response.object_available:
                content: bytes = response.object_content
                return content
            time.sleep(_AGAIN)

    def _put_together(self, name: str, pieces: dict[str, bytes]) -> tuple[Any, bytes]:
        """Return a message and its bytes from its pieces."""
        try:
            check_pieces(pieces, self.most)
            message: Any = inflate_object_from_contents(name, pieces)
            content = unpacked(message.content)
        except FedlitError:
            raise
        except Exception as error:
            # Flower raises exceptions of its own.
            raise RunError(
                f"{self.address}: expected a message of fedlit, found another ({error})"
            ) from error
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = name
        return message, content

    def answer(self, message: Any, content: bytes) -> None:
        """Send the answer to a question. If the question's run is over, the answer is dropped."""
        reply = Message(packed(content), reply_to=message)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            with suppress(_RunOver):
                self._push(reply)

    def _push(self, reply: Message) -> None:
        """Announce a message, and send the pieces that are asked for."""
        tree = get_object_tree(reply)
        pieces = get_all_nested_objects(reply)
        head = message_to_proto(remove_content_from_message(reply))
        announced = PushMessagesRequest(
            node=self._node, messages_list=[head], message_object_trees=[tree]
        )
        response = self._say(self._client.PushMessages, announced)
        for name in response.objects_to_push:
            self.beat()
            piece = PushObjectRequest(
                node=self._node,
                run_id=reply.metadata.run_id,
                object_id=name,
                object_content=pieces[name].deflate(),
                session_id=response.session_id,
            )
            self._say(self._client.PushObject, piece)

    def leave(self) -> None:
        """Remove this node from the coordinator's list, if the coordinator can be reached."""
        if self._node is None:
            return
        # Whoever ends this process waits for it.
        self._client._client.timeout = 2.0
        request = DeactivateNodeRequest(node_id=self._node.node_id)
        with suppress(Lost, FedlitError):
            self._say(self._client.DeactivateNode, request)
