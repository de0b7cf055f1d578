"""Real processes on this machine: a coordinator, Flower's SuperLink with TLS, and what speaks at
two sites."""

import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psutil
import pytest

from fedlit.errors import RunError
from fedlit.institutions.certificates import fingerprint, make_authority, make_site_keys
from fedlit.institutions.folder import add, init
from fedlit.institutions.gate import LARGEST
from fedlit.institutions.joining import Speaking
from fedlit.institutions.settings import SiteSettings, read_coordinator
from fedlit.institutions.speaker import speak

pytest.importorskip("flwr", reason="the extra flower is not installed")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


class World:
    """A coordinator's folder with two sites' keys, and what is to be ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        init(folder, ["north", "south"], "localhost", self.port)
        self.settings = read_coordinator(folder)
        for site in ("north", "south"):
            make_site_keys(folder / "invitations" / site, site)
            add(self.settings, site, folder / "invitations" / site / f"{site}.pub")
        self.ends: list[Callable[[], object]] = []

    def speaking(self, site: str, **changed: Any) -> Speaking:
        own = {
            "file": self.folder / site / "site.yaml",
            "site": site,
            "coordinator": f"localhost:{self.port}",
            "data": {"source": ""},
            "certificate": self.settings.certificates / "ca.crt",
            "key": self.folder / "invitations" / site / "site.key",
        }
        (self.folder / site).mkdir(exist_ok=True)
        made = Speaking(SiteSettings(**{**own, **changed}))
        self.ends.append(made.end)
        return made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "world")
    yield made
    while made.ends:
        made.ends.pop()()


def status(world: World, path: str, body: bytes = b"", port: int | None = None) -> int:
    """What the coordinator's open address answers."""
    trusting = ssl.create_default_context(cafile=str(world.settings.certificates / "ca.crt"))
    request = Request(
        f"https://localhost:{port or world.port}{path}",
        body,
        {"content-type": "application/protobuf"},
        method="POST",
    )
    try:
        with urlopen(request, timeout=10, context=trusting) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


def test_only_known_sites_reach_a_coordinator_at_one_address(world: World) -> None:
    """One that waits for its sites for ever. Whatever of a real one is killed: test_sites.py."""
    code = (
        "import sys, time; from pathlib import Path; from fedlit.institutions.start import start\n"
        "sys.exit(start(Path(sys.argv[1]), lambda folder, line: time.sleep(600)))"
    )
    words = [sys.executable, "-c", code, str(world.folder)]
    coordinator = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    )
    world.ends.append(lambda: (coordinator.kill(), coordinator.communicate()))  # type: ignore[func-returns-value]
    until = time.monotonic() + 120
    answered = 0
    while answered != 401:  # the open address has what a node needs, and nothing else
        assert time.monotonic() < until
        with suppress(URLError):
            answered = status(world, "/v1/fleet/pull-messages")
    for path in (
        "control/list-runs",
        "control/start-run",
        "fleet/get-fab",
        "fleet/register-node",
        "runtime/get-nodes",
    ):
        assert status(world, f"/v1/{path}") == 404
    assert status(world, "/docs") == 404 and status(world, "/health") == 404
    assert status(world, "/v1/fleet/push-object", b"x" * (LARGEST + 1)) == 413

    # what listens, and that nobody speaks to another machine
    north = world.speaking("north")
    with suppress(TimeoutError):
        north.hear(2)
    (link,) = psutil.Process(coordinator.pid).children()
    assert "superlink" in link.cmdline()
    everything = [
        psutil.Process(own).net_connections()
        for own in (coordinator.pid, north._child.process.pid, link.pid)
    ]
    listening = [
        {tuple(own.laddr) for own in found if own.status == psutil.CONN_LISTEN}
        for found in everything
    ]
    assert listening[:2] == [set(), set()] and len(listening[2]) == 2
    assert {own for own in listening[2] if own[0] != "127.0.0.1"} == {("0.0.0.0", world.port)}
    others = {own.raddr.ip for found in everything for own in found if own.raddr}
    assert others <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}

    # whose key is not known, or who has another authority, is not let in
    stranger = world.folder / "stranger"
    stranger.mkdir()
    make_site_keys(stranger, "north")
    make_authority(stranger, "another")
    with pytest.raises(RunError, match="does not know this site's key"):
        world.speaking("stranger", key=stranger / "site.key").hear(60)
    with pytest.raises(RunError, match=r"the authority of ca.crt signed .* found another"):
        world.speaking("north", certificate=stranger / "ca.crt").hear(60)
    with pytest.raises(
        RunError, match=r"signed for this address .* found another .*address mismatch"
    ):
        world.speaking("north", coordinator=f"127.0.0.2:{world.port}").hear(60)
    coordinator.terminate()
    told = coordinator.communicate(timeout=120)[0]
    assert coordinator.returncode == 143 and "goes on where it was" in told, told
    assert fingerprint(stranger / "north.pub") in told, told


