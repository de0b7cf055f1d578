"""Real processes on this machine: Flower's SuperLink with TLS, a ServerApp, and what speaks at two sites."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from carrying import ROUNDS, Site

from fedlit.institutions.certificates import make_authority, make_site_keys
from fedlit.institutions.extra import EXITS
from fedlit.institutions.folder import add, init
from fedlit.institutions.gate import LARGEST
from fedlit.institutions.settings import read_coordinator

pytest.importorskip("flwr", reason="the extra fedlit[flower] is not installed")
TESTS = Path(__file__).parents[1]


def free_port() -> int:
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return int(line.getsockname()[1])


class World:
    """A coordinator's folder with two sites' keys, and the processes that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        init(folder, ["north", "south"], "localhost", self.port)
        self.settings = read_coordinator(folder)
        for site in ("north", "south"):
            make_site_keys(folder / "invitations" / site, site)
            add(self.settings, site, folder / "invitations" / site / f"{site}.pub")
        self.started: list[subprocess.Popen[str]] = []
        self.heard, self.told = os.pipe()  # open for as long as this process lives

    def run(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=self.heard,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self.started.append(process)
        return process

    def coordinator(self, serve: str) -> subprocess.Popen[str]:
        code = (
            "import sys; from pathlib import Path; from fedlit.institutions.start import start; "
            "from fedlit.errors import FedlitError\n"
            f"try: sys.exit(start(Path({str(self.folder)!r}), 'carrying:{serve}'))\n"
            "except FedlitError as error: print(error); sys.exit(error.exit_status)"
        )
        return self.run("-c", code)

    def speaker(self, site: str, *more: str, **changed: Path | str) -> subprocess.Popen[str]:
        given = {
            "address": f"localhost:{self.port}",
            "certificate": self.settings.certificates / "ca.crt",
            "key": self.folder / "invitations" / site / "site.key",
            "socket": self.folder / f"{site}.sock",
            **changed,
        }
        flags = [text for key, value in given.items() for text in (f"--{key}", str(value))]
        return self.run("-m", "fedlit.institutions.child", "fedlit.institutions.speaker", *flags, *more)

    def noted(self) -> list[dict[str, object]]:
        path = self.folder / "state" / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def wait(self, condition: Callable[[], object], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                for process in self.started:
                    process.kill()
                pytest.fail("\n".join(process.communicate()[0] for process in self.started))
            time.sleep(0.05)


@pytest.fixture
def world() -> Iterator[World]:
    with TemporaryDirectory() as folder:  # a path short enough for a Unix socket
        made = World(Path(folder))
        yield made
        for process in made.started:
            process.kill()
            process.communicate()
        os.close(made.heard)
        os.close(made.told)


def children(parent: int) -> dict[str, int]:
    """Module → process, of the processes that another started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                words = (path / "cmdline").read_text().split("\0")
                found[words[words.index("-m") + 2].rpartition(".")[2]] = int(path.name)
        except (OSError, ValueError):
            continue
    return found


def connections(process: int) -> set[tuple[str, str, str]]:
    """(local address, remote address, state) of a process's TCP sockets, as the kernel tells them."""
    sockets = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        try:
            sockets.add(os.readlink(entry))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" in sockets:
                found.add((words[1], words[2], words[3]))
    return found


def status(world: World, path: str, body: bytes = b"", port: int | None = None) -> int:
    """What the coordinator's open address answers."""
    trusting = ssl.create_default_context(cafile=str(world.settings.certificates / "ca.crt"))
    request = Request(
        f"https://localhost:{port or world.port}{path}", body, {"content-type": "application/protobuf"}, method="POST"
    )
    try:
        with urlopen(request, timeout=10, context=trusting) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code


def named(site: str) -> Callable[[bytes], bytes]:
    return lambda asked: site.encode() + asked[::-1]


def test_whatever_is_killed_is_started_again_and_loses_nothing(world: World) -> None:
    homes = [Site(world.folder / f"{name}.sock", named(name)) for name in ("north", "south")]
    north, _ = world.speaker("north"), world.speaker("south")
    coordinator = world.coordinator("rounds")
    world.wait(lambda: len(world.noted()) == 4)  # it waits: time to look at it

    # the open address has what a node needs, and nothing else
    assert status(world, "/v1/fleet/pull-messages") == 401
    for path in ("control/list-runs", "control/start-run", "fleet/get-fab", "fleet/register-node", "runtime/get-nodes"):
        assert status(world, f"/v1/{path}") == 404
    assert status(world, "/docs") == 404 and status(world, "/health") == 404
    assert status(world, "/v1/fleet/push-object", b"x" * (LARGEST + 1)) == 413

    # what listens, and that nobody speaks to another machine
    running = children(coordinator.pid)
    assert set(running) == {"superlink", "serverapp"}
    everything = {process: connections(process) for process in (*running.values(), north.pid)}
    listening = {process: {own[0] for own in found if own[2] == "0A"} for process, found in everything.items()}
    assert listening[running["serverapp"]] == set() and listening[north.pid] == set()
    opened = {own for own in listening[running["superlink"]] if not own.startswith("0100007F:")}
    assert opened == {f"00000000:{world.port:04X}"}
    assert len(listening[running["superlink"]]) == 2
    local = ("0100007F:", "00000000000000000000000001000000:", "0000000000000000FFFF00000100007F:")
    for found in everything.values():
        assert all(remote.startswith(local) for _, remote, state in found if state != "0A")

    # whose key is not known, or who has another authority, is not let in; the others go on
    (world.folder / "stranger").mkdir()
    make_site_keys(world.folder / "stranger", "north")
    stranger = world.speaker("north", key=world.folder / "stranger" / "site.key")
    make_authority(world.folder / "stranger", "another")
    misled = world.speaker("north", certificate=world.folder / "stranger" / "ca.crt")
    told = stranger.communicate(timeout=120)[0]
    assert stranger.returncode == EXITS["key"] and "does not know this site's key" in told and "\n" not in told.strip()
    told = misled.communicate(timeout=120)[0]
    assert misled.returncode == EXITS["authority"] and "signed by the authority of ca.crt, found another" in told

    # kill a site, then the SuperLink, which takes the ServerApp with it, while rounds go on
    (world.folder / "state" / "go").touch()
    north.kill()
    world.speaker("north")
    world.wait(lambda: len(world.noted()) >= 5)
    os.kill(children(coordinator.pid)["superlink"], signal.SIGKILL)
    world.wait(lambda: len(world.noted()) >= 7)
    coordinator.terminate()
    told = coordinator.communicate(timeout=120)[0]
    assert coordinator.returncode == 143 and "goes on where it was" in told, told
    assert "SuperLink was killed by signal 9" in told
    coordinator = world.coordinator("rounds")
    told = coordinator.communicate(timeout=120)[0]
    assert coordinator.returncode == 0, told
    assert [own["round"] for own in world.noted()] == list(range(ROUNDS))
    assert len({own["pid"] for own in world.noted()}) >= 3
    for home in homes:
        home.end()


def test_what_speaks_knows_neither_tables_nor_models() -> None:
    code = (
        "import sys; import fedlit.institutions.speaker, fedlit.institutions.flower\n"
        "print(*sorted({own.split('.')[0] for own in sys.modules} & {'torch', 'pandas', 'lightning', 'pyarrow'}), "
        "*(own for own in sys.modules if own.startswith(('fedlit.data', 'fedlit.run', 'fedlit.client'))))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "", told.stdout


def test_a_site_speaks_for_itself_alone_and_within_bounds() -> None:
    """A node's key is checked by Flower; that its answers are its own, and how many pieces they have, here."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
    from flwr.proto.node_pb2 import Node

    from fedlit.institutions.flower import acceptable

    may = acceptable(2**20)

    def request(node: int, source: int, pieces: int = 3) -> bytes:
        tree = ObjectTree(object_id="a", children=[ObjectTree(object_id=str(own)) for own in range(pieces)])
        message = Message(metadata=Metadata(src_node_id=source))
        return bytes(
            PushMessagesRequest(
                node=Node(node_id=node), messages_list=[message], message_object_trees=[tree]
            ).SerializeToString()
        )

    assert may("/v1/fleet/push-messages", request(7, 7))
    assert not may("/v1/fleet/push-messages", request(7, 8))
    assert not may("/v1/fleet/push-messages", request(7, 7, 1000))
    assert not may("/v1/fleet/push-messages", b"garbage")
    assert may("/v1/fleet/pull-messages", b"what Flower judges itself")


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_no_child_outlives_its_parent(seconds: float, tmp_path: Path) -> None:
    """The parent is killed so many seconds after it has started a child, which would live for a minute."""
    (tmp_path / "stays.py").write_text("import time\ntime.sleep(1)\ndef main(argv, parent): time.sleep(60)\n")
    code = (
        "import subprocess, time; from fedlit.institutions.child import command\n"
        "child = subprocess.Popen(command('stays'), stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(TESTS.parent)])}
    with (tmp_path / "log").open("w") as log:
        parent = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(seconds)
    assert _lives(child)
    parent.kill()
    parent.communicate()
    until = time.monotonic() + 20
    while _lives(child):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert (tmp_path / "log").read_text() == ""


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ("refuses", "fedlit: error: north: exchange.rate: expected 1.0, found 0.5"),
        pytest.param("forgets", "expected the federation to have finished, found 'nothing'", marks=pytest.mark.full),
    ],
)
def test_a_failure_is_one_message_and_an_exit_status_that_is_true(serve: str, message: str, world: World) -> None:
    failed = world.coordinator(serve)
    told = failed.communicate(timeout=120)[0]
    assert failed.returncode == 1 and message in told and "Traceback" not in told, told


def test_a_port_that_is_taken_is_named(world: World) -> None:
    with socket.create_server(("", world.port)):
        taken = world.coordinator("rounds")
        told = taken.communicate(timeout=120)[0]
    assert taken.returncode == 1 and f"expected to listen at 0.0.0.0:{world.port}, found: Address already" in told, told
