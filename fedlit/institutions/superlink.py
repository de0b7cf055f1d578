"""Flower's SuperLink in a process of its own (see :mod:`fedlit.institutions.child`).

It serves two addresses. The open one has TLS and passes only what a site's node needs; the one for the ServerApp is
bound to this machine and passes only what that needs, with a token. Flower's control interface, through which whoever
reaches it may start programs, is served by neither. What it holds is in memory: a coordinator asks again.

Its parent speaks to it in lines of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.institutions.certificates import read_public_key
from fedlit.institutions.child import Parent
from fedlit.institutions.extra import needs_flower
from fedlit.institutions.gate import FLEET, RUNTIME, SECONDS, Gate, acceptable

__all__ = ["main"]

_BUSY = 10.0
"""Seconds for which a port that is in use is tried: a SuperLink that was just killed may still hold it."""
_CONNECTIONS = 256
"""Connections at an address; one more is closed, and tries again."""


class _State:
    """What the parent asks of the SuperLink's state."""

    def __init__(self, state: Any) -> None:
        self._state, self._task, self._run = state, 0, 0
        activate = state.activate_node

        def anew(node: int, interval: float) -> bool:
            # a node that was killed and comes back is still on the list: without this it would be refused for a while
            state.deactivate_node(node)
            return bool(activate(node, interval))

        state.activate_node = anew
        threading.Thread(target=self._beat, daemon=True).start()

    def register(self, sites: dict[str, Path]) -> None:
        """Enter sites' keys."""
        from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        for site, path in sites.items():
            try:
                public = public_key_to_bytes(read_public_key(path))
                self._state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public, 0, name=site)
            except ValueError as error:
                raise ConfigError(f"{path}: expected a key of its own for each site, found one twice") from error

    def begin(self) -> dict[str, Any]:
        """A new run, and the token with which a ServerApp may ask for it."""
        from flwr.common.constant import NOOP_FLWR_AID
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType

        app = TaskType.SERVER_APP
        self._run = self._state.create_run("fedlit/fedlit", "0", None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, app)
        (run,) = self._state.get_run_info(run_ids=[self._run])
        self._task = run.primary_task_id
        token = self._state.claim_task(self._task)
        if token is None or not self._state.activate_task(self._task):
            raise RunError("expected Flower's SuperLink to begin a run, found that it did not; start again")
        return {"run": self._run, "token": token}

    def end(self, kind: str, details: str) -> dict[str, Any]:
        """End the run; what Flower says of it."""
        self._state.finish_task(self._task, kind, details)
        status = self._state.get_run_status({self._run})[self._run]
        (run,) = self._state.get_run_info(run_ids=[self._run])
        return {
            "status": status.status,
            "sub_status": status.sub_status,
            "details": status.details,
            "sent": run.bytes_sent,
            "received": run.bytes_recv,
        }

    def _beat(self) -> None:
        """The parent knows whether the ServerApp lives."""
        while True:
            time.sleep(10)
            if self._task:
                self._state.acknowledge_task_heartbeat(self._task)


def _protocol() -> type[Any]:
    """HTTP as uvicorn has it, with a limit of connections, and of the time until one has asked for something."""
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
            return _bound(host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(0.2)
                continue
            kind = RunError if error.errno == errno.EADDRINUSE else ConfigError
            raise kind(
                f"expected to listen at {host}:{port}, found: {error.strerror or error}; is another coordinator "
                "running? Else change `listen` or `port` in coordinator.yaml"
            ) from error


def _bound(host: str, port: int) -> socket.socket:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    line = socket.socket(infos[0][0], socket.SOCK_STREAM)
    try:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # connections inherit it; without it each response would wait for an acknowledgement, 40 ms
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line.bind(infos[0][4])
        line.listen(128)
    except OSError:
        line.close()
        raise
    return line


def main(argv: list[str], parent: Parent) -> int:
    """Serve until the parent is gone; the exit status is 2 for what cannot be served, 1 where the port is in use."""
    parser = argparse.ArgumentParser(prog="fedlit.institutions.superlink")
    for name in ("--listen", "--certificates", "--keys"):
        parser.add_argument(name, required=True)
    for name in ("--port", "--most"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--sites", required=True)
    arguments = parser.parse_args(argv)
    try:
        with needs_flower():
            asyncio.run(_serve(arguments, parent))
    except FedlitError as error:
        print(f"fedlit: error: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(arguments: argparse.Namespace, parent: Parent) -> None:
    import uvicorn
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    logging.getLogger("flwr").setLevel(logging.ERROR)
    certificates = Path(arguments.certificates)
    opened, local = _listen(arguments.listen, arguments.port), _listen("127.0.0.1", 0)
    config = SuperLinkLifespanConfig(
        control_address="127.0.0.1:0",
        health_server_address=None,
        host="127.0.0.1",
        port=local.getsockname()[1],
        insecure=False,
        certificates=None,
        # without it anyone on this machine might take the run
        superexec_auth_secret=os.urandom(32),
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=None,
        ssl_keyfile=None,
        database=":flwr-in-memory:",
        # nobody but the parent starts programs
        isolation="process",
        runtime_dependency_install=False,
    )
    app = create_app(config, SuperLinkLifespan)
    state = _State(app.state.linkstate_factory.state())
    state.register({site: Path(arguments.keys) / f"{site}.pub" for site in arguments.sites.split(",")})
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
                Gate(app, FLEET, acceptable(arguments.most)),
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
    threading.Thread(target=_obey, args=(state, local.getsockname()[1], parent), daemon=True).start()
    await asyncio.gather(servers[0].serve([opened]), servers[1].serve([local]))


def _obey(state: _State, port: int, parent: Parent) -> None:
    """Do what the parent says, line by line."""

    def say(message: dict[str, Any]) -> None:
        print(json.dumps(message), flush=True)

    try:
        say({"runtime": f"127.0.0.1:{port}"})
        while True:
            asked = json.loads(parent.lines.get())
            if asked["do"] == "begin":
                say(state.begin())
            elif asked["do"] == "end":
                say(state.end(asked["kind"], asked["details"]))
    except BrokenPipeError:
        return  # the parent is gone
    except Exception as error:
        print(f"fedlit: error: the SuperLink cannot go on: {error}", file=sys.stderr, flush=True)
        parent.gone()
