"""Limits what can be reached of Flower's SuperLink: paths, sizes, and only answers that are a
node's own.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LARGEST = 8 * 2**20
"""Bytes of one request or response: Flower cuts messages into pieces of 5 MiB."""

SECONDS = 20.0
"""The time within which a request's body must have arrived."""

BUDGET = 16 * LARGEST
"""Bytes of bodies that are held at once. Beyond that, a request is answered with 503, and the
sender tries again."""

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
"""The paths that a site's node may request. Flower's apps are not among them, so no code leaves the
SuperLink."""
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
"""The paths that the coordinator may request."""

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


class Gate:
    """Lets requests of some paths and of bounded size through to an application.

    All other requests are answered by 404 (path), 415 (a content encoding, by which a small body
    may become a large one), 413 (size), 408 (a body that takes too long) or 503 (too many bodies at
    once).

    Args:
        app: an ASGI application.
        paths: the paths that are let through.
        allowed: decides from a request's path and body whether it may pass, in addition; all may if
            None.
        largest: the largest number of bytes of a body.
        budget: the largest number of bytes of all bodies that are held at once.
        seconds: the time within which a body must have arrived, in seconds.
        watch: called with the scope of each request that is passed on.
    """

    def __init__(
        self,
        app: _App,
        paths: frozenset[str],
        allowed: Callable[[str, bytes], bool] | None = None,
        largest: int = LARGEST,
        budget: int = BUDGET,
        seconds: float = SECONDS,
        watch: Callable[[_Scope], None] = lambda scope: None,
    ) -> None:
        self._app = app
        self._paths = paths
        self._allowed = allowed
        self._largest = largest
        self._left = budget
        self._seconds = seconds
        self._watch = watch

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await _refuse(scope, send, 404)
            return
        if any(
            name == b"content-encoding" and value != b"identity"
            for name, value in scope.get("headers", ())
        ):
            await _refuse(scope, send, 415)
            return
        body = bytearray()
        try:
            status = await self._read(receive, body)
            if (
                status == 200
                and self._allowed is not None
                and not self._allowed(scope["path"], bytes(body))
            ):
                status = 403
            if status == 200:
                self._watch(scope)
                await self._pass(scope, bytes(body), receive, send)
        finally:
            self._left += len(body)
        if status not in (200, 0):
            await _refuse(scope, send, status)

    async def _read(self, receive: _Receive, body: bytearray) -> int:
        """Gather a body; the status of the answer, 0 where nobody waits for one."""
        loop = asyncio.get_running_loop()
        more_to_come = True
        until = loop.time() + self._seconds
        while more_to_come:
            try:
                event = await asyncio.wait_for(receive(), until - loop.time())
            except TimeoutError:
                return 408
            except asyncio.CancelledError:  # the server ends while a slow body arrives
                return 503
            if event["type"] == "http.disconnect":
                return 0
            chunk = event.get("body", b"")
            more_to_come = event.get("more_body", False)
            if len(body) + len(chunk) > self._largest:
                return 413
            if len(chunk) > self._left:
                return 503
            body += chunk
            self._left -= len(chunk)
        return 200

    async def _pass(self, scope: _Scope, body: bytes, receive: _Receive, send: _Send) -> None:
        passed = False

        async def again() -> _Scope:
            nonlocal passed
            if passed:
                return await receive()
            passed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)


async def _refuse(scope: _Scope, send: _Send, status: int) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"connection", b"close")]}
    )
    await send({"type": "http.response.body", "body": b""})
