"""How clients' steps are executed: one after another, or side by side.

The plain engine is the reference: it equals a hand-written loop over clients, bit for bit. The threaded engine runs the
same operations with the same number of intra-op threads, only at the same time, so it gives the same bits as the plain
one with that number.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar

import torch

from fedlit.errors import RunError

__all__ = ["AutoEngine", "Engine", "EngineName", "PlainEngine", "ThreadedEngine", "make_engine"]

EngineName = Literal["auto", "plain", "threads"]
Step = Callable[[bool], bool]
"""A client's step. Its argument says whether to seed torch's generators for this client and step (they belong to all
threads, so only where clients take turns); returns whether random numbers were drawn."""

T = TypeVar("T")


class Engine(ABC):
    """Executes the clients' tasks of one aligned step.

    Attributes:
        intra_op: threads that PyTorch may use inside one operation.
    """

    intra_op: int

    @abstractmethod
    def run(self, steps: Mapping[str, Step], sizes: Mapping[str, int]) -> None:
        """Run every client's step.

        Args:
            steps: client → step, in the order of names.
            sizes: client → rows in its batch.
        """

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """Start a task that draws no random numbers (an evaluation); its result may be there at once."""
        future: Future[T] = Future()
        future.set_result(task())
        return future

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Release threads."""


class PlainEngine(Engine):
    """One client after another, in the order of their names.

    Args:
        intra_op: threads inside one operation.
    """

    def __init__(self, intra_op: int) -> None:
        self.intra_op = intra_op

    def run(self, steps: Mapping[str, Step], sizes: Mapping[str, int]) -> None:
        """See :class:`Engine`."""
        for step in steps.values():
            step(True)


class ThreadedEngine(Engine):
    """Clients side by side, each step on one of several threads.

    PyTorch's generators are shared by all threads, so a client that draws random numbers (dropout) would get others on
    each run; this engine fails then. :class:`AutoEngine` finds out beforehand.

    Args:
        workers: threads, each of which executes whole client steps.
        intra_op: threads inside one operation of each.
    """

    def __init__(self, workers: int, intra_op: int = 1) -> None:
        self.workers, self.intra_op = workers, intra_op
        self._pool = ThreadPoolExecutor(workers, "fedlit", initializer=lambda: torch.set_num_threads(intra_op))

    def run(self, steps: Mapping[str, Step], sizes: Mapping[str, int]) -> None:
        """See :class:`Engine`; the largest batches start first, so that the threads end together."""
        state = torch.default_generator.get_state()
        futures = [self._pool.submit(steps[name], False) for name in sorted(steps, key=lambda name: -sizes[name])]
        _finish(futures)
        if not torch.equal(torch.default_generator.get_state(), state):
            raise RunError(
                "clients side by side: expected clients that draw no random numbers in a step, found that one "
                "did (dropout "
                "that was switched on later?); set model.engine: plain"
            )

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """See :class:`Engine`."""
        return self._pool.submit(task)

    def close(self) -> None:
        """See :class:`Engine`."""
        self._pool.shutdown()


class AutoEngine(Engine):
    """Plain for the first steps, then threads if no client draws random numbers and threads were faster when tried.

    Both give the same bits, so the choice may depend on the clock.

    Args:
        workers: threads.
        intra_op: threads inside one operation of each.
    """

    PLAN = ("plain", "plain", "threads", "plain", "threads")  # the first one warms up and does not count

    def __init__(self, workers: int, intra_op: int = 1) -> None:
        self.intra_op = intra_op
        self.plain, self.threaded = PlainEngine(intra_op), ThreadedEngine(workers, intra_op)
        self.chosen: Engine | None = None
        self._times: dict[str, list[float]] = {"plain": [], "threads": []}
        self._step = 0

    def run(self, steps: Mapping[str, Step], sizes: Mapping[str, int]) -> None:
        """See :class:`Engine`."""
        if self.chosen is not None:
            self.chosen.run(steps, sizes)
        elif not self._step:
            drawing = [name for name, step in steps.items() if step(True)]
            if drawing:
                self.chosen = self.plain
        else:
            trial = self.PLAN[self._step]
            start = time.perf_counter()
            (self.threaded if trial == "threads" else self.plain).run(steps, sizes)
            self._times[trial].append(time.perf_counter() - start)
            if self._step + 1 == len(self.PLAN):
                faster = min(self._times["threads"]) < min(self._times["plain"])
                self.chosen = self.threaded if faster else self.plain
        self._step += 1

    def submit(self, task: Callable[[], T]) -> Future[T]:
        """See :class:`Engine`."""
        return self.threaded.submit(task)

    def close(self) -> None:
        """See :class:`Engine`."""
        self.threaded.close()


def _finish(futures: Iterable[Future]) -> None:
    """Wait for all before the first error is raised, so that none goes on in the background."""
    errors = [error for future in list(futures) if (error := future.exception()) is not None]
    if errors:
        raise errors[0]


def make_engine(name: EngineName, clients: int, threads: int, device: torch.device) -> Engine:
    """The engine of a name.

    ``threads`` are shared out: as many clients side by side as there are threads, what remains goes into each
    one's operations.

    Args:
        name: ``plain``, ``threads``, or ``auto``.
        clients: number of clients.
        threads: threads in all.
        device: where the clients are; side by side is for the CPU.

    Example:
        >>> engine = make_engine("threads", clients=4, threads=8, device=torch.device("cpu"))
        >>> engine.workers, engine.intra_op
        (4, 2)
    """
    workers = min(clients, threads)
    if name == "plain" or device.type != "cpu" or (name == "auto" and workers == 1):
        return PlainEngine(threads)
    return (ThreadedEngine if name == "threads" else AutoEngine)(workers, max(1, threads // workers))
