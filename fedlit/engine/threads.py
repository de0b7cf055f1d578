"""Runs clients side by side, each step on one of several threads."""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from fedlit.engine.base import ClientStep, Engine, Evaluation, settle
from fedlit.errors import RunError


class ThreadedEngine(Engine):
    """Clients side by side, each step on one of several threads.

    PyTorch's generator belongs to all threads. So a client that draws random numbers (dropout) takes its turn, as under
    the plain engine, and draws the same ones; the others run side by side. A client's first step, which it takes alone,
    tells whether it draws.

    Args:
        workers: threads, each of which executes whole client steps.
        intra_op: threads inside one operation of each.
        trial: whether the first steps are timed, one after another and side by side in turn, so that the faster way is
            taken from then on. Both give the same bits, so the choice may depend on the clock.

    Attributes:
        draws: client → whether it draws, of those that have taken a step.
    """

    def __init__(self, workers: int, intra_op: int = 1, trial: bool = False) -> None:
        self.workers, self.intra_op = workers, intra_op
        self.draws: dict[str, bool] = {}
        self._side_by_side, self._trials = True, [False, True, False, True] if trial else []
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._pool = ThreadPoolExecutor(workers, "fedlit", initializer=lambda: torch.set_num_threads(intra_op))

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`.

        Raises:
            RunError: a client began to draw only later.
        """
        dry = []
        for name, one in steps.items():
            if one.dry or self.draws.get(name) is False:
                dry.append(one)
                continue
            self.draws[name] = one.step(True) or self.draws.get(name, False)
        if not dry or not self._trials:
            self._run(dry, self._side_by_side)
            return
        way, start = self._trials.pop(0), time.perf_counter()
        self._run(dry, way)
        self._times[way].append((time.perf_counter() - start) / len(dry))
        if not self._trials:
            self._side_by_side = min(self._times[True]) < min(self._times[False])

    def _run(self, steps: Sequence[ClientStep], side_by_side: bool) -> None:
        """Steps that draw nothing; the largest batches start first, so that the threads end together."""
        if not side_by_side:
            for one in steps:
                one.step(True)
            return
        state = torch.default_generator.get_state()
        largest_first = sorted(steps, key=lambda one: -len(one.batch.y))
        _finish([self._pool.submit(one.step, False) for one in largest_first])
        if not torch.equal(torch.default_generator.get_state(), state):
            names = ", ".join(sorted(one.client.spec.name for one in steps))
            raise RunError(
                f"model.engine: threads: expected clients that draw random numbers from their first step on or never, "
                f"found that one of {names} began later (dropout that was switched on?); set model.engine: plain"
            )

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`."""
        if not self._side_by_side:
            settle(*jobs)
            return
        own: dict[int, list[Evaluation]] = {}
        for job in jobs:
            own.setdefault(id(job.client), []).append(job)
        for mine in sorted(own.values(), key=lambda mine: -sum(len(job.batch.y) for job in mine)):
            self._pool.submit(settle, *mine)  # a client may remember things between its batches

    def close(self) -> None:
        """See :class:`Engine`. Work that has not begun is cancelled."""
        self._pool.shutdown(cancel_futures=True)


def _finish(futures: Iterable[Future]) -> None:
    """Wait for all futures before the first error is raised, so that none goes on in the background."""
    errors = [error for future in list(futures) if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
