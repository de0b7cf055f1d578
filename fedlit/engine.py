"""How clients' steps are executed: one after another, side by side, or alike ones as one.

The plain engine is the reference: it equals a hand-written loop over clients, bit for bit. The threaded engine runs the
same operations with the same number of intra-op threads, only at the same time, so it gives the same bits as the plain
one with that number. Stacking agrees with both to float32 tolerance.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.errors import RunError
from fedlit.stack import Stack, stack_key

__all__ = [
    "AutoEngine",
    "Engine",
    "EngineName",
    "Evaluation",
    "PlainEngine",
    "StackedEngine",
    "Task",
    "ThreadedEngine",
    "make_engine",
]

_log = logging.getLogger(__name__)

EngineName = Literal["auto", "plain", "threads"]
Step = Callable[[bool], bool]
"""A client's step. Its argument says whether to seed torch's generators for this client and step (they belong to all
threads, so only where clients take turns); returns whether random numbers were drawn."""

Scope = Callable[[], AbstractContextManager[None]]
"""Makes what surrounds a step on whatever thread runs it (the autocast of mixed precision)."""

SMALLEST_STACK, LARGEST_STACK = 4, 32
"""Alike clients from which stacking pays, and how many share a stack: more would start fewer operations, but their
gradients take more memory at a time."""


@dataclass(frozen=True)
class Task:
    """One client's share of an aligned step.

    Attributes:
        client: whose step it is.
        batch: what it is trained on.
        step: the step, on its own.
        accumulate: batches per optimizer step.
        update: whether its optimizers step now.
        dry: whether it is known to draw no random numbers from torch's own generators.
        seed: of the random numbers that it draws.
    """

    client: FederatedClient
    batch: Batch
    step: Step
    accumulate: int = 1
    update: bool = True
    dry: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """A batch to be scored; draws no random numbers.

    Attributes:
        client: whose model.
        batch: the rows.
        run: makes (probabilities, loss).
        outcome: where the result will be.
    """

    client: FederatedClient
    batch: Batch
    run: Callable[[], tuple[Tensor, Tensor]]
    outcome: Future[tuple[Tensor, Tensor]] = field(default_factory=Future)


class Engine(ABC):
    """Executes the clients' tasks of one aligned step.

    Attributes:
        intra_op: threads that PyTorch may use inside one operation.
    """

    intra_op: int

    @abstractmethod
    def run(self, tasks: Mapping[str, Task]) -> None:
        """Run every client's step.

        Args:
            tasks: by client, in the order of names.
        """

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """Run evaluations; each one's outcome is set now or later."""
        for job in jobs:
            _settle(job)

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Release threads."""


def _settle(*jobs: Evaluation) -> None:
    for job in jobs:
        try:
            job.outcome.set_result(job.run())
        except Exception as error:
            job.outcome.set_exception(error)


class PlainEngine(Engine):
    """One client after another, in the order of their names.

    Args:
        intra_op: threads inside one operation.
    """

    def __init__(self, intra_op: int) -> None:
        self.intra_op = intra_op

    def run(self, tasks: Mapping[str, Task]) -> None:
        """See :class:`Engine`."""
        for task in tasks.values():
            task.step(True)


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

    def run(self, tasks: Mapping[str, Task]) -> None:
        """See :class:`Engine`; the largest batches start first, so that the threads end together."""
        state = torch.default_generator.get_state()
        largest_first = sorted(tasks.values(), key=lambda task: -len(task.batch.y))
        futures = [self._pool.submit(task.step, False) for task in largest_first]
        _finish(futures)
        if not torch.equal(torch.default_generator.get_state(), state):
            raise RunError(
                "clients side by side: expected clients that draw no random numbers in a step, found that one "
                "did (dropout "
                "that was switched on later?); set model.engine: plain"
            )

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`."""
        own: dict[int, list[Evaluation]] = {}
        for job in jobs:
            own.setdefault(id(job.client), []).append(job)
        for mine in sorted(own.values(), key=lambda mine: -sum(len(job.batch.y) for job in mine)):
            self._pool.submit(_settle, *mine)  # a client may remember things between its batches

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

    PLAN = ("plain", "threads", "plain", "threads")

    def __init__(self, workers: int, intra_op: int = 1) -> None:
        self.intra_op = intra_op
        self.plain, self.threaded = PlainEngine(intra_op), ThreadedEngine(workers, intra_op)
        self.chosen: Engine | None = None
        self._times: dict[str, list[float]] = {"plain": [], "threads": []}
        self._step = 0
        self._asked: set[str] = set()

    def run(self, tasks: Mapping[str, Task]) -> None:
        """See :class:`Engine`."""
        new = {name: task for name, task in tasks.items() if name not in self._asked and not task.dry}
        for name, task in new.items():  # a client's first step tells whether it draws
            self._asked.add(name)
            if task.step(True):
                self.chosen = self.plain
        known = {name: task for name, task in tasks.items() if name not in new}
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


