"""What of Flower's SuperLink can be reached: paths, sizes, and answers that are a node's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fedlit.institutions.pieces import LARGEST

__all__ = ["FLEET", "RUNTIME", "Gate", "acceptable"]

FLEET = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""What a site's node may ask. Apps are among it not: no code leaves the SuperLink."""
RUNTIME = frozenset(
    f"/v1/runtime/{name}"
    for name in (
        "get-nodes",
        "push-messages",
        "pull-messages",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""What the ServerApp may ask."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class Gate:
    """Lets requests of some paths and of bounded size through to an application; all others are answered 404 or 413.

    Args:
        app: an ASGI application.
        paths: that are let through.
        allowed: whether a request's path and body may pass, beyond that; all may if None.
        largest: bytes of a body.
    """

    def __init__(
        self,
        app: _App,
        paths: frozenset[str],
        allowed: Callable[[str, bytes], bool] | None = None,
        largest: int = LARGEST,
    ) -> None:
        self._app, self._paths, self._allowed, self._largest = app, paths, allowed, largest

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await _refuse(scope, send, 404)
            return
        body, more = bytearray(), True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
            if len(body) > self._largest:
                await _refuse(scope, send, 413)
                return
        if self._allowed is not None and not self._allowed(scope["path"], bytes(body)):
            await _refuse(scope, send, 403)
            return
        given = False

        async def again() -> _Scope:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        await self._app(scope, again, send)


async def _refuse(scope: _Scope, send: _Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send({"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": b""})


def acceptable(most: int) -> Callable[[str, bytes], bool]:
    """Which requests of sites' nodes may pass.

    Answers must name the node that sends them (Flower checks a node's key, but not that its answers are its own), and
    must not announce more pieces than an answer can have.

    Args:
        most: bytes of an answer.

    Returns:
        A request's path and body → whether it may.
    """
    from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as PIECE
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    pieces = most // PIECE + 16

    def count(tree: Any) -> int:
        return 1 + sum(count(child) for child in tree.children)

    def may(path: str, body: bytes) -> bool:
        if not path.endswith("/push-messages"):
            return True
        try:
            request = PushMessagesRequest.FromString(body)
        except Exception:  # of kinds of protobuf's own
            return False
        own = all(message.metadata.src_node_id == request.node.node_id for message in request.messages_list)
        return own and sum(map(count, request.message_object_trees)) <= pieces

    return may
