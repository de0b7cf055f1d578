"""The interface of engines, and the steps and evaluations that they execute."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from fedlit.client import FederatedClient
from fedlit.data.loader import Batch

EngineName = Literal["auto", "plain", "threads"]


Step = Callable[[bool], bool]


"""A client's step. Its argument determines whether torch's generators are seeded for this client and step (they
belong to all threads, so this is only possible if clients take turns). It returns whether random numbers were drawn."""


Scope = Callable[[], AbstractContextManager[None]]


"""Makes the context of a step on whatever thread runs it (the autocast of mixed precision)."""


@dataclass(frozen=True)
class ClientStep:
    """The part of one client in an aligned step.

    Attributes:
        client: the client that takes the step.
        batch: the batch that the client is trained on.
        step: takes the step of this client alone.
        accumulate: the number of batches per optimizer step.
        update: whether its optimizers step now.
        dry: whether it is known to draw no random numbers from torch's own generators.
        seed: the seed of the random numbers that it draws.
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
    """A batch to be scored. Scoring draws no random numbers.

    Attributes:
        client: the client whose model scores the batch.
        batch: the rows.
        run: returns (predictions, loss).
        outcome: the future that receives the result.
    """

    client: FederatedClient
    batch: Batch
    run: Callable[[], tuple[Tensor, Tensor]]
    outcome: Future[tuple[Tensor, Tensor]] = field(default_factory=Future)


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
        """Run evaluations. The outcome of each is set now or later."""
        for job in jobs:
            settle(job)

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Release threads."""


def settle(*jobs: Evaluation) -> None:
    """Run evaluations one after another and set their outcomes."""
    for job in jobs:
        try:
            job.outcome.set_result(job.run())
        except Exception as error:
            job.outcome.set_exception(error)


class PlainEngine(Engine):
    """Steps one client after another, in the order of their names.

    Args:
        intra_op: the number of threads inside one operation.
    """

    def __init__(self, intra_op: int) -> None:
        self.intra_op = intra_op

    def run(self, steps: Mapping[str, ClientStep]) -> None:
        """See :class:`Engine`."""
        for one in steps.values():
            one.step(True)
