"""A coordinator whose answers are gzip bombs: what the process of a site that uses the network does
with them.
"""

from __future__ import annotations

import http.server
import resource
import ssl
import threading
import zlib
from pathlib import Path

from drill.forks import ended, free_port, start, told

Rows = list[tuple[str, int, int, str]]
INFLATED = 2**30
MOST = 2**28
PATIENCE = 120


def bomb(folder: Path, tries: int) -> Rows:
    """Connect the stock speaker to the bombs: it must refuse them within 256 MiB of memory."""
    from fedlit.institutions.folder import init
    from fedlit.institutions.settings import read_coordinator

    port = free_port()
    init(folder / "coordinator", ["north", "south"], "localhost", port)
    certificates = read_coordinator(folder / "coordinator").certificates
    passed = 0
    notes = []
    for number in range(tries):
        log = folder / f"{number}.log"
        code = ended(start(lambda: _connect(certificates, folder, port), log), PATIENCE)
        notes.append(told(log).strip())
        passed += code == 0
    return [("a coordinator that answers with gzip bombs", tries, passed, notes[-1])]


def _connect(certificates: Path, folder: Path, port: int) -> int:
    from fedlit.errors import RunError
    from fedlit.institutions.certificates import make_site_keys
    from fedlit.institutions.flower.node import Speaker

    key = folder / "north" / "site.key"
    if not key.exists():
        key.parent.mkdir(exist_ok=True)
        make_site_keys(key.parent, "north")
    serve(certificates, port, packed(INFLATED), threading.Event())
    speaker = Speaker(
        f"localhost:{port}", (certificates / "ca.crt").read_bytes(), key.read_bytes(), 2**20
    )
    before = _peak()
    try:
        speaker.connect()
        answer = "believed"
    except RunError as error:
        answer = f"refused: {error}"
    except Exception as error:
        answer = f"{type(error).__name__}: {str(error)[:80]}"
    grown = _peak() - before
    print(f"{answer}; {grown / 2**20:,.0f} MiB")
    return 0 if answer.startswith("refused") and grown < MOST else 1


def packed(size: int) -> bytes:
    """Return this many zeros as gzip writes them."""
    writer = zlib.compressobj(9, zlib.DEFLATED, 31)
    piece = bytes(2**20)
    return b"".join([writer.compress(piece) for _ in range(size // len(piece))]) + writer.flush()


def serve(
    certificates: Path, port: int, body: bytes, asked: threading.Event
) -> http.server.ThreadingHTTPServer:
    """Answer each request with a compressed body, whatever the request accepts.

    Args:
        certificates: the folder of the coordinator's certificate.
        port: of this machine.
        body: the answer.
        asked: set where a request accepts no compressed body.
    """

    class Answering(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if self.headers["accept-encoding"] == "identity":
                asked.set()
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-encoding", "gzip")
            self.send_header("content-type", "application/protobuf")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answering)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server.socket = secure.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
