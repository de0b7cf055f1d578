"""Finding files in folders, and fetching them from a real server on this machine."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlit.data.files import RemoteFile, find, locate, search_roots
from fedlit.errors import DataError

CONTENT = b"a,b\n1,2\n" * 50_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    requests: list[str]

    def do_GET(self) -> None:
        self.requests.append(self.path)
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        if self.path.startswith("/slow"):
            time.sleep(0.7)  # long enough for a second process to ask for the same file
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000] if self.path.startswith("/cut") else CONTENT)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the list of paths that were asked for."""
    monkeypatch.setenv("NO_PROXY", "*")
    asked: list[str] = []
    handler = type("RecordingHandler", (Handler,), {"requests": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}", asked
        httpd.shutdown()
        thread.join()


def sample(url: str | None, sha256: str | None = SHA256) -> RemoteFile:
    return RemoteFile("sample/sample.csv", url, sha256, "a sample", ("sample/sample.txt",))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["sample/sample.csv", "sample.txt"])
def test_where_a_file_is_found(name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, variable, file = tmp_path / "given", tmp_path / "variable", sample(None, None)
    given.mkdir()
    assert search_roots() == [Path.cwd() / "data", cache] and find(file) is None
    monkeypatch.setenv("FEDLIT_DATA", str(variable))
    assert search_roots() == [variable, cache] and search_roots(given) == [given, cache]
    for folder in (cache, given):  # each one found hides those after it
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")  # used as it is: its checksum is not the original's
        assert find(file, given) == locate(file, given) == folder / name
    for wrong in (tmp_path / "nowhere", given / name):
        with pytest.raises(DataError, match=r"root: expected a folder at .*, found none"):
            find(file, wrong)


def test_download_into_the_cache_once(cache: Path, server: tuple[str, list[str]]) -> None:
    url, asked = server
    for _ in range(2):
        path = locate(sample(f"{url}/good"))
        assert path == cache / "sample" / "sample.csv" and path.read_bytes() == CONTENT
    assert asked == ["/good"] and files_in(cache) == [path]


@pytest.mark.parametrize(
    ("path", "sha256", "reason"),
    [
        ("/good", "0" * 64, "hash"),
        ("/cut", SHA256, "IncompleteRead"),
        ("nobody", SHA256, "127.0.0.1"),
        (None, None, "no public address"),
    ],
)
def test_a_failed_download_says_why_and_leaves_nothing(
    path: str | None, sha256: str | None, reason: str, cache: Path, server: tuple[str, list[str]]
) -> None:
    with socket.socket() as closed:  # bound but not listening: every connection is refused
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
        url = nobody if path == "nobody" else path and server[0] + path
        with pytest.raises(DataError) as caught:
            locate(sample(url, sha256))
    message = str(caught.value)
    assert reason in message and (url or "") in message and all(str(root) in message for root in search_roots())
    assert f"Put it at {Path.cwd() / 'data' / 'sample' / 'sample.csv'}" in message
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written_and_an_address_without_a_checksum(
    cache: Path, server: tuple[str, list[str]]
) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(DataError, match=re.escape(str(cache))):
        locate(sample(f"{server[0]}/good"))
    assert server[1] == []
    with pytest.raises(DataError, match="expected a sha256"):
        RemoteFile("a", "http://127.0.0.1/a", None, "a")


def test_two_processes_at_once(cache: Path, server: tuple[str, list[str]]) -> None:
    url, asked = server
    program = (
        "from fedlit.data.files import RemoteFile, locate\n"
        f"print(locate(RemoteFile('sample/sample.csv', '{url}/slow', '{SHA256}', 'a sample')))"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) for _ in range(2)]
    path = cache / "sample" / "sample.csv"
    assert [process.communicate(timeout=60)[0].strip() for process in processes] == [str(path)] * 2
    assert path.read_bytes() == CONTENT and files_in(cache) == [path] and set(asked) == {"/slow"}
