"""Lines to a coordinator that no site would open: slow and half-open ones, replayed ones, and sites
or coordinators that are not who they say. All of it stays on this machine.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml
from drill.bomb import serve
from drill.forks import free_port
from drill.real import PATIENCE, Rows, reached, twin, undisturbed, wrong_of
from institutions import Federation

ROUNDS = 8
LINES = 100
AGAIN = 0.5
"""Seconds after which a line that was closed is opened again."""
MOST = 10
"""Connections that are replayed."""
CLOSED = 30
"""Seconds within which the coordinator closes a connection that is no site's."""
SITE = "wine"
REQUEST = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/protobuf\r\n"


KINDS = (
    (False, b"", b""),
    (False, b"\x16\x03\x01\x02\x00", b""),
    (True, REQUEST, b"x: y\r\n"),
    (True, REQUEST + b"content-length: 100000\r\n\r\n", b"x"),
)
"""Of each kind of line: whether it has TLS, what it sends first, and what it sends each second."""


def half_open(folder: Path, tries: int) -> Rows:
    """Keep 100 lines open at the coordinator's port, a quarter each: silent, with half a handshake
    of TLS, with a header and with a body of some bytes a second. It passes where the sites still
    end with the same bits.
    """
    alone, expected = undisturbed(folder, ROUNDS)
    passed = 0
    notes = list[str]()
    for number in range(tries):
        federation = twin(alone, folder / f"{number}")
        begun = time.monotonic()
        with _held(federation) as count:
            wrong = wrong_of(federation, federation.run(PATIENCE), expected, ROUNDS)
        if count["most"] < LINES:
            wrong.append(f"expected {LINES} lines at once, found {count['most']}")
        passed += not wrong
        seconds = time.monotonic() - begun
        notes.append(
            "; ".join(wrong)
            or f"{count['opened']} opened in {seconds:.0f} s, {LINES} at once, same bits"
        )
    return [(f"{LINES} slow and half-open lines", tries, passed, notes[-1])]


@contextmanager
def _held(federation: Federation) -> Iterator[Counter[str]]:
    """Hold the lines in a thread of this process; how many were opened, and how many there were at
    once.
    """
    count = Counter[str]()
    over = threading.Event()
    thread = threading.Thread(
        target=asyncio.run, args=(_hold_all(federation, count, over),), daemon=True
    )
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join(PATIENCE)


async def _hold_all(federation: Federation, count: Counter[str], over: threading.Event) -> None:
    certificate = federation.folder / "coordinator" / "certificates" / "ca.crt"
    secure = ssl.create_default_context(cafile=str(certificate))

    async def hold(tls: bool, first: bytes, more: bytes) -> None:
        options: dict[str, object] = {"ssl": secure, "server_hostname": "localhost"} if tls else {}
        reader, writer = await asyncio.open_connection("127.0.0.1", _port(federation), **options)
        count.update(opened=1, now=1)
        count["most"] = max(count["most"], count["now"])
        try:
            writer.write(first)
            while not over.is_set() and not reader.at_eof():
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 1.0)
                writer.write(more)
                await writer.drain()
        finally:
            count["now"] -= 1
            writer.close()

    async def hold_again(number: int) -> None:
        while not over.is_set():
            with suppress(OSError):
                await hold(*KINDS[number % len(KINDS)])
            await asyncio.sleep(AGAIN)

    await asyncio.gather(*map(hold_again, range(LINES)))


def _port(federation: Federation) -> int:
    settings = yaml.safe_load(
        (federation.folder / "coordinator" / "coordinator.yaml").read_text(encoding="utf-8")
    )
    return int(settings["port"])


# ------------------------------------------------------------ who is who, and what was heard before


def strangers(folder: Path, tries: int) -> Rows:
    """Join with a certificate, a coordinator or a key that is not the right one, while the
    coordinator waits; then let the right sites begin, one of them through a process in the middle
    that records, and replay to the coordinator what that heard. It passes where each of the others
    is refused in one message, and the sites end with the same bits.
    """
    alone, expected = undisturbed(folder, ROUNDS)
    federation = twin(alone, folder / "federation")
    try:
        federation.start("coordinator")
        found = {case: _refused(federation, case, *how) for case, how in CASES.items()}
        with _recorded(federation) as lines:
            for site in federation.sources:
                federation.start(site)
            wrong = _replay(federation, lines)
            wrong += wrong_of(federation, federation.wait(PATIENCE), expected, ROUNDS)
    finally:
        federation.end()
    others = [f"{case}: {why}" for case, why in found.items() if why]
    rows = [
        (
            "wrong certificates and keys",
            len(CASES),
            len(CASES) - len(others),
            "; ".join(others) or "refused",
        )
    ]
    note = (
        "; ".join(wrong)
        or f"{min(MOST, len(lines))} connections replayed: each was closed, same bits"
    )
    return [*rows, ("replay of a site's connections", 1, int(not wrong), note)]


