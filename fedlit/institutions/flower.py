"""The only module that uses Flower: its interface for nodes, the state of its SuperLink, and its
Grid.

Most of what is used here is private to Flower, whose version is therefore pinned
(:data:`fedlit.institutions.extra.FLOWER`). Import this module inside
:func:`fedlit.institutions.extra.needs_flower`.
"""

import base64
import json
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_private_key,
)
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
from flwr.common.serde import message_to_proto
from flwr.common.serde_utils import metadata_from_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata as ProtoMetadata
from flwr.proto.node_pb2 import Node
from flwr.serverapp import Grid
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_head_values_from_object_content,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedlit.errors import ConfigError, FedlitError, RunError
from fedlit.institutions.extra import Lost
from fedlit.institutions.gate import LARGEST
from fedlit.privacy.keys import fingerprint_of

LOST = (RunNotRunningException, httpx.HTTPError, httpx.StreamError)
"""The errors that the coordinator gets if the SuperLink or its run is gone; starting again may
help."""

SLACK = 2**20
"""The bytes that a message may have in addition to its content."""
_KIND = "fedlit"
_UNKNOWN_KEY = "2004"
_BEAT = 10.0
_AGAIN = 0.1
_FAST = 0.02
_SLOW = 0.5
_RESEND = 2.0
_LIFE = 6 * 3600.0


def packed(content: bytes) -> RecordDict:
    """Return bytes in the form that Flower's messages carry."""
    from flwr.app import RecordDict

    return RecordDict(
        {_KIND: ArrayRecord({_KIND: Array("uint8", (len(content),), _KIND, content)})}
    )


def unpacked(record: RecordDict) -> bytes:
    """Return the bytes of a message of :func:`packed`. Nothing is decoded: what Flower would read
    as an array is taken as it is.

    Raises:
        RunError: it is another message.
    """
    try:
        array: Any = record[_KIND][_KIND]
        return bytes(array.data)
    except (KeyError, AttributeError, TypeError) as error:
        raise RunError(
            "expected a message of fedlit, found another; do all run the same version?"
        ) from error


def check_pieces(pieces: Mapping[str, bytes], most: int) -> None:
    """Check, before anything is put together, how long the arrays of a message will be. Flower's
    array names the chunks that it consists of, each any number of times, so that a small message
    can become a large array.

    Args:
        pieces: the pieces of the message as Flower sends them, by their names.
        most: the largest number of bytes of all arrays together.

    Raises:
        RunError: the message is longer.
    """
    size = names = 0
    for piece in pieces.values():
        kind, chunks, _ = get_object_head_values_from_object_content(piece)
        if kind == ArrayChunk.__qualname__:
            continue
        names += len(piece)
        if names > SLACK:
            raise RunError(
                f"expected at most {SLACK} bytes beside the content of a message, found more"
            )
        if kind == Array.__qualname__:
            places = json.loads(get_object_body(piece, Array))["arraychunk_ids"]
            size += sum(len(pieces[chunks[place]]) for place in places)
        if size > most + SLACK:
            raise RunError(
                f"expected a message of at most {most} bytes, found one that becomes longer"
            )


