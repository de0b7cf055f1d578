"""Flower's SuperLink in a process of its own (see :mod:`fedlit.institutions.child`).

It serves two addresses. The open one has TLS and passes only what a site's node needs. The one for
the coordinator is bound to this machine, needs a token, and passes only what the coordinator needs.
Neither serves Flower's control interface, through which anyone who reaches it may start programs.
Everything is held in memory; after a restart, the coordinator asks again.

It sends its parent the address at which the coordinator reaches it, the run that it has begun, and
the token for that run.
"""

import argparse
import asyncio
import errno
import json
import socket
import time
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, RunError
from fedlit.institutions.certificates import read_public_key
from fedlit.institutions.child import Parent
from fedlit.institutions.gate import FLEET, RUNTIME, SECONDS, Gate

_BUSY = 10.0
"""Seconds for which a port that is in use is tried: a SuperLink that was just killed may still hold
it."""
_CONNECTIONS = 256
"""Connections at an address; one more is closed, and tries again."""


def _protocol() -> type[Any]:
    """Return uvicorn's HTTP protocol with limits on connections and on the time until they have
    asked something.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > _CONNECTIONS:
                transport.abort()
            self.loop.call_later(SECONDS, lambda: self.scope is None and transport.abort())

    return Bounded


def _listen(host: str, port: int) -> socket.socket:
    until = time.monotonic() + _BUSY
    while True:
        try:
            addresses = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            line = socket.create_server(addresses[0][4][:2], family=addresses[0][0], backlog=128)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.2)
                continue
            kind = RunError if error.errno == errno.EADDRINUSE else ConfigError
            raise kind(
                f"expected to listen at {host}:{port}, found: {error.strerror or error}; is "
                "another coordinator running? Else change `listen` or `port` in coordinator.yaml"
            ) from error
        # connections inherit it; without it each response would wait for an acknowledgement, 40 ms
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return line


def main(argv: list[str], parent: Parent) -> int:
    """Serve until the parent is gone.

    Raises:
        ConfigError: something cannot be served.
        RunError: the port is in use.
    """
    parser = argparse.ArgumentParser(prog="fedlit.institutions.superlink")
    for name in ("--listen", "--certificates", "--keys", "--sites"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--most"):
        parser.add_argument(name, type=int, required=True)
    asyncio.run(_serve(parser.parse_args(argv), parent))
    return 0


async def _serve(arguments: argparse.Namespace, parent: Parent) -> None:
    import uvicorn

    from fedlit.institutions.flower.gate import Strangers, acceptable
    from fedlit.institutions.flower.link import make_link

    certificates = Path(arguments.certificates)
    opened = _listen(arguments.listen, arguments.port)
    local = _listen("127.0.0.1", 0)
    keys = {
        site: read_public_key(Path(arguments.keys) / f"{site}.pub")
        for site in arguments.sites.split(",")
    }
    app, link = make_link(local.getsockname()[1], keys)
    common: dict[str, Any] = {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_graceful_shutdown": 1,
        "http": _protocol(),
    }
    servers = [
        uvicorn.Server(
            uvicorn.Config(
                Gate(app, FLEET, acceptable(arguments.most), watch=Strangers(keys, parent.note)),
                ssl_certfile=str(certificates / "server.crt"),
                ssl_keyfile=str(certificates / "server.key"),
                lifespan="on",
                **common,
            )
        ),
        uvicorn.Server(uvicorn.Config(Gate(app, RUNTIME), lifespan="off", **common)),
    ]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    parent.gone = stop
    parent.tell(
        json.dumps({"address": f"127.0.0.1:{local.getsockname()[1]}", **link.begin()}).encode()
    )
    await asyncio.gather(servers[0].serve([opened]), servers[1].serve([local]))