def _refused(
    federation: Federation, case: str, change: Callable[[Path, Federation], None], heard: bool
) -> str:
    """Join as a site that differs in one thing; what is wrong with how it ended, empty if
    nothing.
    """
    name = f"{SITE}-{case.replace(' ', '-').replace(',', '')}"
    place = federation.folder / name
    shutil.copytree(federation.folder / SITE, place)
    change(place, federation)
    try:
        federation.hashes[name] = [federation.hash(name)]
    except SystemExit as refused:
        return "" if str(refused).count("fedlit: error:") == 1 else str(refused)
    begun = (federation.folder / "coordinator.log").read_text(encoding="utf-8")
    federation.start(name)
    process = federation.processes.pop(name)
    try:
        code: int | None = process.wait(PATIENCE / 5)
    except Exception:
        code = None
        process.kill()
    said = (federation.folder / f"{name}.log").read_text(encoding="utf-8")
    told = (federation.folder / "coordinator.log").read_text(encoding="utf-8").removeprefix(begun)
    print(f"--- {case}: {code}\n{said[-700:]}\n--- coordinator:\n{told}", flush=True)
    shutil.rmtree(place)
    if code != 1 or "Traceback" in said or said.count("fedlit: error:") != 1:
        return f"exit status {code}: {said[-300:]}"
    return f"the coordinator said nothing: {told[-300:]}" if heard and "refused" not in told else ""


def _another_authority(place: Path, federation: Federation) -> None:
    from fedlit.institutions.certificates import make_authority

    (place / "another").mkdir()
    make_authority(place / "another", "coordinator")
    shutil.copy(place / "another" / "ca.crt", place / "ca.crt")


def _another_authority_agreed(place: Path, federation: Federation) -> None:
    """The site has compared no fingerprint, so it is left to TLS."""
    _another_authority(place, federation)
    settings = yaml.safe_load((place / "site.yaml").read_text(encoding="utf-8"))
    (place / "site.yaml").write_text(
        yaml.safe_dump({**settings, "fingerprint": ""}), encoding="utf-8"
    )


def _another_coordinator(place: Path, federation: Federation) -> None:
    """A process in the middle, with a certificate of its own authority."""
    from fedlit.institutions.certificates import make_authority, make_server

    middle = place / "middle"
    port = free_port()
    middle.mkdir()
    make_authority(middle, "coordinator")
    make_server(middle, "localhost")
    serve(middle, port, b"", threading.Event())
    _at(place, port)


def _another_key(place: Path, federation: Federation) -> None:
    from fedlit.institutions.certificates import make_site_keys

    for name in ("site.key", f"{SITE}.pub"):
        (place / name).unlink()
    make_site_keys(place, SITE)


def _key_of_another_site(place: Path, federation: Federation) -> None:
    shutil.copy(federation.folder / "digits" / "site.key", place / "site.key")


CASES: dict[str, tuple[Callable[[Path, Federation], None], bool]] = {
    "another authority": (_another_authority, False),
    "another authority, no fingerprint": (_another_authority_agreed, False),
    "another coordinator": (_another_coordinator, False),
    "another key": (_another_key, True),
    "the key of another site": (_key_of_another_site, True),
}
"""What a site has that is not the right one → how it gets it, and whether the coordinator hears of
it: not of what ends before anything is asked."""


def _at(place: Path, port: int) -> None:
    """Let a site speak to another port."""
    settings = yaml.safe_load((place / "site.yaml").read_text(encoding="utf-8")) | {
        "coordinator": f"localhost:{port}"
    }
    (place / "site.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


@contextmanager
def _recorded(federation: Federation) -> Iterator[list[bytearray]]:
    """Carry a site's connections through this process, and record what the site sends, connection
    by connection.
    """
    inner = _port(federation)
    outer = free_port()
    lines = list[bytearray]()
    server = socket.create_server(("127.0.0.1", outer))

    def carry(source: socket.socket, target: socket.socket, record: bytearray | None) -> None:
        with suppress(OSError):
            while piece := source.recv(2**16):
                if record is not None:
                    record += piece
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                far = socket.create_connection(("127.0.0.1", inner))
                lines.append(bytearray())
                for way in ((near, far, lines[-1]), (far, near, None)):
                    threading.Thread(target=carry, args=way, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    _at(federation.folder / SITE, outer)
    federation.hashes[SITE] = [federation.hash(SITE)]
    try:
        yield lines
    finally:
        server.close()


def _replay(federation: Federation, lines: list[bytearray]) -> list[str]:
    """Send the coordinator what the site has sent, in mid-federation; which connections it did not
    close.
    """
    until = time.monotonic() + PATIENCE
    while not reached(federation.folder / SITE, ROUNDS // 2):
        if time.monotonic() > until:
            return ["the federation did not begin"]
        time.sleep(0.1)
    wrong = [] if lines and max(map(len, lines)) > 1000 else ["nothing was recorded"]
    for number, line in enumerate(lines[:MOST]):
        again = socket.create_connection(("127.0.0.1", _port(federation)))
        again.settimeout(CLOSED)
        try:
            again.sendall(bytes(line))
            while again.recv(2**16):
                pass
        except TimeoutError:
            wrong.append(f"connection {number} was not closed within {CLOSED} s")
        except OSError:  # closed while it was sent
            pass
        again.close()
    return wrong