def test_a_busy_site_gets_the_newest_question() -> None:
    ended = threading.Event()
    coming = [("first", b"1"), ("second", b"2"), ("third", b"3")]
    answered = list[Any]()

    class Stub:
        def __init__(self) -> None:
            self.address = "here"
            self.said = queue.SimpleQueue[bytes]()
            self.told = list[bytes]()

        def tell(self, content: bytes) -> None:
            self.told.append(content)

        def hear(self) -> Any:
            if len(coming) == 1 and self.told == [b"1"]:
                self.said.put(b"answer to 1")
            if self.told == [b"1", b"3"]:
                self.said.put(b"answer to 3")
            return coming.pop(0) if coming else None

        def answer(self, message: Any, content: bytes) -> None:
            answered.append((message, content))
            ended.set()

        connect = beat = note = lambda *_: None

    stub: Any = Stub()
    speak(stub, stub, ended)
    assert stub.told == [b"1", b"3"] and answered == [("third", b"answer to 3")]


def test_messages_are_bounded_at_both_ends(world: World) -> None:
    line = world.speaking("north", most=2**16)
    with pytest.raises(RunError, match="at most 65,536 bytes, found one of 65,537"):
        line.answer(bytes(2**16 + 1))
    here, there = Pipe()
    line._child._pipe.close()
    line._child._pipe = here
    there.send_bytes(bytes(2**16 + 2))
    with pytest.raises(RunError, match="at most 65,536 bytes, found a longer one"):
        line.hear()


