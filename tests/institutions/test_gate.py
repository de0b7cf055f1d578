"""The gate of the coordinator: it bounds bodies in size and time."""

import asyncio
from typing import Any

import pytest

from fedlit.institutions.gate import Gate

BODIES: list[Any] = [
    ([b"12345678"], 200),
    ([b"1234", b"5678"], 200),
    ([b"12345678", b"9"], 413),
    ([b"1234", None], 408),  # the rest never comes
]


@pytest.mark.parametrize(("chunks", "status"), BODIES)
def test_the_gate_bounds_bodies_in_size_and_time(chunks: list[bytes | None], status: int) -> None:
    answered = []
    events = list(enumerate(chunks, 1))

    async def receive() -> dict[str, Any]:
        number, chunk = events.pop(0)
        if chunk is None:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}

    async def send(event: Any) -> None:
        answered.append(event.get("status"))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["body"] == b"12345678"
        await send({"type": "http.response.start", "status": 200})

    gate = Gate(app, frozenset({"/a"}), largest=8, budget=8, seconds=0.05)
    scope = {"method": "POST", "path": "/a"}
    asyncio.run(
        gate({"type": "http", **scope, "headers": [(b"content-encoding", b"gzip")]}, receive, send)
    )
    asyncio.run(gate({"type": "http", **scope}, receive, send))
    assert [answered[0], answered[2]] == [415, status]  # what is compressed is not read
    assert gate._left == 8  # what was held is given back


def test_a_server_that_ends_answers_a_slow_body() -> None:
    answered = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    async def send(event: Any) -> None:
        answered.append(event.get("status"))

    async def end() -> None:
        scope = {"type": "http", "method": "POST", "path": "/a"}
        gate = Gate(lambda *_: asyncio.sleep(0), frozenset({"/a"}))
        request = asyncio.ensure_future(gate(scope, receive, send))
        await asyncio.sleep(0.01)
        request.cancel()
        await request

    asyncio.run(end())
    assert answered[0] == 503