class Speaker:
    """A node of Flower that carries bytes.

    Args:
        address: ``HOST:PORT`` of the coordinator.
        certificate: the certificate of the authority that signed the coordinator's certificate,
            PEM.
        key: the site's private key, as OpenSSH writes it.
        most: the largest number of bytes of a question.
    """

    def __init__(self, address: str, certificate: bytes, key: bytes, most: int) -> None:
        self.address = address
        self.most = most
        try:
            private: Any = load_ssh_private_key(key, None)
            self._public = public_key_to_bytes(private.public_key())
            signer = NodeAuthHttpInterceptor(private, private.public_key())
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigError(
                "expected a key made by fedlit site keys, found another file"
            ) from error
        try:
            self._client = FleetHttpClient.from_server_address(
                address, False, certificate, interceptors=[signer]
            )
        except (ValueError, ssl.SSLError) as error:
            raise ConfigError("expected the coordinator's ca.crt, found no certificate") from error
        http = self._client._client
        http.follow_redirects = False  # what is meant for the coordinator goes nowhere else
        http.headers["accept-encoding"] = "identity"
        http.event_hooks = {"response": [self._bounded]}
        self._node: Any = None
        self._beat = 0.0

    def _bounded(self, response: httpx.Response) -> None:
        """Refuse a response that is longer than a piece can be, before it is read. One that is
        compressed may be any length once it is read, so none may be.
        """
        if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
            raise RunError(
                f"{self.address}: expected pieces without content encoding, found {encoding!r:.40}"
            )
        length = response.headers.get("content-length", "")
        if not length.isdecimal():
            # of a coordinator that is ending; nothing of it is read
            raise Lost("an answer of no length")
        if int(length) > LARGEST:
            raise RunError(
                f"{self.address}: expected pieces of at most {LARGEST} bytes, found a longer one"
            )

    def _say(self, method: Callable[[Any], Any], request: Any) -> Any:
        """Send one request. Errors name their cause.

        Raises:
            Lost: it may work later.
            RunError: it will not.
        """
        try:
            return method(request)
        except httpx.HTTPStatusError as error:
            if _UNKNOWN_KEY in error.response.text:
                raise RunError(
                    f"{self.address}: the coordinator does not know this site's key; give it the "
                    ".pub that fedlit site keys made, and let it start again"
                ) from error
            raise Lost(f"{error.response.status_code}") from error
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise RunError(
                    f"{self.address}: expected a certificate that the authority of ca.crt signed "
                    f"for this address and for now, found another ({error}); compare the "
                    "fingerprint, the address and this machine's clock with the coordinator's by "
                    "telephone. It makes a new one by fedlit coordinate renew"
                ) from error
            raise Lost(str(error)) from error
        except ValueError as error:
            raise Lost(str(error)) from error

    def connect(self) -> None:
        """Register this node with the coordinator."""
        response = self._say(
            self._client.ActivateNode,
            ActivateNodeRequest(public_key=self._public, heartbeat_interval=_BEAT),
        )
        self._node = Node(node_id=response.node_id)
        self._beat = time.monotonic()

    def beat(self) -> None:
        """Send a heartbeat of this node if it is due."""
        if time.monotonic() - self._beat < _BEAT / 2:
            return
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_BEAT)
        if not self._say(self._client.SendNodeHeartbeat, request).success:
            raise Lost("forgotten")
        self._beat = time.monotonic()

    def hear(self) -> tuple[Any, bytes] | None:
        """Return the newest waiting question, as Flower's message and its bytes; None if there is
        none.
        """
        newest = None
        while True:
            heard = self._say(self._client.PullMessages, PullMessagesRequest(node=self._node))
            if not heard.messages_list:
                return newest
            own = self._whole(heard.messages_list[0].metadata.run_id, heard.message_object_trees[0])
            newest = own if own is not None else newest

    def _whole(self, run: int, tree: Any) -> tuple[Any, bytes] | None:
        """Fetch the pieces of a message and return it; None if its run is over."""
        pieces: dict[str, bytes] = {}
        size = 0
        for piece in iterate_object_tree(tree):
            while True:
                self.beat()
                request = PullObjectRequest(node=self._node, run_id=run, object_id=piece.object_id)
                try:
                    found = self._say(self._client.PullObject, request)
                except Lost as error:
                    if str(error) == "403":
                        return None
                    raise
                if not found.object_found:
                    return None
                if found.object_available:
                    break
                time.sleep(_AGAIN)
            pieces[piece.object_id] = found.object_content
            size += len(found.object_content)
            if size > self.most + SLACK:
                raise RunError(
                    f"{self.address}: expected a question of at most {self.most} bytes, found a "
                    "longer one; nothing of it was used",
                )
        try:
            check_pieces(pieces, self.most)
            message: Any = inflate_object_from_contents(tree.object_id, pieces)
            content = unpacked(message.content)
        except FedlitError:
            raise
        except Exception as error:  # Flower raises kinds of its own
            raise RunError(
                f"{self.address}: expected a message of fedlit, found another ({error})"
            ) from error
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = tree.object_id
        confirm = ConfirmMessageReceivedRequest(
            node=self._node, run_id=run, message_object_id=tree.object_id
        )
        self._say(self._client.ConfirmMessageReceived, confirm)
        return message, content

    def answer(self, message: Any, content: bytes) -> None:
        """Send the answer to a question. If the question's run is over, the answer is dropped."""
        reply = Message(packed(content), reply_to=message)
        run = reply.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            tree = get_object_tree(reply)
            pieces = get_all_nested_objects(reply)
            head = message_to_proto(remove_content_from_message(reply))
            request = PushMessagesRequest(
                node=self._node, messages_list=[head], message_object_trees=[tree]
            )
            try:
                told = self._say(self._client.PushMessages, request)
                for name in told.objects_to_push:
                    self.beat()
                    piece = PushObjectRequest(
                        node=self._node,
                        run_id=run,
                        object_id=name,
                        object_content=pieces[name].deflate(),
                        session_id=told.session_id,
                    )
                    self._say(self._client.PushObject, piece)
            except Lost as error:
                if str(error) != "403":
                    raise

    def leave(self) -> None:
        """Remove this node from the coordinator's list, if the coordinator can be reached."""
        if self._node is not None:
            self._client._client.timeout = 2.0  # whoever ends this process waits
            try:
                self._say(
                    self._client.DeactivateNode, DeactivateNodeRequest(node_id=self._node.node_id)
                )
            except (Lost, FedlitError):
                return