def test_a_site_refuses_a_compressed_answer_and_asks_for_none(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from drill.bomb import packed, serve  # type: ignore[import-not-found]

    from fedlit.institutions.flower.node import Speaker

    asked = threading.Event()
    certificates = world.settings.certificates
    server = serve(certificates, world.port, packed(2**22), asked)
    key = (world.folder / "invitations" / "north" / "site.key").read_bytes()
    speaker = Speaker(f"localhost:{world.port}", (certificates / "ca.crt").read_bytes(), key, 2**20)
    with pytest.raises(RunError, match="gzip"):
        speaker.connect()
    server.shutdown()
    assert asked.is_set()


def test_what_speaks_knows_neither_tables_nor_models() -> None:
    code = (
        "import sys; import fedlit.institutions.speaker, "
        "fedlit.institutions.flower.node\nprint(*sorted({own.split('.')[0] for own in sys.modules} & "
        "{'torch', 'pandas', 'lightning', 'pyarrow'}), *(own for own in sys.modules if "
        "own.startswith(('fedlit.data', 'fedlit.run', 'fedlit.client'))))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "", told.stdout


def test_a_site_speaks_for_itself_alone_and_within_bounds() -> None:
    """A node's key is checked by Flower; that its answers are its own, and how many pieces they
    have, here."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
    from flwr.proto.node_pb2 import Node

    from fedlit.institutions.flower.gate import acceptable

    may = acceptable(2**20)

    def request(node: int, source: int, pieces: int = 3) -> bytes:
        tree = ObjectTree(
            object_id="a", children=[ObjectTree(object_id=str(own)) for own in range(pieces)]
        )
        message = Message(metadata=Metadata(src_node_id=source))
        own: dict[str, Any] = {
            "node": Node(node_id=node),
            "messages_list": [message],
            "message_object_trees": [tree],
        }
        return bytes(PushMessagesRequest(**own).SerializeToString())

    assert may("/v1/fleet/push-messages", request(7, 7))
    assert not may("/v1/fleet/push-messages", request(7, 8))
    assert not may("/v1/fleet/push-messages", request(7, 7, 1000))
    assert not may("/v1/fleet/push-messages", b"garbage")
    assert may("/v1/fleet/pull-messages", b"what Flower judges itself")


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_no_child_outlives_its_parent(seconds: float, world: World) -> None:
    """The parent is killed so many seconds after it has started a child, which looks for a
    coordinator for ever."""
    code = (
        "import sys, time; from pathlib import Path; from fedlit.institutions.child import "
        "Child\nlog, certificate, key = sys.argv[1:]\nown = Child('it', 'speaker', Path(log), "
        "address='localhost:1', certificate=certificate, key=key)\nprint(own.process.pid, "
        "flush=True); time.sleep(60)"
    )
    files = [
        world.folder / "log",
        world.settings.certificates / "ca.crt",
        world.folder / "invitations/north/site.key",
    ]
    words = [sys.executable, "-c", code, *map(str, files)]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    time.sleep(seconds)
    assert child.status() != psutil.STATUS_ZOMBIE
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 20
    with suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert files[0].read_text() == ""


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedlit.institutions import superlink

    monkeypatch.setattr(superlink, "_BUSY", 0.0)
    told = r"expected to listen at 127\.0\.0\.1:\d+, found: Address already"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RunError, match=told):
        superlink._listen(*taken.getsockname())


def message_of(content: bytes) -> Any:
    """A message of Flower as a site sends it."""
    from flwr.app.message import make_message
    from flwr.common.serde_utils import metadata_from_proto
    from flwr.proto.message_pb2 import Metadata

    from fedlit.institutions.flower.pieces import packed

    metadata = Metadata(reply_to_message_id="asked", message_type="query", ttl=60.0)
    return make_message(metadata=metadata_from_proto(metadata), content=packed(content))


@pytest.mark.parametrize("times", [1, 1500])
def test_a_chunk_that_is_listed_many_times_is_refused_unread(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends. The memory that Python takes is measured: 1500 MiB would fit into 1 MiB on the
    wire."""
    from flwr.app import Array
    from flwr.supercore.inflatable.inflatable_object import (
        add_header_to_object_body,
        get_all_nested_objects,
    )

    from fedlit.institutions.flower.pieces import check_pieces, put_together, unpacked

    def deflated(array: Array) -> bytes:
        body = {
            "dtype": "uint8",
            "shape": [2**20],
            "stype": "fedlit",
            "arraychunk_ids": [0] * times,
        }
        assert array.children
        return add_header_to_object_body(object_body=json.dumps(body).encode(), obj=array)

    message = message_of(bytes(2**20))
    with monkeypatch.context() as change:
        change.setattr(Array, "deflate", deflated)
        pieces = {name: piece.deflate() for name, piece in get_all_nested_objects(message).items()}
    *_, head = pieces
    tracemalloc.start()
    if times == 1:
        check_pieces(pieces, 2**20)
        assert unpacked(put_together(head, pieces, 2**20).content) == bytes(2**20)
    else:
        with pytest.raises(RunError, match="at most 1048576 bytes"):
            check_pieces(pieces, 2**20)
        with pytest.raises(RunError, match="expected a message of fedlit"):
            unpacked(put_together(head, pieces, 2**20).content)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize("place", range(5))
def test_pieces_that_are_none_end_no_coordinator(place: int) -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    from fedlit.institutions.flower.pieces import put_together, unpacked

    pieces = {
        name: piece.deflate()
        for name, piece in get_all_nested_objects(message_of(b"content")).items()
    }
    *_, head = pieces
    pieces[list(pieces)[place]] = b"Array,0\x00[["
    found = put_together(head, pieces, 2**20)
    with pytest.raises(RunError, match="expected a message of fedlit"):
        unpacked(found.content)
    assert (found.metadata.reply_to_message_id == "asked") == (list(pieces)[place] != head)
