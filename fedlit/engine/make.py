"""Makes the engine of a given name."""

import ctypes
import sys
from functools import cache

import torch

from fedlit.engine.base import Engine, EngineName, PlainEngine, Scope
from fedlit.engine.stacked import SMALLEST_STACK, StackedEngine
from fedlit.engine.threads import ThreadedEngine


@cache
def keep_freed_memory() -> None:
    """Let the C library (glibc) reuse the memory of large tensors, instead of giving it back to the system and asking
    for it again: at each step this cost a fifth of a stack's time in page faults.
    """
    if sys.platform != "linux":
        return
    try:
        tune = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    trim_threshold, mmap_threshold, arena_max = -1, -3, -8  # numbers of malloc.h
    tune(mmap_threshold, 2**30)
    tune(trim_threshold, 2**31 - 1)
    tune(arena_max, 1)  # threads' own arenas are given back whatever the thresholds


def make_engine(
    name: EngineName, clients: int, threads: int, device: torch.device, scope: Scope, compiled: bool = False
) -> Engine:
    """Return the engine of a given name.

    ``threads`` are divided: as many clients run side by side as there are threads, and the remaining threads are used
    inside each client's operations.

    Args:
        name: ``plain``, ``threads``, or ``auto``.
        clients: the number of clients.
        threads: the number of threads in total.
        device: the device of the clients; they run side by side on the CPU only.
        scope: makes the context in which a step runs.
        compiled: whether compiled kernels may be used.

    Example:
        >>> from contextlib import nullcontext
        >>> engine = make_engine("threads", clients=4, threads=8, device=torch.device("cpu"), scope=nullcontext)
        >>> engine.workers, engine.intra_op
        (4, 2)
    """
    workers = min(clients, threads)
    if name == "plain":
        return PlainEngine(threads)
    keep_freed_memory()
    if name == "threads":
        return ThreadedEngine(workers, max(1, threads // workers)) if device.type == "cpu" else PlainEngine(threads)
    alone = device.type != "cpu" or workers == 1
    inner = PlainEngine(threads) if alone else ThreadedEngine(workers, max(1, threads // workers), trial=True)
    return StackedEngine(inner, scope, compiled) if clients >= SMALLEST_STACK else inner