@contextmanager
def _lost() -> Iterator[None]:
    """Raise errors of :data:`LOST` as :class:`~fedlit.institutions.extra.Lost`."""
    try:
        yield
    except LOST as error:
        raise Lost(str(error)) from error


class FlowerLine:
    """See :class:`~fedlit.institutions.serving.line.Line`. A site has the name that its key was
    registered with, whatever its messages claim. Flower's messages go to nodes, which answer them:
    a reply is a message to the site's node, and the answer to it is the site's next request.

    Args:
        grid: the Grid of Flower, for a run that has begun.
        most: the largest number of bytes of an answer.
    """

    def __init__(self, grid: Grid, most: int) -> None:
        self._grid = grid
        self._most = most
        self._asked: dict[str, bytes] = {}  # questions under way
        # site → (message, since when its node is there)
        self._sent: dict[str, tuple[str, str]] = {}
        self._due: dict[str, float] = {}

    def _nodes(self) -> dict[str, tuple[int, str]]:
        return {
            node.name: (node.node_id, node.last_activated_at)
            for node in self._grid.get_nodes()
            if node.name
        }

    @_lost()
    def sites(self) -> frozenset[str]:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        return frozenset(self._nodes())

    @_lost()
    def reply(self, site: str, content: bytes) -> None:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        self._asked[site] = content
        self._sent.pop(site, None)
        self._due[site] = 0.0
        self._push(self._nodes())

    @_lost()
    def requests(self, timeout: float) -> list[tuple[str, bytes | RunError]]:
        """See :class:`~fedlit.institutions.serving.line.Line`."""
        end = time.monotonic() + timeout
        wait = _FAST
        looked = 0.0
        while True:
            if time.monotonic() - looked > _SLOW:
                self._push(self._nodes())
                looked = time.monotonic()
            found = self._pull()
            left = end - time.monotonic()
            if found or left <= 0:
                return found
            time.sleep(min(wait, left))
            wait = min(wait * 1.2, _SLOW)

    def _push(self, nodes: dict[str, tuple[int, str]]) -> None:
        """Send what is due to the nodes that are there. It is sent again if a node has come back,
        because the node has forgotten it.
        """
        for site, content in self._asked.items():
            if site not in nodes:
                continue
            node, since = nodes[site]
            if site in self._sent and self._sent[site][1] == since:
                continue
            if self._due.get(site, 0.0) > time.monotonic():
                continue
            message = Message(packed(content), node, "query", ttl=_LIFE)
            for name in filter(None, self._grid.push_messages([message])):
                self._sent[site] = name, since
            self._due[site] = time.monotonic() + _RESEND

    def _pull(self) -> list[tuple[str, bytes | RunError]]:
        waiting: dict[str, str] = {message: site for site, (message, _) in self._sent.items()}
        found: list[tuple[str, bytes | RunError]] = []
        for reply in self._grid.pull_messages(list(waiting)) if waiting else ():
            site = waiting.get(reply.metadata.reply_to_message_id)
            if site is None:
                continue
            self._sent.pop(site)
            # its node is away, or the question's time is over: it is asked again
            if reply.has_error():
                self._due[site] = time.monotonic() + _RESEND
                continue
            self._asked.pop(site)
            try:
                answer = unpacked(reply.content)
            except RunError as error:
                found.append((site, error))
                continue
            too_long = RunError(
                f"expected an answer of at most {self._most} bytes, found {len(answer)}"
            )
            found.append((site, answer if len(answer) <= self._most else too_long))
        return found


