"""A site's node, as Flower's SuperLink sees it: bytes come and go, and nothing is run that is sent."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fedlit.errors import FedlitError, RunError
from fedlit.institutions.courier import MOST, Courier

if TYPE_CHECKING:
    import httpx

__all__ = ["EXITS", "Lost", "Refusal", "Speaker"]

EXITS = {"settings": 2, "key": 3, "expired": 4, "authority": 5, "unreachable": 6, "limit": 7, "site": 8, "clock": 9}
"""Why it ended → exit status. 0: it was told to."""

_UNKNOWN_KEY = "2004"
_BEAT = 10.0
_AGAIN = 0.1


class Refusal(FedlitError):
    """Speaking makes no sense.

    Args:
        why: a key of :data:`EXITS`.
        message: for people.
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why, self.exit_status = why, EXITS[why]


class Lost(Exception):
    """The coordinator is away, or has forgotten this node: connect again."""


class Speaker:
    """A node of Flower's that carries bytes.

    Args:
        address: ``HOST:PORT`` of the coordinator.
        certificate: of the authority that signed the coordinator's certificate, PEM.
        key: the site's private key, as OpenSSH writes it.
        courier: to the site's process.
        most: bytes of a question.
    """

    def __init__(self, address: str, certificate: bytes, key: bytes, courier: Courier, most: int = MOST) -> None:
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        self.address, self.courier, self.most = address, courier, most
        try:
            private: Any = load_ssh_private_key(key, None)
            self._public = public_key_to_bytes(private.public_key())
            signer = NodeAuthHttpInterceptor(private, private.public_key())
        except (ValueError, TypeError, AttributeError) as error:
            raise Refusal("key", "expected a key made by fedlit site keys, found another file") from error
        try:
            self._client = FleetHttpClient.from_server_address(address, False, certificate, interceptors=[signer])
        except (ValueError, ssl.SSLError) as error:
            raise Refusal("authority", "expected the coordinator's ca.crt, found no certificate") from error
        http = self._client._client
        http.follow_redirects = False  # what is meant for the coordinator goes nowhere else
        http.event_hooks = {"response": [self._bounded]}
        self._node: Any = None
        self._beat = 0.0

    def _bounded(self, response: httpx.Response) -> None:
        """No answer is read that is longer than a piece can be."""
        from fedlit.institutions.pieces import LARGEST

        length = response.headers.get("content-length", "")
        if not length.isdecimal():
            raise Lost("an answer of no length")  # of a coordinator that is ending; nothing of it is read
        if int(length) > LARGEST:
            raise Refusal("limit", f"{self.address}: expected pieces of at most {LARGEST} bytes, found a longer one")

    def _say(self, method: Callable[[Any], Any], request: Any) -> Any:
        """One request; what goes wrong is told by its cause.

        Raises:
            Lost: it may work later.
            Refusal: it will not.
        """
        import httpx

        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            if _UNKNOWN_KEY in error.response.text:
                raise Refusal("key", self._wrong_key()) from error
            raise Lost(f"{error.response.status_code}") from error
        except httpx.TransportError as error:
            raise (self._of_certificate(str(error)) or Lost(str(error))) from error
        except ValueError as error:
            raise Lost(str(error)) from error

    def _wrong_key(self) -> str:
        return (
            f"{self.address}: the coordinator does not know this site's key; give it the .pub that fedlit site keys "
            "made, and let it start again"
        )

    def _of_certificate(self, told: str) -> Refusal | None:
        if "CERTIFICATE_VERIFY_FAILED" not in told:
            return None
        if "expired" in told or "not yet valid" in told:
            return Refusal(
                "expired",
                f"{self.address}: expected a certificate that is valid now, found one that is not; the coordinator "
                "makes a new one by fedlit coordinate renew. Is this machine's clock right?",
            )
        if "mismatch" in told or "doesn't match" in told:
            return Refusal(
                "authority",
                f"{self.address}: expected a certificate for this address, found one for another; write the address "
                "that the coordinator gave",
            )
        return Refusal(
            "authority",
            f"{self.address}: expected a certificate signed by the authority of ca.crt, found another; compare its "
            "fingerprint with the coordinator's by telephone",
        )

    def connect(self) -> None:
        """Enter the coordinator's list."""
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.proto.node_pb2 import Node

        response = self._say(
            self._client.ActivateNode, ActivateNodeRequest(public_key=self._public, heartbeat_interval=_BEAT)
        )
        self._node, self._beat = Node(node_id=response.node_id), time.monotonic()

    def beat(self) -> None:
        """Say that this node is there, where it is time."""
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        if time.monotonic() - self._beat < _BEAT / 2:
            return
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_BEAT)
        if not self._say(self._client.SendNodeHeartbeat, request).success:
            raise Lost("forgotten")
        self._beat = time.monotonic()

    def hear(self) -> tuple[Any, bytes] | None:
        """The newest question that waits, as Flower's message and its bytes; None where none does."""
        from flwr.proto.fleet_pb2 import PullMessagesRequest

        newest = None
        while True:
            heard = self._say(self._client.PullMessages, PullMessagesRequest(node=self._node))
            if not heard.messages_list:
                return newest
            own = self._whole(heard.messages_list[0].metadata.run_id, heard.message_object_trees[0])
            newest = own if own is not None else newest

    def _whole(self, run: int, tree: Any) -> tuple[Any, bytes] | None:
        """A message whose pieces are fetched; None where its run is over."""
        from flwr.app import Message
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        from fedlit.institutions.pieces import SLACK, unpacked

        pieces: dict[str, bytes] = {}
        size = 0
        for piece in iterate_object_tree(tree):
            while True:
                self.beat()
                request = PullObjectRequest(node=self._node, run_id=run, object_id=piece.object_id)
                try:
                    found = self._say(self._client.PullObject, request)
                except Lost as error:
                    if str(error) == "403":
                        return None
                    raise
                if not found.object_found:
                    return None
                if found.object_available:
                    break
                time.sleep(_AGAIN)
            pieces[piece.object_id] = found.object_content
            size += len(found.object_content)
            if size > self.most + SLACK:
                raise Refusal(
                    "limit",
                    f"{self.address}: expected a question of at most {self.most} bytes, found a longer one; nothing "
                    "of it was used",
                )
        try:
            message: Any = inflate_object_from_contents(tree.object_id, pieces)
            content = unpacked(message.content)
        except FedlitError:
            raise
        except Exception as error:  # Flower raises kinds of its own
            raise RunError(f"{self.address}: expected a message of fedlit, found another ({error})") from error
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id
        confirm = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=tree.object_id)
        self._say(self._client.ConfirmMessageReceived, confirm)
        return message, content

    def answer(self, message: Any, content: bytes) -> None:
        """Send the answer to a question. Where the question's run is over, nobody waits for it."""
        from flwr.app import Message
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            no_object_id_recompute,
        )

        from fedlit.institutions.pieces import packed

        reply = Message(packed(content), reply_to=message)
        run = reply.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree, pieces = get_object_tree(reply), get_all_nested_objects(reply)
            head = message_to_proto(remove_content_from_message(reply))
            request = PushMessagesRequest(node=self._node, messages_list=[head], message_object_trees=[tree])
            try:
                told = self._say(self._client.PushMessages, request)
                for name in told.objects_to_push:
                    self.beat()
                    piece = PushObjectRequest(
                        node=self._node,
                        run_id=run,
                        object_id=name,
                        object_content=pieces[name].deflate(),
                        session_id=told.session_id,
                    )
                    self._say(self._client.PushObject, piece)
            except Lost as error:
                if str(error) != "403":
                    raise

    def leave(self) -> None:
        """Leave the coordinator's list, if it can be reached."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        if self._node is not None:
            self._client._client.timeout = 2.0  # whoever ends this process waits
            try:
                self._say(self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._node.node_id))
            except (Lost, Refusal):
                return