class StackedEngine(Engine):
    """Alike clients as stacks (see :mod:`fedlit.stack`), the others and the stacks by another engine.

    Which clients share a stack depends on their names and settings only, so the same federation gives the same bits.

    Args:
        inner: executes stacks and single clients.
        scope: surrounds a stack's step.
        compiled: whether compiled kernels may be used.

    Attributes:
        resumed: who shared a stack when a checkpoint was written, for the first step after it. (Clients that have lost
            their optimizer's state differ from the others from then on; which ones have cannot be told afterwards.)
    """

    def __init__(self, inner: Engine, scope: Scope, compiled: bool) -> None:
        self.inner, self.scope, self.compiled = inner, scope, compiled
        self.resumed: dict[str, list[Any]] | None = None
        self.intra_op = inner.intra_op
        self._names: tuple[str, ...] = ()
        self._stacks: dict[str, tuple[list[str], Stack]] = {}
        self._refused: set[Hashable] = set()
        self._tried: set[Hashable] = set()

    def run(self, tasks: Mapping[str, Task]) -> None:
        """See :class:`Engine`."""
        if tuple(tasks) != self._names:
            self._group(tasks)
        for _ in range(2):  # a checkpoint's stacks may hold clients that part in this very step
            if not all(stack.consistent and _agree(names, tasks) for names, stack in self._stacks.values()):
                self._group(tasks)
        joint: dict[str, Task] = {}
        stacked: set[str] = set()
        for label, (names, stack) in self._stacks.items():
            members = [tasks[name] for name in names]
            rows = Batch(torch.cat([task.batch.x for task in members]), torch.cat([task.batch.y for task in members]))
            joint[label] = Task(members[0].client, rows, self._step_of(stack, rows, members), dry=True)
            stacked.update(names)
        self.inner.run(joint | {name: task for name, task in tasks.items() if name not in stacked})

    def _step_of(self, stack: Stack, rows: Batch, tasks: Sequence[Task]) -> Step:
        seeds = [task.seed for task in tasks]

        def step(seeded: bool) -> bool:
            try:
                with self.scope():
                    stack.step(rows, tasks[0].accumulate, tasks[0].update, seeds)
            except Exception as error:
                names = ", ".join(client.spec.name for client in stack.clients)
                raise RunError(f"clients {names}, stepped as one: {type(error).__name__}: {error}") from error
            return False

        return step

    def _group(self, tasks: Mapping[str, Task]) -> None:
        self._dissolve()
        self._names = tuple(tasks)
        resumed, self.resumed = self.resumed, None
        same = resumed is not None and resumed["clients"] == list(tasks)
        for names in resumed["stacks"] if resumed is not None and same else self._divide(tasks):
            stack = Stack([tasks[name].client for name in names], self.compiled)
            self._stacks[f"{names[0]} … {names[-1]}"] = (names, stack)

    def _divide(self, tasks: Mapping[str, Task]) -> Iterator[list[str]]:
        """Who shares a stack."""
        groups: dict[tuple[Hashable, bool], list[str]] = {}
        for name, task in tasks.items():
            key = stack_key(task.client, task.batch)
            if key is not None:
                groups.setdefault((key, task.update), []).append(name)
        for (key, _), names in groups.items():
            if len(names) < SMALLEST_STACK or key in self._refused:
                continue
            if key not in self._tried:
                pair = [tasks[name].client for name in names[:2]]
                with self.scope():
                    reason = Stack.why_not(pair, tasks[names[0]].batch, self.compiled)
                if reason:
                    self._refused.add(key)
                    others = len(names) - 1
                    _log.warning("%s and %d clients like it are stepped one by one: %s", names[0], others, reason)
                    continue
                self._tried.add(key)
            parts = -(-len(names) // LARGEST_STACK)
            for part in range(parts):
                yield names[part * len(names) // parts : (part + 1) * len(names) // parts]

    @property
    def shared(self) -> dict[str, list[Any]]:
        """Who takes part, and who shares a stack, for a checkpoint."""
        return {"clients": list(self._names), "stacks": [names for names, _ in self._stacks.values()]}

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`; a stack's jobs on batches of one round go together."""
        position = {
            id(client): (stack, index)
            for _, stack in self._stacks.values()
            for index, client in enumerate(stack.clients)
            if type(client).evaluate is FederatedClient.evaluate
        }
        rounds: dict[tuple[int, int], list[Evaluation]] = {}
        single: list[Evaluation] = []
        seen: dict[int, int] = {}
        for job in jobs:
            own = id(job.client)
            if own in position:
                seen[own] = seen.get(own, -1) + 1
                rounds.setdefault((id(position[own][0]), seen[own]), []).append(job)
            else:
                single.append(job)
        for group in rounds.values():
            stack, _ = position[id(group[0].client)]
            if len(group) < len(stack.clients) or len({len(job.batch.y) for job in group}) > 1:
                single += group
            else:
                self._evaluate_stack(stack, sorted(group, key=lambda job: position[id(job.client)][1]))
        self.inner.evaluate(single)

    def _evaluate_stack(self, stack: Stack, jobs: Sequence[Evaluation]) -> None:
        def run() -> tuple[Tensor, Tensor]:
            try:
                with self.scope():
                    outcomes = stack.evaluate([job.batch for job in jobs])
            except Exception as error:
                for job in jobs:
                    job.outcome.set_exception(error)
                raise
            for job, outcome in zip(jobs, outcomes, strict=True):
                job.outcome.set_result(outcome)
            return outcomes[0]

        self.inner.evaluate([Evaluation(jobs[0].client, jobs[0].batch, run)])

    def close(self) -> None:
        """See :class:`Engine`."""
        self._dissolve()
        self.inner.close()

    def _dissolve(self) -> None:
        while self._stacks:  # one by one: the next stack's clients take the memory that this one leaves
            _, (_, stack) = self._stacks.popitem()
            stack.release()
        self._names = ()


def _agree(names: Sequence[str], tasks: Mapping[str, Task]) -> bool:
    """Whether the optimizers of all step now, or of none: a client's last batch of an epoch may come before others'."""
    return len({tasks[name].update for name in names}) == 1


@cache
def keep_freed_memory() -> None:
    """Have the C library (glibc) reuse the memory of large tensors instead of giving it back to the system and asking
    for it again: at each step that cost a fifth of a stack's time in page faults.
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
    """The engine of a name.

    ``threads`` are shared out: as many clients side by side as there are threads, what remains goes into each
    one's operations.

    Args:
        name: ``plain``, ``threads``, or ``auto``.
        clients: number of clients.
        threads: threads in all.
        device: where the clients are; side by side is for the CPU.
        scope: surrounds a step.
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
    inner = PlainEngine(threads) if alone else AutoEngine(workers, max(1, threads // workers))
    return StackedEngine(inner, scope, compiled) if clients >= SMALLEST_STACK else inner