def acceptable(most: int) -> Callable[[str, bytes], bool]:
    """Return a function that decides which requests of sites' nodes may pass.

    Answers must name the node that sends them (Flower checks a node's key, but not that its answers
    are its own), and must not announce more pieces than an answer can have.

    Args:
        most: the largest number of bytes of an answer.

    Returns:
        A function that maps a request's path and body to whether it may pass.
    """
    pieces = most // FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE + 16

    def count(tree: Any) -> int:
        return 1 + sum(count(child) for child in tree.children)

    def may(path: str, body: bytes) -> bool:
        if not path.endswith("/push-messages"):
            return True
        try:
            request = PushMessagesRequest.FromString(body)
        except Exception:  # of kinds of protobuf's own
            return False
        own = all(
            message.metadata.src_node_id == request.node.node_id
            for message in request.messages_list
        )
        return own and sum(map(count, request.message_object_trees)) <= pieces

    return may


class Strangers:
    """Reports requests that are signed with a key that no site has: a site with a new key, or
    somebody else. Flower refuses them without a word here.

    Args:
        sites: maps each site to its public key.
        note: prints a line.
        every: the seconds for which further ones are not reported, because anybody can send them.
    """

    def __init__(
        self, sites: dict[str, Any], note: Callable[[str], object], every: float = 60.0
    ) -> None:
        self._sites = {public_key_to_bytes(key): site for site, key in sites.items()}
        self._note = note
        self._every = every
        self._next = 0.0

    def __call__(self, scope: Mapping[str, Any]) -> None:
        """Look at the head of one request, which is a scope of ASGI."""
        sent = dict(scope.get("headers", ())).get(FLEET_HTTP_PUBLIC_KEY_HEADER.encode())
        if sent is None or time.monotonic() < self._next:
            return
        try:
            key = base64.b64decode(sent, validate=True)
            if key in self._sites:
                return
            found = fingerprint_of(
                load_pem_public_key(key)
                .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
                .decode()
            )
        except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm, FedlitError):
            found = "no key"
        self._next = time.monotonic() + self._every
        host = (scope.get("client") or ("somebody",))[0]
        sites = ", ".join(self._sites.values())
        self._note(
            f"{host}: expected the key of one of {sites}, found {found}; refused. If a site has a "
            "new key, add it by fedlit coordinate add, and start again"
        )


