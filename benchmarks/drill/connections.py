"""Connections to a coordinator before any key is asked for: what they may cost is bounded."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["connections"]

Rows = list[tuple[str, int, int, str]]
HELD, BODY, MOST, PATIENCE = 100, 8 * 2**20 - 1024, 300 * 2**20, 45.0
"""Connections, bytes that each sends of its body, bytes by which memory may grow, seconds until all must be closed."""


def connections(folder: Path, tries: int) -> Rows:
    """A hundred connections hold almost all of a body each; then twice as many as are let in say nothing at all."""
    port, process = _superlink(folder)
    try:
        context = ssl.create_default_context(cafile=str(folder / "coordinator" / "certificates" / "ca.crt"))
        before, held = _memory(process.pid), []
        head = b"POST /v1/fleet/activate-node HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8388600\r\n\r\n"
        piece = bytes(2**16)
        for _ in range(HELD):
            with suppress(OSError):
                line = context.wrap_socket(
                    socket.create_connection(("localhost", port), 5), server_hostname="localhost"
                )
                held.append(line)
                line.settimeout(1.0)
                line.sendall(head)
                for _ in range(BODY // len(piece)):
                    line.sendall(piece)
        grown = _memory(process.pid) - before
        open_ = _wait_closed(held)
        silent = []
        for _ in range(512):
            with suppress(OSError):
                line = context.wrap_socket(
                    socket.create_connection(("localhost", port), 5), server_hostname="localhost"
                )
                silent.append(line)
        idle = _memory(process.pid) - before
        left = _wait_closed(silent)
        note = (
            f"{HELD} bodies: +{grown / 2**20:.0f} MiB, {open_} open after {PATIENCE:.0f} s; 512 silent: "
            f"+{idle / 2**20:.0f} MiB, {left} open"
        )
        passed = (grown < MOST and idle < MOST) + (open_ == 0) + (left == 0)
        return [("connections: before a key is known", 3, passed, note)]
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.terminate()
        process.wait(20)


def _wait_closed(lines: list[ssl.SSLSocket]) -> int:
    """How many the other side has not closed within the patience."""
    until = time.monotonic() + PATIENCE
    left = list(lines)
    while left and time.monotonic() < until:
        time.sleep(0.5)
        still = []
        for line in left:
            readable, _, _ = select.select([line], [], [], 0)
            if readable:
                line.settimeout(0.2)
                try:
                    if line.recv(2**16) == b"":
                        line.close()
                        continue
                except TimeoutError:
                    pass
                except OSError:
                    line.close()
                    continue
            still.append(line)
        left = still
    found = len(left)
    for line in left:
        line.close()
    return found


def _memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def _superlink(folder: Path) -> tuple[int, subprocess.Popen[str]]:
    """A SuperLink of its own with one site, on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "fedlit"]
    place = folder / "coordinator"
    subprocess.run([*command, "coordinate", "init", str(place), "--sites", "north", "--port", str(port)], check=True,
                   capture_output=True)  # fmt: skip
    site = folder / "north"
    shutil.copytree(place / "invitations" / "north", site)
    subprocess.run([*command, "site", "keys", str(site)], check=True, capture_output=True)
    (public,) = site.glob("*.pub")
    subprocess.run([*command, "coordinate", "add", str(place), "north", str(public)], check=True, capture_output=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlit.institutions.child", "fedlit.institutions.superlink",
         "--listen=127.0.0.1", f"--port={port}",
         f"--certificates={place / 'certificates'}", f"--keys={place / 'keys'}", "--sites=north", "--most=67108864"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1)
    return port, process
