"""Makes the engine of a name."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import torch

from fedlit.engine.base import Engine, EngineName, PlainEngine, Scope, ThreadedEngine
from fedlit.engine.stack_sizes import LEAST_FOR_THREADS, SMALLEST_STACK
from fedlit.engine.stacked import StackedEngine


@cache
def keep_freed_memory() -> None:
    """Let the C library (glibc) reuse the memory of large tensors, instead of giving it back to the
    system and asking for it again: at each step this cost a fifth of a stack's time in page faults.
    """
    if sys.platform != "linux":
        return
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # The C library is another one.
        return
    # The numbers are those of malloc.h.
    trim_threshold = -1
    mmap_threshold = -3
    arena_max = -8
    tune(mmap_threshold, 2**30)
    tune(trim_threshold, 2**31 - 1)
    tune(arena_max, 1)  # Arenas of threads are given back whatever the thresholds are.


def make_engine(
    name: EngineName,
    clients: int,
    threads: int,
    device: torch.device,
    scope: Scope,
    compiled: bool = False,
) -> Engine:
    """Return the engine of a given name.

    ``threads`` are divided: as many clients run side by side as there are threads, and the
    remaining threads are used inside each client's operations.

    Args:
        name: ``plain``, ``threads``, or ``auto``.
        clients: the number of clients.
        threads: the number of threads in total.
        device: the device of the clients; they run side by side on the CPU only.
        scope: makes the context in which a step runs.
        compiled: whether compiled kernels may be used.

    Example:
        >>> from contextlib import nullcontext
        >>> cpu = torch.device("cpu")
        >>> engine = make_engine("threads", clients=4, threads=8, device=cpu, scope=nullcontext)
        >>> engine.workers, engine.intra_op
        (4, 2)
    """
    if name == "plain":
        return PlainEngine(threads)
    keep_freed_memory()
    workers = max(1, min(clients, threads))
    intra_op = max(1, threads // workers)
    inner: Engine = PlainEngine(threads)
    stacks = 1
    if device.type == "cpu" and name == "threads":
        return ThreadedEngine(workers, intra_op)
    if device.type == "cpu" and workers > 1:
        inner = ThreadedEngine(workers, intra_op, LEAST_FOR_THREADS)
        stacks = workers
    if name == "auto" and clients >= SMALLEST_STACK:
        return StackedEngine(inner, scope, compiled, stacks)
    return inner