class Link:
    """The state of Flower's SuperLink: its sites, and the run that is in progress.

    Args:
        state: the state of Flower's SuperLink.
        sites: maps each site to its public key.

    Raises:
        ConfigError: two sites have the same key.
    """

    def __init__(self, state: Any, sites: dict[str, Any]) -> None:
        self._state = state
        self._task = 0
        activate = state.activate_node

        def anew(node: int, interval: float) -> bool:
            # a node that was killed and comes back is still on the list: without this it would be
            # refused for a while
            state.deactivate_node(node)
            return bool(activate(node, interval))

        state.activate_node = anew
        for site, key in sites.items():
            try:
                state.create_node(
                    NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, public_key_to_bytes(key), 0, name=site
                )
            except ValueError as error:
                raise ConfigError(
                    f"{site}.pub: expected a key of its own for each site, found one twice"
                ) from error
        threading.Thread(target=self._beat, daemon=True).start()

    def begin(self) -> dict[str, Any]:
        """Begin the run; returns its number, and the token with which the coordinator may ask for
        it.
        """
        from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType

        app = TaskType.SERVER_APP
        number = self._state.create_run(
            "fedlit/fedlit", "0", None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, app
        )
        (run,) = self._state.get_run_info(run_ids=[number])
        self._task = run.primary_task_id
        token = self._state.claim_task(self._task)
        if token is None or not self._state.activate_task(self._task):
            raise RunError(
                "expected Flower's SuperLink to begin a run, found that it did not; start again"
            )
        return {"run": number, "token": token}

    def _beat(self) -> None:
        """Keep the coordinator's task alive for as long as this process lives."""
        while True:
            time.sleep(10)
            if self._task:
                self._state.acknowledge_task_heartbeat(self._task)


def make_link(port: int, sites: dict[str, Any]) -> tuple[Any, Link]:
    """Make Flower's SuperLink, which keeps everything in memory.

    Args:
        port: the port of this machine at which the coordinator reaches it.
        sites: maps each site to its public key.

    Returns:
        The ASGI application and its state.
    """
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = SuperLinkLifespanConfig(
        control_address="127.0.0.1:0",
        health_server_address=None,
        host="127.0.0.1",
        port=port,
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
    return app, Link(app.state.linkstate_factory.state(), sites)


def put_together(name: str, pieces: dict[str, bytes], most: int) -> Any:
    """Return a site's message from its pieces. One that cannot be put together, or would be too
    long, becomes a message without content, which is refused like any other that is not fedlit's:
    it must not end the coordinator.

    Args:
        name: the name of the piece that heads the message.
        pieces: the pieces of the message as Flower sends them, by their names.
        most: the largest number of bytes of a message.
    """
    head = pieces.get(name, b"")
    try:
        check_pieces(pieces, most)
        return inflate_object_from_contents(name, pieces)
    except Exception:  # Flower raises kinds of its own
        return _without_content(head)


def _without_content(head: bytes) -> Message:
    """Return a message that has nothing but what its head says of the message to which it
    replies.
    """
    metadata = ProtoMetadata(message_type="query", ttl=_LIFE)
    with suppress(Exception):  # if it replies to nothing, its site counts as silent
        metadata.reply_to_message_id = ProtoMessage.FromString(
            get_object_body(head, Message)
        ).metadata.reply_to_message_id
    return make_message(metadata=metadata_from_proto(metadata), content=RecordDict())


def open_grid(address: str, run: int, token: str, most: int) -> Grid:
    """Return the coordinator's connection to the SuperLink, which takes the place of Flower's
    ServerApp.

    Args:
        address: ``HOST:PORT`` of the SuperLink on this machine.
        run: the number of the run, as :meth:`Link.begin` returned it.
        token: the token of the run, as :meth:`Link.begin` returned it.
        most: the largest number of bytes of an answer.
    """
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid, http_grid

    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id = run
    TaskIdentity.node_id = 1
    TaskIdentity.task_id = 0
    # an answer is announced before its pieces are there: Flower would wait a second in each round
    http_grid.pull_objects = partial(http_grid.pull_objects, initial_backoff=0.02)  # type: ignore[attr-defined]
    http_grid.inflate_object_from_contents = partial(put_together, most=most)  # type: ignore[attr-defined]
    grid = HttpGrid(address, insecure=True, token=token)
    # it is on this machine, and started again where it is killed
    grid._retry_invoker.max_time = 3.0
    grid.set_run(Run.create_empty(run))
    return grid
