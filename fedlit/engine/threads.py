"""Clients side by side, each step on one of several threads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fedlit.engine.base import ClientStep, Engine, Evaluation, PlainEngine, settle
from fedlit.errors import RunError

__all__ = ["AutoEngine", "ThreadedEngine"]


class ThreadedEngine(Engine):
    """Clients side by side, each step on one of several threads.

    PyTorch's generator belongs to all threads. So a client that draws random numbers (dropout) takes its turn, as under
    the plain engine, and draws the same ones; the others run side by side. A client's first step, which it takes alone,
    tells whether it draws.

    Args:
        workers: threads, each of which executes whole client steps.
        intra_op: threads inside one operation of each.

    Attributes:
        draws: client → whether it draws, of those that have taken a step.
    """

    def __init__(self, workers: int, intra_op: int = 1) -> None:
        self.workers, self.intra_op = workers, intra_op
        self.draws: dict[str, bool] = {}
        self._pool = ThreadPoolExecutor(workers, "fedlit", initializer=lambda: torch.set_num_threads(intra_op))

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`; the largest batches start first, so that the threads end together.

        Raises:
            RunError: a client began to draw only later.
        """
        aside = []
        for name, one in steps.items():
            if one.dry or self.draws.get(name) is False:
                aside.append(one)
                continue
            self.draws[name] = one.step(True) or self.draws.get(name, False)
        state = torch.default_generator.get_state()
        largest_first = sorted(aside, key=lambda one: -len(one.batch.y))
        _finish([self._pool.submit(one.step, False) for one in largest_first])
        if not torch.equal(torch.default_generator.get_state(), state):
            names = ", ".join(sorted(one.client.spec.name for one in aside))
            raise RunError(
                f"model.engine: threads: expected clients that draw random numbers from their first step on or never, "
                f"found that one of {names} began later (dropout that was switched on?); set model.engine: plain"
            )

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`."""
        own: dict[int, list[Evaluation]] = {}
        for job in jobs:
            own.setdefault(id(job.client), []).append(job)
        for mine in sorted(own.values(), key=lambda mine: -sum(len(job.batch.y) for job in mine)):
            self._pool.submit(settle, *mine)  # a client may remember things between its batches

    def close(self) -> None:
        """See :class:`Engine`; what has not begun is not begun any more."""
        self._pool.shutdown(cancel_futures=True)


class AutoEngine(Engine):
    """Plain for the first steps, then threads if no client draws random numbers and threads were faster when tried.

    Both give the same bits, so the choice may depend on the clock.

    Args:
        workers: threads.
        intra_op: threads inside one operation of each.
    """

    PLAN = ("plain", "threads", "plain", "threads")

    def __init__(self, workers: int, intra_op: int = 1) -> None:
        self.intra_op = intra_op
        self.plain, self.threaded = PlainEngine(intra_op), ThreadedEngine(workers, intra_op)
        self.chosen: Engine | None = None
        self._times: dict[str, list[float]] = {"plain": [], "threads": []}
        self._step = 0

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`."""
        draws = self.threaded.draws
        new = {name: one for name, one in steps.items() if name not in draws and not one.dry}
        for name, one in new.items():  # a client's first step tells whether it draws
            draws[name] = one.step(True)
            if draws[name]:
                self.chosen = self.plain
        known = {name: one for name, one in steps.items() if name not in new}
        if self.chosen is not None:
            self.chosen.run(known)
        elif known:
            trial = self.PLAN[self._step]
            start = time.perf_counter()
            (self.threaded if trial == "threads" else self.plain).run(known)
            self._times[trial].append((time.perf_counter() - start) / len(known))
            self._step += 1
            if self._step == len(self.PLAN):
                faster = min(self._times["threads"]) < min(self._times["plain"])
                self.chosen = self.threaded if faster else self.plain

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`."""
        (self.plain if self.chosen is self.plain else self.threaded).evaluate(jobs)

    def close(self) -> None:
        """See :class:`Engine`."""
        self.threaded.close()


def _finish(futures: Iterable[Future]) -> None:
    """Wait for all before the first error is raised, so that none goes on in the background."""
    errors = [error for future in list(futures) if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
