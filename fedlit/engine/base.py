"""Engines, the steps and evaluations that they execute, and the engines that step clients one by
one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.loader import Batch
from fedlit.errors import RunError

EngineName = Literal["auto", "plain", "threads"]


Step = Callable[[bool], bool]
"""A client's step. Its argument determines whether torch's generators are seeded for this client
and step (they belong to all threads, so this is only possible if clients take turns). It returns
whether random numbers were drawn."""

Scope = Callable[[], AbstractContextManager[None]]
"""Makes the context of a step on the thread that runs it (the autocast of mixed precision)."""


class ClientStep(NamedTuple):
    """The part of one client in an aligned step.

    Attributes:
        client: the client that takes the step.
        batch: the batch that the client is trained on.
        step: takes the step of this client alone.
        accumulate: the number of batches per optimizer step.
        update: whether its optimizers step now.
        dry: whether it is known to draw no random numbers from torch's generators.
        seed: computes the seed of the random numbers that it draws.
    """

    client: FederatedClient
    batch: Batch
    step: Step
    accumulate: int = 1
    update: bool = True
    dry: bool = False
    seed: Callable[[], int] = int


class Evaluation:
    """A batch to be scored. Scoring draws no random numbers.

    Args:
        client: the client whose model scores the batch.
        batch: the rows.
        run: returns (predictions, loss).
    """

    __slots__ = ("_error", "_outcome", "batch", "client", "run")

    def __init__(
        self, client: FederatedClient, batch: Batch, run: Callable[[], tuple[Tensor, Tensor]]
    ) -> None:
        self.client = client
        self.batch = batch
        self.run = run
        self._outcome: tuple[Tensor, Tensor] | None = None
        self._error: Exception | None = None

    def execute(self) -> None:
        """Score the batch; an error waits for whoever asks for the outcome."""
        try:
            self._outcome = self.run()
        except Exception as error:
            self._error = error

    def settle(self, outcome: tuple[Tensor, Tensor]) -> None:
        """Set the outcome, which was computed together with those of other batches."""
        self._outcome = outcome

    def fail(self, error: Exception) -> None:
        """Set the error with which scoring ended."""
        self._error = error

    def outcome(self) -> tuple[Tensor, Tensor]:
        """Return (predictions, loss).

        Raises:
            Exception: whatever scoring raised.
        """
        if self._error is not None:
            raise self._error
        assert self._outcome is not None, "an engine has executed it"
        return self._outcome


class Engine(ABC):
    """Executes the clients' steps of one aligned step.

    Attributes:
        intra_op: the number of threads that PyTorch may use inside one operation.
    """

    intra_op: int

    @abstractmethod
    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """Run every client's step.

        Args:
            steps: maps each client to its step, in the order of names.
        """

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """Run evaluations, and set the outcome of each."""
        _execute(jobs)

    def report(self) -> None:  # noqa: B027 - Single clients record their losses themselves.
        """Record the losses of an epoch with the clients."""

    def close(self) -> None:  # noqa: B027 - Most engines have nothing to close.
        """Release threads."""


def _execute(jobs: Iterable[Evaluation]) -> None:
    for job in jobs:
        job.execute()


class PlainEngine(Engine):
    """Steps one client after another, in the order of their names.

    Args:
        intra_op: the number of threads inside one operation.
    """

    def __init__(self, intra_op: int) -> None:
        self.intra_op = intra_op

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`."""
        for client_step in steps.values():
            client_step.step(True)


class ThreadedEngine(Engine):
    """Steps clients side by side, each on one of several threads.

    PyTorch's generator belongs to all threads. So a client that draws random numbers (dropout)
    takes its turn, as under the plain engine, and draws the same ones; the others run side by side.
    A client's first step, which it takes alone, shows whether it draws.

    Args:
        workers: the number of threads, each of which executes whole client steps.
        intra_op: the number of threads inside one operation of each.
        least: clients run side by side if the product of a step's rows and its client's parameters
            is at least this, on average over the steps. Both orders give the same bits.

    Attributes:
        draws: maps each client that has taken a step to whether it draws.
    """

    def __init__(self, workers: int, intra_op: int = 1, least: int = 0) -> None:
        self.workers = workers
        self.intra_op = intra_op
        self.draws: dict[str, bool] = {}
        self._least = least
        self._parameters: dict[str, int] = {}  # client → its number of parameters
        self._pool = ThreadPoolExecutor(
            workers, "fedlit", initializer=lambda: torch.set_num_threads(intra_op)
        )

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`.

        Raises:
            RunError: a client began to draw only later.
        """
        dry = []
        for name, client_step in steps.items():
            if client_step.dry or self.draws.get(name) is False:
                dry.append(client_step)
                continue
            self.draws[name] = client_step.step(True) or self.draws.get(name, False)
        if self._is_worth_threads(dry):
            self._run_side_by_side(dry)
        else:
            for client_step in dry:
                client_step.step(True)

    def _is_worth_threads(self, jobs: Sequence[ClientStep | Evaluation]) -> bool:
        """Return whether jobs run side by side: a function of shapes alone."""
        numbers = 0
        for job in jobs:
            name = job.client.spec.name
            if name not in self._parameters:
                parameters = job.client.parameters()
                self._parameters[name] = sum(parameter.numel() for parameter in parameters)
            numbers += len(job.batch.y) * self._parameters[name]
        return numbers >= self._least * len(jobs)

    def _run_side_by_side(self, steps: Sequence[ClientStep]) -> None:
        """Run steps that draw nothing; the largest batches start first, so that the threads end
        together.
        """
        state = torch.default_generator.get_state()
        largest_first = sorted(steps, key=lambda client_step: -len(client_step.batch.y))
        _finish([self._pool.submit(client_step.step, False) for client_step in largest_first])
        if not torch.equal(torch.default_generator.get_state(), state):
            names = ", ".join(sorted(client_step.client.spec.name for client_step in steps))
            raise RunError(
                "model.engine: threads: expected clients that draw random numbers from their "
                f"first step on or never, found that one of {names} began later (dropout that was "
                "switched on?); set model.engine: plain"
            )

    def evaluate(self, jobs: Sequence[Evaluation]) -> None:
        """See :class:`Engine`."""
        if not self._is_worth_threads(jobs):
            _execute(jobs)
            return
        by_client: dict[int, list[Evaluation]] = {}
        for job in jobs:
            by_client.setdefault(id(job.client), []).append(job)
        # A client's batches stay in order on one thread, because it may have state between them.
        largest_first = sorted(by_client.values(), key=_rows, reverse=True)
        _finish([self._pool.submit(_execute, client_jobs) for client_jobs in largest_first])

    def close(self) -> None:
        """See :class:`Engine`. Work that has not begun is cancelled."""
        self._pool.shutdown(cancel_futures=True)


def _rows(jobs: Sequence[Evaluation]) -> int:
    return sum(len(job.batch.y) for job in jobs)


def _finish(futures: Iterable[Future]) -> None:
    """Wait for all futures before the first error is raised, so that none goes on in the
    background.
    """
    errors = [future.exception() for future in list(futures)]
    for error in errors:
        if error is not None:
            raise error
