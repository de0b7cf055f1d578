"""Messages between the processes of a job that torchrun or srun started, over a process group of their own (gloo)."""

from __future__ import annotations

import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore, distributed_c10d  # type: ignore[attr-defined]

from fedlit.errors import ConfigError, RunError
from fedlit.exchange.alive import Alive, Place
from fedlit.exchange.transport import Group
from fedlit.exchange.wire import pack, unpack
from fedlit.show.shown import print_notice
from fedlit.show.text import shorten

__all__ = ["Messages"]

# torch leaves these untyped
_Gloo: Any = distributed_c10d.ProcessGroupGloo
_BroadcastOptions: Any = distributed_c10d.BroadcastOptions
_PrefixStore: Any = distributed_c10d.PrefixStore
_Store: Any = TCPStore

_MEETING = 60.0
"""Seconds after the newest rank has come, in which the next one must."""
_NOTICE = 10.0
"""Seconds until it is said who is waited for."""
_TOLD = 2.0
"""Seconds in which the other ranks have found out the same."""
_WORK = timedelta(days=365)
"""What a rank may take between two messages: whether it lives is known otherwise."""


class Messages(Group):
    """Sends, gathers and hands out bytes.

    Args:
        place: of this process.
    """

    def __init__(self, place: Place) -> None:
        self.place, self.rank, self.size, self.local = place, place.rank, place.size, place.local
        store = _meet(place)
        host = _own_address(place, store)
        self.alive = _line(place, store, host)
        options = _Gloo._Options()
        options._timeout = _WORK
        options._devices = [_Gloo.create_device(hostname=host)]
        try:
            self._group = _Gloo(_PrefixStore("group", store), self.rank, self.size, options)
        except RuntimeError:
            self.alive.await_verdict()
        self._store = store  # rank 0 may serve it to the others

    def kept(self) -> None:
        """See :class:`~fedlit.exchange.transport.Group`."""
        self.alive.kept = True

    def close(self) -> None:
        """End the threads that torch has for messages, before the interpreter ends under them; then what they use."""
        self._group.shutdown()
        self._group = self._store = None

    def _wait(self, work: Any) -> None:
        try:
            work().wait()
        except RuntimeError:
            self.alive.await_verdict()

    def _post(self, rank: int, content: bytes) -> None:
        self._send(rank, [torch.tensor([len(content)]), torch.frombuffer(bytearray(content), dtype=torch.uint8)])

    def _send(self, rank: int, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor.numel():
                self._wait(lambda tensor=tensor: self._group.send([tensor], rank, 0))

    def _receive(self, rank: int, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor.numel():
                self._wait(lambda tensor=tensor: self._group.recv([tensor], rank, 0))

    def _broadcast(self, rank: int, tensor: Tensor) -> None:
        options = _BroadcastOptions()
        options.rootRank, options.rootTensor, options.timeout = rank, 0, _WORK
        if tensor.numel():
            self._wait(lambda: self._group.broadcast([tensor], options))

    def _fetch(self, rank: int) -> bytes:
        size = torch.zeros(1, dtype=torch.long)
        self._receive(rank, [size])
        content = torch.empty(int(size), dtype=torch.uint8)
        self._receive(rank, [content])
        return content.numpy().tobytes()

    def _to_all(self, content: bytes | None, rank: int = 0) -> bytes:
        size = torch.tensor([0 if content is None else len(content)])
        self._broadcast(rank, size)
        whole = torch.empty(int(size), dtype=torch.uint8)
        if content is not None:
            whole = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        self._broadcast(rank, whole)
        return whole.numpy().tobytes()

    def _say(self, rank: int, topic: str, value: Any) -> None:
        self._post(rank, pack({"topic": topic, "value": value}))

    def _hear(self, rank: int, topic: str) -> Any:
        told = unpack(self._fetch(rank))
        self._check_topics({self.rank: topic, rank: told.get("topic")})
        return told["value"]

    def _check_topics(self, topics: Mapping[int, Any]) -> None:
        if len(set(topics.values())) > 1:
            found = ", ".join(f"rank {rank} at {topics[rank]!r}" for rank in sorted(topics))
            raise RunError(
                f"expected all ranks to be at the same point, found {found}; do all run the same script, and does no "
                "callback end training at one of them alone?"
            )

    def gather(self, topic: str, value: Any) -> list[Any]:
        """See :class:`~fedlit.exchange.transport.Group`."""
        own = pack({"topic": topic, "value": value})
        if self.rank:
            self._post(0, own)
            whole = self._to_all(None)
        else:
            parts = [own, *(self._fetch(rank) for rank in range(1, self.size))]
            whole = self._to_all(b"".join(struct.pack(">Q", len(part)) + part for part in parts))
        every, start = [], 0
        for _ in range(self.size):
            (length,) = struct.unpack(">Q", whole[start : start + 8])
            every.append(unpack(whole[start + 8 : start + 8 + length]))
            start += 8 + length
        self._check_topics({rank: told.get("topic") for rank, told in enumerate(every)})
        return [told["value"] for told in every]


def _meet(place: Place) -> Any:
    """Where addresses are told, once all have come."""
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # by torchrun
    try:
        if place.rank:
            _await_first(place)
        store = _Store(
            place.address,
            place.port,
            None if served else place.size,
            is_master=not (place.rank or served),
            timeout=timedelta(seconds=_MEETING),
            wait_for_workers=False,
        )
    except (RuntimeError, ValueError, OSError) as error:
        why = f" ({str(error).partition(chr(10))[0]})"
        if not place.rank:
            print_notice(
                f"fedlit: error: rank 0: expected to listen at port {place.port}, found that it cannot{why}; set "
                "MASTER_PORT to one that is free"
            )
        elif _speaks(place):
            print_notice(f"fedlit: error: {_not_met(place, [0], why)}")
            time.sleep(_TOLD)
        raise SystemExit(ConfigError.exit_status) from error
    run = [os.environ.get(f"TORCHELASTIC_{key}", "") for key in ("RUN_ID", "RESTART_COUNT")]
    job = _PrefixStore(f"fedlit/{'/'.join(run)}/{os.environ.get('SLURM_STEP_ID', '')}", store)
    try:
        _await_all(place, job)
    except RuntimeError as error:  # rank 0 served it, and says what happened
        raise SystemExit(ConfigError.exit_status) from error
    return job


def _await_first(place: Place) -> None:
    """Until rank 0, or torchrun, listens: torch would say nothing for long, and then much."""
    began, noticed = time.monotonic(), False
    while True:
        try:
            socket.create_connection((place.address, place.port), timeout=_NOTICE).close()
            return
        except OSError:
            waited = time.monotonic() - began
            if waited > _MEETING:
                raise
        if waited > _NOTICE and not noticed:
            noticed = True
            if _speaks(place):
                print_notice(
                    f"fedlit: waiting for rank 0 of {place.size} to come to {place.address}, port {place.port}"
                )
        time.sleep(0.2)


def _await_all(place: Place, job: Any) -> None:
    job.set(f"come/{place.rank}", b"1")
    came, newest, noticed = job.add("came", 1), time.monotonic(), False
    while came < place.size:
        time.sleep(0.05)
        waited = time.monotonic() - newest
        if (now := job.add("came", 0)) > came:
            came, newest = now, time.monotonic()
        elif waited > (_MEETING if noticed else _NOTICE):
            away = [rank for rank in range(place.size) if not job.check([f"come/{rank}"])]
            if not any(rank not in away for rank in range(place.rank)):  # the first that is here speaks
                names = f"rank{'s' if len(away) > 1 else ''} {shorten([str(rank) for rank in away])}"
                print_notice(
                    f"fedlit: error: {_not_met(place, away)}"
                    if noticed
                    else f"fedlit: waiting for {names} of {place.size} to come to {place.address}, port {place.port}"
                )
            if noticed:
                time.sleep(_TOLD if place.rank == 0 else 0)  # it serves the others, who end by themselves
                raise SystemExit(ConfigError.exit_status)
            noticed = True


def _not_met(place: Place, away: Sequence[int], why: str = "") -> str:
    names = f"rank{'s' if len(away) > 1 else ''} {shorten([str(rank) for rank in away])}"
    return (
        f"expected {place.size} ranks to meet at {place.address}, port {place.port}, found that {names} did not come "
        f"within {_MEETING:.0f} seconds of the others{why}; see what it said, start all within "
        "that time, and see that the port is free (MASTER_PORT) and can be reached from each machine"
    )


_flags: list[socket.socket] = []


def _speaks(place: Place) -> bool:
    """Whether this rank speaks for those of its machine, which know nothing of each other without rank 0: the first
    that takes a flag, which is a UDP port that nobody uses.
    """
    if not _flags:
        flag = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            flag.bind(("127.0.0.1", place.port))
            _flags.append(flag)
    return bool(_flags)


def _route(address: str, port: int) -> str:
    """This machine's address on the way to another one."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _own_address(place: Place, store: Any) -> str:
    """Under which the others reach this machine."""
    own = _route(place.address, place.port)
    store.set(f"address/{place.rank}", own)
    for rank in range(1, place.size) if not place.rank and own.startswith("127.") else ():
        other = store.get(f"address/{rank}").decode()
        if not other.startswith("127."):  # it came from another machine
            return _route(other, place.port)
    return own


def _line(place: Place, store: Any, host: str) -> Alive:
    if place.rank:
        address, port, token = json.loads(store.get("alive"))
        return Alive(place, socket.create_connection((address, port), timeout=None), token)
    ear, token = socket.create_server(("", 0), backlog=place.size), secrets.token_hex(16)
    store.set("alive", json.dumps([host, ear.getsockname()[1], token]))
    return Alive(place, ear, token)
